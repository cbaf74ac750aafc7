"""The places for pods: existing nodes, in-flight NodeClaims, and the new nodes of the plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodesmith_cli.audit.reading.fields import HOSTNAME, Amounts, Manifest, amounts, dig, largest, node_labels
from nodesmith_cli.audit.reading.pods import Pod
from nodesmith_cli.audit.reading.selectors import UNSCHEDULABLE, refusals

NODEPOOL = "karpenter.sh/nodepool"
_INITIALIZED = "karpenter.sh/initialized"
_DISRUPTED = "karpenter.sh/disrupted"
_SHED = {
    ("node.kubernetes.io/not-ready", "NoSchedule"),
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoSchedule"),
    ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
    ("karpenter.sh/unregistered", "NoExecute"),
}
"""Taints that are removed while a node starts (Karpenter's known ephemeral taints)."""


@dataclass(slots=True)
class Place:
    """A node as kube-scheduler will see it.

    `labels` are the labels it has with any of its types, `unsettled` the keys of all others, and `presumed` all labels
    with their most likely values. `room` is None for a new node, since it depends on the type. `bound` are existing and
    nominated pods, `daemons` the pods that DaemonSets will still start, and `pods` those that the plan adds. `closed`
    is the reason why no pods may be added, or empty.
    """

    name: str
    labels: dict[str, str]
    taints: Sequence[Manifest]
    room: Amounts | None
    is_new: bool = False
    closed: str = ""
    capacity: Amounts = field(default_factory=dict)
    unsettled: frozenset[str] = frozenset()
    presumed: Mapping[str, str] = field(default_factory=dict)
    bound: list[Pod] = field(default_factory=list)
    daemons: tuple[Pod, ...] = ()
    pods: list[Pod] = field(default_factory=list)

    @property
    def node_name(self) -> str | None:
        """The name that pods can select, or None for a new node, whose name is unknown."""
        return None if self.is_new else self.name


def read_places(
    nodes: Iterable[Manifest], claims: Iterable[Manifest]
) -> tuple[dict[str, Place], dict[str, str]]:
    """Return the places of Nodes and of NodeClaims without a Node, by name, and the place of each NodeClaim."""
    claims = list(claims)
    by_provider = {dig(c, "status", "providerID"): c for c in claims if dig(c, "status", "providerID")}
    by_node = {dig(c, "status", "nodeName"): c for c in claims if dig(c, "status", "nodeName")}
    places: dict[str, Place] = {}
    place_of: dict[str, str] = {}
    for node in nodes:
        name = node["metadata"]["name"]
        claim = by_provider.get(dig(node, "spec", "providerID")) or by_node.get(name)
        places[name] = _node_place(node, claim)
        if claim:
            place_of[claim["metadata"]["name"]] = name
    for claim in claims:
        name = claim["metadata"]["name"]
        if name not in place_of:
            place_of[name] = name
            places.setdefault(name, _claim_place(claim))
    return places, place_of


def _node_place(node: Manifest, claim: Manifest | None) -> Place:
    about, status = node["metadata"], node.get("status") or {}
    labels, taints = node_labels(about.get("labels")), list(dig(node, "spec", "taints") or ())
    room, capacity = amounts(status.get("allocatable")), amounts(status.get("capacity"))
    if claim and labels.get(_INITIALIZED) != "true":
        labels = {**_claim_labels(claim), **labels}
        startup = {(t["key"], t.get("effect")) for t in dig(claim, "spec", "startupTaints") or ()}
        taints = [t for t in taints if not _is_shed(t) and (t["key"], t.get("effect")) not in startup]
        room = largest(room, amounts(dig(claim, "status", "allocatable")))
        capacity = largest(capacity, amounts(dig(claim, "status", "capacity")))
    if dig(node, "spec", "unschedulable") and not any(t["key"] == UNSCHEDULABLE["key"] for t in taints):
        taints.append(UNSCHEDULABLE)
    labels.setdefault(HOSTNAME, about["name"])
    leaving = "deletionTimestamp" in about or (claim and "deletionTimestamp" in claim["metadata"])
    disrupted = any(t["key"] == _DISRUPTED for t in taints)
    closed = "it is being deleted" if leaving else "it is being disrupted" if disrupted else ""
    return Place(about["name"], labels, taints, room, closed=closed, capacity=capacity, presumed=labels)


def _claim_place(claim: Manifest) -> Place:
    name, status = claim["metadata"]["name"], claim.get("status") or {}
    room, capacity = amounts(status.get("allocatable")), amounts(status.get("capacity"))
    closed = "it is being deleted" if "deletionTimestamp" in claim["metadata"] else ""
    labels = {**_claim_labels(claim), HOSTNAME: name}
    taints = [t for t in dig(claim, "spec", "taints") or () if not _is_shed(t)]
    return Place(name, labels, taints, room, closed=closed, capacity=capacity, presumed=labels)


def _claim_labels(claim: Manifest) -> dict[str, str]:
    """Return the labels of a NodeClaim's future node: its own, and those with a single value in its requirements."""
    allowed: dict[str, set[str]] = {}
    for requirement in dig(claim, "spec", "requirements") or ():
        if requirement["operator"] == "In":
            values = set(map(str, requirement["values"]))
            allowed[requirement["key"]] = allowed.get(requirement["key"], values) & values
    settled = {key: min(values) for key, values in allowed.items() if len(values) == 1}
    return node_labels({**settled, **(claim["metadata"].get("labels") or {})})


def _is_shed(taint: Manifest) -> bool:
    return (taint["key"], taint.get("effect")) in _SHED or taint["key"].startswith("readiness.k8s.io/")


def missing_daemons(place: Place, daemons: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return the DaemonSet pods that a node does not have yet."""
    running = {(pod.namespace, pod.owner) for pod in place.bound if pod.is_daemon}
    suited = suited_daemons(daemons, place.labels, place.taints, place.node_name)
    return tuple(pod for pod in suited if (pod.namespace, pod.owner) not in running)


def suited_daemons(
    daemons: Iterable[Pod], labels: Mapping[str, str], taints: Sequence[Manifest], name: str | None
) -> Iterator[Pod]:
    """Return the DaemonSet pods that run on a node with these labels and taints."""
    return (d for d in daemons if not d.fault and not refusals(d.spec, labels, taints, name))


def pool_use(places: Iterable[Place], pool: str) -> dict[str, Any]:
    """Return the total capacity of a NodePool's nodes, and their number as `nodes`."""
    used: Amounts = {"nodes": 0}
    for place in places:
        if not place.is_new and place.labels.get(NODEPOOL) == pool:
            used["nodes"] += 1
            for name, amount in place.capacity.items():
                used[name] = used.get(name, 0) + amount
    return used
