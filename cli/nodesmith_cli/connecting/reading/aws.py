"""Reading everything that connect and doctor need to know about a cluster from AWS. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from nodesmith.adapters.aws.calls import rows
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.registration import default_node_role
from nodesmith_cli.access.awssession import AwsCaller, asking, if_there
from nodesmith_cli.access.kubeconfigs import regions_of
from nodesmith_cli.connecting.checks.problems import talking_roles
from nodesmith_cli.connecting.manifests import FORWARDER, NAMESPACE
from nodesmith_cli.connecting.observed import Account, Association, Cluster, Entry, is_made
from nodesmith_cli.connecting.reading.account import AccountReading, possible_names
from nodesmith_cli.connecting.request import ConnectRequest, readable
from nodesmith_cli.connecting.steps.actions import AGENT


class EksReading(AwsCaller):
    """Reads the resources of EKS."""

    def entries(
        self, cluster: Cluster, principals: Iterable[str], roles_made: Mapping[str, datetime] | None = None
    ) -> dict[str, Entry]:
        """Return the access entries of these principals. A cluster in the CONFIG_MAP mode has none.

        `roles_made` is when the roles were created, by ARN, as far as known.
        """
        if cluster.mode == "CONFIG_MAP":
            return {}
        entries_by_principal = {}
        for principal in principals:
            entry = self._entry(cluster.name, principal, (roles_made or {}).get(principal))
            if entry is not None:
                entries_by_principal[principal] = entry
        return entries_by_principal

    def _entry(self, cluster: str, principal: str, role_made: datetime | None) -> Entry | None:
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
                role_made is not None and entry["createdAt"] < role_made,
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
            response = eks.describe_pod_identity_association(clusterName=cluster, associationId=id_)[
                "association"
            ]
            return Association(id_, response["roleArn"], is_made(response.get("tags"), cluster))

        return self.ask("eks:ListPodIdentityAssociations", f"cluster/{cluster}", read, None)

    def has_agent(self, cluster: str) -> bool:
        """Return whether the Pod Identity agent add-on is installed."""

        def read() -> bool:
            eks = self.client("eks")
            return if_there(lambda: eks.describe_addon(clusterName=cluster, addonName=AGENT)) is not None

        return self.ask("eks:DescribeAddon", f"addon/{cluster}/{AGENT}", read, True)


class AwsReading(AccountReading, EksReading):
    """Reads an account and EKS."""

    def account(self, request: ConnectRequest) -> Account:
        """Return what AWS has for a cluster. Raises Rejected if the cluster does not exist, Transient."""
        caller = self.caller()
        cluster = self.cluster(request.cluster)
        stack = self.stack()
        parameter = self.parameter(request.cluster)
        watched = self.parameter(request.cluster, observed=True)
        registration = readable(request.cluster, parameter if parameter is not None else watched)
        vpc = request.vpc if request.vpc is not None else (registration.reached_from if registration else "")
        default = default_node_role(request.cluster)
        named = [request.node_role or "", *(registration.node_roles if registration else ()), default]
        names = possible_names(named)
        partition, account = caller["Arn"].split(":")[1], caller["Account"]
        functions = talking_roles(self.region, vpc)
        existing_roles = {
            name: role for name in (*functions, *names) if (role := self.role(name)) is not None
        }
        roles = frozenset(existing_roles) & {*functions}
        arns = {name: f"arn:{partition}:iam::{account}:role/{name}" for name in (*sorted(roles), *names)}
        made = {arns[name]: role["CreateDate"] for name, role in existing_roles.items()}
        return Account(
            account,
            partition,
            self.region,
            caller["Arn"],
            cluster,
            stack=stack,
            cdk_stack=self.cdk_stack(request.cluster),
            roles=roles,
            entries=self.entries(cluster, arns.values(), made),
            association=self.association(cluster.name),
            has_agent=self.has_agent(cluster.name),
            has_spot_role=self.has_spot_role(),
            subnets=self.subnets(cluster),
            groups=self.groups(cluster),
            node_roles=self.node_roles(request.cluster, names),
            parameter=parameter,
            watched=watched,
            denied=tuple(dict.fromkeys(self.denied)),
        )

    def caller(self) -> Mapping[str, str]:
        """Return the identity of the caller. Raises Rejected without credentials."""
        with asking("sts:GetCallerIdentity", "*"):
            identity: Mapping[str, str] = self.client("sts").get_caller_identity()
        return identity

    def cluster(self, name: str) -> Cluster:
        """Describe the cluster. Raises Rejected, with the existing clusters, if it does not exist."""
        with asking("eks:DescribeCluster", f"cluster/{name}"):
            response = if_there(lambda: self.client("eks").describe_cluster(name=name))
        if response is None:
            raise Rejected(self._unknown(name))
        return cluster_of(response["cluster"])

    def _unknown(self, name: str) -> str:
        elsewhere = sorted(regions_of(name) - {self.region})
        if elsewhere:
            return (
                f"there is no cluster {name!r} in {self.region}; your kubeconfig has one of that name in "
                f"{' and '.join(elsewhere)}: use --region {elsewhere[0]}"
            )
        names = self.ask("eks:ListClusters", "*", self._cluster_names, list[str]())
        hint = did_you_mean(name, names) or (
            f"; clusters: {', '.join(names[:10])}" if names else ", which has no clusters"
        )
        return f"there is no cluster {name!r} in {self.region}{hint}"

    def _cluster_names(self) -> list[str]:
        return sorted(rows(self.client("eks"), "list_clusters", "clusters"))


def cluster_of(described: Mapping[str, Any]) -> Cluster:
    """Parse the cluster in a DescribeCluster response."""
    vpc = described.get("resourcesVpcConfig") or {}
    return Cluster(
        described["name"],
        described.get("status", ""),
        described.get("version", ""),
        (described.get("accessConfig") or {}).get("authenticationMode", "CONFIG_MAP"),
        vpc.get("vpcId", ""),
        described.get("endpoint", ""),
        (described.get("certificateAuthority") or {}).get("data", ""),
        tuple(vpc.get("subnetIds") or ()),
        vpc.get("clusterSecurityGroupId", ""),
        bool(vpc.get("endpointPublicAccess", True)),
        tuple(vpc.get("publicAccessCidrs") or ()),
        bool((described.get("computeConfig") or {}).get("enabled")),
    )
