"""What a drain reads and writes in the cluster: nodes, the pods on them, disruption budgets and other autoscalers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Protocol
from urllib.parse import quote

from nodesmith.adapters.kubernetes.apiserver import ApiServer
from nodesmith.adapters.kubernetes.evictions import evict
from nodesmith.adapters.kubernetes.writes import object_path
from nodesmith.decisions.termination.evictions import attached
from nodesmith.errors import Rejected
from nodesmith.model.kubernetes.evictions import Eviction, PodOnNode
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.mirror import NODES, PODS, WATCHED, Mirror, WatchedKind, observed
from nodesmith_cli.access.cluster import documents_of
from nodesmith_cli.connecting.reading.cluster import running_autoscalers
from nodesmith_cli.sharing.ownership import Manifest, listed
from nodesmith_formats.kubernetes.objects import name_of
from nodesmith_formats.manifests.manifests import Document

CORDONED_FOR = "nodesmith.dev/cordoned-for-drain"
"""The annotation of a node that a drain has cordoned; its value is the group's name."""
_BY_KIND = {kind.kind: kind for kind in WATCHED}
_BUDGETS = _BY_KIND["PodDisruptionBudget"]
_OF_VOLUMES = [_BY_KIND[name] for name in ("PersistentVolume", "PersistentVolumeClaim", "VolumeAttachment")]
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_RIGHTS = (
    ("list", "", "nodes", ""),
    ("patch", "", "nodes", ""),
    ("list", "", "pods", ""),
    ("create", "", "pods", "eviction"),
    ("list", "policy", "poddisruptionbudgets", ""),
    ("list", "karpenter.sh", "nodepools", ""),
    ("list", "apps", "deployments", ""),
    ("list", "storage.k8s.io", "volumeattachments", ""),
)
"""The permissions that a drain needs: verb, API group, resource and subresource."""
_READ_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """A Deployment of Cluster Autoscaler with replicas, and the arguments of its containers."""

    name: str
    arguments: tuple[str, ...] = ()

    def scales(self, group: str, tags: Mapping[str, str]) -> bool:
        """Return whether it scales an Auto Scaling group of this name with these tags. True if that is not known."""
        named = _values(self.arguments, "--nodes")
        discovered = _values(self.arguments, "--node-group-auto-discovery")
        if any(flag.rpartition(":")[2] == group for flag in named):
            return True
        if any(_is_discovered(filter_, tags) for filter_ in discovered):
            return True
        return not named and not discovered


class Objects(Protocol):
    """The objects of the cluster."""

    def nodes(self) -> Sequence[Manifest]:
        """Return all Nodes."""

    def documents(self) -> Sequence[Document]:
        """Return every object that a plan reads."""

    def looked_at(self, nodes: Collection[str]) -> Snapshot:
        """Return the pods on these nodes, and all PodDisruptionBudgets."""

    def waiting(self) -> Sequence[Pod]:
        """Return the pods that have no node yet."""

    def volumes_of(self, node: str) -> Sequence[str]:
        """Return the volumes of pods that have left a node and are still attached to it."""

    def cordon(self, node: str, group: str) -> None:
        """Cordon a node, and annotate for which group."""

    def uncordon(self, node: str) -> None:
        """Uncordon a node, and remove the annotation."""

    def evict(self, pods: Sequence[PodOnNode]) -> Mapping[str, Eviction]:
        """Request evictions, and return their outcomes by pod."""

    def autoscalers(self) -> Sequence[Autoscaler]:
        """Return the Deployments of Cluster Autoscaler that have replicas."""


@dataclass(frozen=True, slots=True)
class ServedObjects:
    """The objects of a cluster on its API server. Every call may raise Transient, Rejected or Conflict."""

    server: ApiServer
    clock: Callable[[], datetime]

    def refuse_without_rights(self, cluster: str) -> None:
        """Raise Rejected if the caller lacks a right that a drain needs, naming all that are missing."""
        missing = []
        for verb, api_group, resource, sub in _RIGHTS:
            attributes = {"verb": verb, "group": api_group, "resource": resource, "subresource": sub}
            review = {"spec": {"resourceAttributes": attributes}}
            status, response = self.server.ask("POST", _REVIEWS, review, read_seconds=_READ_SECONDS)
            if status < 300 and not (response.get("status") or {}).get("allowed"):
                missing.append(f"{verb} {resource}{f'/{sub}' if sub else ''}")
        if missing:
            raise Rejected(f"you may not {', '.join(missing)} in cluster {cluster}. Nothing was changed")

    def nodes(self) -> Sequence[Manifest]:
        """Return all Nodes."""
        return listed(self.server, NODES.path)

    def documents(self) -> Sequence[Document]:
        """Return every object that a plan reads."""
        return list(documents_of(self.server, "cluster"))

    def looked_at(self, nodes: Collection[str]) -> Snapshot:
        """Return the pods on these nodes, and all PodDisruptionBudgets."""
        pods = [pod for node in sorted(nodes) for pod in self._pods(node)]
        return self._snapshot({PODS: pods, _BUDGETS: listed(self.server, _BUDGETS.path)})

    def waiting(self) -> Sequence[Pod]:
        """Return the pods that have no node yet."""
        found = self._snapshot({PODS: self._pods("")}).pods
        return [pod for pod in found if not pod.node and not pod.deleting]

    def volumes_of(self, node: str) -> Sequence[str]:
        """Return the volumes of pods that have left a node and are still attached to it."""
        kinds: dict[WatchedKind, Iterable[Manifest]] = {
            kind: [item for path in kind.paths[:1] for item in listed(self.server, path)]
            for kind in _OF_VOLUMES
        }
        return attached(node, self._snapshot({**kinds, PODS: self._pods(node)}))

    def _pods(self, node: str) -> Sequence[Manifest]:
        selector = f"fieldSelector={quote(f'spec.nodeName={node}')}"
        return listed(self.server, PODS.path, selector)

    def _snapshot(self, manifests: Mapping[WatchedKind, Iterable[Manifest]]) -> Snapshot:
        mirrors = {kind: Mirror(kind) for kind in WATCHED}
        for kind, items in manifests.items():
            for item in items:
                mirrors[kind].put(item)
        return decode(encode("drain", self.clock(), observed(mirrors.values())))

    def cordon(self, node: str, group: str) -> None:
        """Cordon a node, and annotate for which group."""
        metadata = {"annotations": {CORDONED_FOR: group}}
        self.server.patch(object_path("Node", node), {"metadata": metadata, "spec": {"unschedulable": True}})

    def uncordon(self, node: str) -> None:
        """Uncordon a node, and remove the annotation."""
        metadata = {"annotations": {CORDONED_FOR: None}}
        self.server.patch(object_path("Node", node), {"metadata": metadata, "spec": {"unschedulable": None}})

    def evict(self, pods: Sequence[PodOnNode]) -> Mapping[str, Eviction]:
        """Request evictions, and return their outcomes by pod."""
        return evict(self.server, pods)

    def autoscalers(self) -> Sequence[Autoscaler]:
        """Return the Deployments of Cluster Autoscaler that have replicas."""
        return [
            Autoscaler(
                f"{autoscaler['metadata']['namespace']}/{name_of(autoscaler)}",
                tuple(_arguments(autoscaler["spec"])),
            )
            for autoscaler in running_autoscalers(self.server)
        ]


def instance_of(node: Manifest) -> str:
    """Return the id of a node's instance, or an empty string."""
    return str((node.get("spec") or {}).get("providerID") or "").rpartition("/")[2]


def is_cordoned(node: Manifest) -> bool:
    """Return whether no new pods are scheduled to a node."""
    return bool((node.get("spec") or {}).get("unschedulable"))


def cordoned_for(node: Manifest) -> str:
    """Return the group for whose drain a node was cordoned, or an empty string."""
    return str((node["metadata"].get("annotations") or {}).get(CORDONED_FOR) or "")


def _arguments(spec: Mapping[str, Any]) -> Iterator[str]:
    pod = (spec.get("template") or {}).get("spec") or {}
    for container in pod.get("containers") or ():
        for part in ("command", "args"):
            yield from map(str, container.get(part) or ())


def _values(arguments: Sequence[str], option: str) -> list[str]:
    """Return the values of an option, written as `--option=value` or as two arguments."""
    found = [argument.partition("=")[2] for argument in arguments if argument.startswith(f"{option}=")]
    return found + [value for name, value in pairwise(arguments) if name == option]


def _is_discovered(text: str, tags: Mapping[str, str]) -> bool:
    """Return whether tags fulfil a discovery such as `asg:tag=k8s.io/cluster-autoscaler/enabled,team=a`."""
    wanted = [pair.partition("=") for pair in text.partition("tag=")[2].split(",") if pair]
    return bool(wanted) and all(key in tags and (not value or tags[key] == value) for key, _, value in wanted)
