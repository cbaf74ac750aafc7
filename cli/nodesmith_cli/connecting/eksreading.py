"""Reading EKS: the access entries of a cluster, and the forwarder's identity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nodesmith_cli.access.awssession import if_there
from nodesmith_cli.connecting.actions import AGENT
from nodesmith_cli.connecting.asking import Asker, is_made
from nodesmith_cli.connecting.manifests import FORWARDER, NAMESPACE
from nodesmith_cli.connecting.observed import Association, Cluster, Entry


class EksReading(Asker):
    """Reads the resources of EKS."""

    def entries(self, cluster: Cluster, principals: Iterable[str]) -> dict[str, Entry]:
        """Return the access entries of these principals. A cluster in the CONFIG_MAP mode has none."""
        if cluster.mode == "CONFIG_MAP":
            return {}
        found = {}
        for principal in principals:
            entry = self._entry(cluster.name, principal)
            if entry is not None:
                found[principal] = entry
        return found

    def _entry(self, cluster: str, principal: str) -> Entry | None:
        def read() -> Entry | None:
            eks = self.client("eks")
            answer = if_there(lambda: eks.describe_access_entry(clusterName=cluster, principalArn=principal))
            if answer is None:
                return None
            entry = answer["accessEntry"]
            return Entry(
                entry["type"],
                entry.get("username", ""),
                tuple(entry.get("kubernetesGroups") or ()),
                is_made(entry.get("tags"), cluster),
            )

        return self.ask("eks:DescribeAccessEntry", f"access-entry/{cluster}", read, None)

    def association(self, cluster: str) -> Association | None:
        """Return the forwarder's Pod Identity association, or None."""
        eks = self.client("eks")

        def read() -> Association | None:
            listed = eks.list_pod_identity_associations(
                clusterName=cluster, namespace=NAMESPACE, serviceAccount=FORWARDER
            )["associations"]
            if not listed:
                return None
            id_ = listed[0]["associationId"]
            found = eks.describe_pod_identity_association(clusterName=cluster, associationId=id_)[
                "association"
            ]
            at = found.get("modifiedAt") or found["createdAt"]
            return Association(id_, found["roleArn"], at, is_made(found.get("tags"), cluster))

        return self.ask("eks:ListPodIdentityAssociations", f"cluster/{cluster}", read, None)

    def has_agent(self, cluster: str) -> bool:
        """Return whether the Pod Identity agent add-on is installed."""

        def read() -> bool:
            eks = self.client("eks")
            return if_there(lambda: eks.describe_addon(clusterName=cluster, addonName=AGENT)) is not None

        return self.ask("eks:DescribeAddon", f"addon/{cluster}/{AGENT}", read, True)


def cluster_of(found: Mapping[str, Any]) -> Cluster:
    """Parse the cluster in a DescribeCluster response."""
    vpc = found.get("resourcesVpcConfig") or {}
    return Cluster(
        found["name"],
        found.get("status", ""),
        found.get("version", ""),
        (found.get("accessConfig") or {}).get("authenticationMode", "CONFIG_MAP"),
        vpc.get("vpcId", ""),
        found.get("endpoint", ""),
        (found.get("certificateAuthority") or {}).get("data", ""),
        tuple(vpc.get("subnetIds") or ()),
        vpc.get("clusterSecurityGroupId", ""),
        bool(vpc.get("endpointPublicAccess", True)),
        tuple(vpc.get("publicAccessCidrs") or ()),
        bool((found.get("computeConfig") or {}).get("enabled")),
    )
