"""What a takeover reads and writes: instances in EC2, and objects of the cluster, with the caller's own credentials."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import quote

from nodesmith.adapters.ec2.instances import LIVING, Machine, describe_filter, machines
from nodesmith.adapters.kubernetes.apiserver import ApiServer
from nodesmith.adapters.kubernetes.cluster import karpenter_runs
from nodesmith.errors import Conflict, Transient
from nodesmith.model.apimachinery.labels import NODEPOOL
from nodesmith.model.karpenter.ownership import owned_tag, tag_list
from nodesmith.observation.mirror import NODECLAIMS, NODECLASSES, NODEPOOLS, NODES
from nodesmith_cli.access.awssession import Client, asking
from nodesmith_cli.sharing.ownership import LEASE_HELD, Manifest, listed
from nodesmith_formats.kubernetes.objects import name_of

_ATTEMPTS = 5
_AT_ONCE = 200
"""The most resources in one call. EC2 accepts 1,000."""
_LABELLED = "labelSelector=app.kubernetes.io%2Fname%3Dkarpenter"
_OVER = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Controller:
    """A Deployment of Karpenter, and its number of replicas."""

    namespace: str
    name: str
    replicas: int

    def __str__(self) -> str:
        return f"Deployment {self.namespace}/{self.name}"


class Machines(Protocol):
    """The EC2 instances of a cluster."""

    def of_cluster(self) -> Sequence[Machine]:
        """Return the living instances that Karpenter or nodesmith has launched for the cluster."""

    def tag(self, resources: Sequence[str], tags: Mapping[str, str]) -> None:
        """Write tags on instances and Spot Instance requests."""

    def untag(self, resources: Sequence[str], keys: Sequence[str]) -> None:
        """Remove tags by their keys."""


class Objects(Protocol):
    """The objects of the cluster."""

    def nodeclaims(self) -> Sequence[Manifest]:
        """Return all NodeClaims."""

    def nodes(self) -> Sequence[Manifest]:
        """Return all Nodes."""

    def nodepools(self) -> Sequence[Manifest]:
        """Return all NodePools."""

    def nodeclasses(self) -> Sequence[Manifest]:
        """Return all EC2NodeClasses."""

    def annotate(self, name: str, uid: str, annotations: Mapping[str, str | None]) -> bool:
        """Write annotations on a NodeClaim, and remove those that are None. Return False if it is gone."""

    def karpenter(self) -> Sequence[str]:
        """Return the signs that Karpenter runs, each as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Ec2Machines:
    """The instances of a cluster in EC2. Every call may raise Denied, Transient or Rejected."""

    client: Client
    cluster: str

    def of_cluster(self) -> Sequence[Machine]:
        """Return the living instances that Karpenter or nodesmith has launched for the cluster."""
        owned = describe_filter(f"tag:{owned_tag(self.cluster)}", "owned")
        with asking("ec2:DescribeInstances", "*"):
            return list(machines(self.client("ec2"), owned, describe_filter("tag-key", NODEPOOL), LIVING))

    def tag(self, resources: Sequence[str], tags: Mapping[str, str]) -> None:
        """Write tags on instances and Spot Instance requests."""
        for ids in _parts(resources):
            with asking("ec2:CreateTags", ids[0]):
                self.client("ec2").create_tags(Resources=ids, Tags=tag_list(tags))

    def untag(self, resources: Sequence[str], keys: Sequence[str]) -> None:
        """Remove tags by their keys."""
        for ids in _parts(resources):
            with asking("ec2:DeleteTags", ids[0]):
                self.client("ec2").delete_tags(Resources=ids, Tags=[{"Key": key} for key in keys])


def _parts(resources: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(resources), _AT_ONCE):
        yield list(resources[start : start + _AT_ONCE])


@dataclass(frozen=True, slots=True)
class ServedObjects:
    """The objects of a cluster on its API server. Every call may raise Transient or Rejected."""

    server: ApiServer
    clock: Callable[[], datetime]

    def nodeclaims(self) -> Sequence[Manifest]:
        """Return all NodeClaims."""
        return listed(self.server, NODECLAIMS.path)

    def nodes(self) -> Sequence[Manifest]:
        """Return all Nodes."""
        return listed(self.server, NODES.path)

    def nodepools(self) -> Sequence[Manifest]:
        """Return all NodePools."""
        return listed(self.server, NODEPOOLS.path)

    def nodeclasses(self) -> Sequence[Manifest]:
        """Return all EC2NodeClasses."""
        return listed(self.server, NODECLASSES.path)

    def annotate(self, name: str, uid: str, annotations: Mapping[str, str | None]) -> bool:
        """Write annotations on a NodeClaim, and remove those that are None. Return False if it is gone."""
        path = f"{NODECLAIMS.path}/{quote(name, safe='')}"
        for _ in range(_ATTEMPTS):
            there = self.server.get(path)
            if there is None or there["metadata"].get("uid") != uid:
                return False
            shown = there["metadata"].get("annotations") or {}
            if all(shown.get(key) == value for key, value in annotations.items()):
                return True
            version = there["metadata"]["resourceVersion"]
            metadata = {"annotations": dict(annotations), "resourceVersion": version}
            try:
                self.server.patch(path, {"metadata": metadata})
            except Conflict:
                continue
            return True
        raise Transient(f"NodeClaim {name} changes too often to be written", "Conflict")

    def karpenter(self) -> Sequence[str]:
        """Return the signs that Karpenter runs: its lease, a Deployment with replicas, or a Pod of it."""
        signs = [LEASE_HELD] if karpenter_runs(self.server, self.clock()) else []
        signs += [f"is {controller}" for controller in self.controllers() if controller.replicas]
        pods = listed(self.server, "/api/v1/pods", _LABELLED)
        alive = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in _OVER]
        signs += [f"has Pod {_named(pod)}" for pod in alive]
        return signs

    def controllers(self) -> Sequence[Controller]:
        """Return the Deployments of Karpenter."""
        found = listed(self.server, "/apis/apps/v1/deployments", _LABELLED)
        return [
            Controller(manifest["metadata"]["namespace"], name_of(manifest), _replicas(manifest))
            for manifest in found
        ]

    def scale_down(self, controller: Controller) -> None:
        """Scale a Deployment to zero."""
        path = f"/apis/apps/v1/namespaces/{quote(controller.namespace)}/deployments/{quote(controller.name)}"
        self.server.patch(path, {"spec": {"replicas": 0}})


def _named(manifest: Manifest) -> str:
    return f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"


def _replicas(deployment: Mapping[str, Any]) -> int:
    return int((deployment.get("spec") or {}).get("replicas", 1))
