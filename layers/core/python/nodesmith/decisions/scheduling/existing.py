"""Existing and in-flight nodes, the capacity they still have, and nominations: pods go here before anything is bought.

Nodes of zones that the cluster is shifted away from take no more pods, and pods do not wait for those to come. EKS
cordons such nodes. Until it has, decisions look at them as if it had.

kube-scheduler does not know nodesmith's plan. A pod's `status.nominatedNodeName` makes it try that node first, and
reserve the pod's room there against pods of equal or lower priority. Whenever an attempt to schedule the pod fails, for
instance because its node is not Ready yet, kube-scheduler clears the nomination; so every look sets it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from nodesmith.decisions.scheduling.compatibility import (
    WINDOWS,
    compatible_terms,
    is_for_linux,
    label_refusal,
)
from nodesmith.model.apimachinery.labels import (
    DISRUPTED,
    HOSTNAME,
    INITIALIZED,
    OS,
    ZONE,
    Taint,
    first_untolerated,
    is_ephemeral,
    is_temporary,
)
from nodesmith.model.apimachinery.quantities import NOTHING, Resources, total
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.karpenter.nodeclaims import COMING, NodeClaim, Phase
from nodesmith.model.kubernetes.nodes import REGISTERED_UNSCHEDULABLE, Node
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.snapshot import Snapshot

NOMINATION = timedelta(seconds=20)
"""How long pods may take to bind after their node is initialized: twice the longest batch (Karpenter's figure)."""


_WITHOUT_NODE = frozenset({Phase.PENDING, Phase.LAUNCHED, Phase.STARTING})


@dataclass(slots=True)
class ExistingNode:
    """What one node can still take. The only mutable value in this package: it shrinks as pods are assigned.

    `name` is the Node's name, or the claim's before there is a Node. `hosted` counts pods by shape, for spreads and
    caps; `leaving` counts those of them that are being deleted. `expected` are DaemonSets whose pod has yet to come;
    their requests are no longer in `free`.
    """

    name: str
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    free: Resources
    hosted: Counter[Shape]
    in_flight: bool
    leaving: Counter[Shape] = field(default_factory=Counter)
    expected: tuple[Shape, ...] = ()

    def fits(self, shape: Shape, wanted: int) -> int:
        """Return how many of `wanted` pods of this shape still fit by resources alone."""
        return shape.requests.times_in(self.free, wanted)

    def copy(self) -> ExistingNode:
        """Return a copy that can be filled without changing this one."""
        return replace(self, hosted=Counter(self.hosted))

    def take(self, shape: Shape, count: int) -> None:
        """Assign pods: subtract their requests from `free` and count them as hosted."""
        self.free = self.free - shape.requests.times(count)
        self.hosted[shape] += count

    def keep(self, shape: Shape) -> None:
        """Reserve capacity for a pod that will come. Until then it counts on the node where it is."""
        self.free = self.free - shape.requests

    def admits(self, shape: Shape) -> bool:
        """Return whether taints, labels and the operating system admit pods of this shape."""
        if first_untolerated(self.taints, shape.tolerations) or label_refusal(self.labels, shape.terms):
            return False
        return self.labels.get(OS) != WINDOWS or not is_for_linux(shape, self.labels, self.taints)


def admission(shape: Shape) -> Callable[[ExistingNode], bool]:
    """Return whether nodes admit a shape, computed once for nodes whose relevant labels and taints are equal."""
    admitted: dict[tuple[object, ...], bool] = {}
    keys = sorted({OS, *(key for term in shape.terms for key in term)})
    is_possible, has_terms = bool(shape.terms), any(shape.terms)

    def admits(existing: ExistingNode) -> bool:
        labels = existing.labels
        if not has_terms and not existing.taints and labels.get(OS) != WINDOWS:
            return is_possible
        looks = existing.taints, *[labels.get(key) for key in keys]
        if looks not in admitted:
            admitted[looks] = existing.admits(shape)
        return admitted[looks]

    return admits


def existing_nodes(snapshot: Snapshot, claims: Sequence[NodeClaim]) -> list[ExistingNode]:
    """Return every node that stays and every claim in flight: initialized nodes first, then by name.

    Warm capacity is left out, with the Nodes that are being prepared for it. Nodes tainted `karpenter.sh/disrupted`
    have no free capacity. Neither has a second Node with a claim's provider id, or a Node that has it under a wrong
    name. Their pods still count for the spreads of other pods. Pods that the scheduler has nominated for a node have
    their capacity there already, and so do the pods that they preempt until these are gone: kube-scheduler admits no
    other pod before that either.
    """
    claims = claims if snapshot.simulated is None else snapshot.simulated.known(claims)
    by_provider = {claim.provider_id: claim for claim in claims if claim.provider_id}
    nominated: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        if pod.node or pod.deleting or pod.shape.is_daemon:  # daemons are expected anyway
            continue
        if pod.nominated_node:
            nominated.setdefault(pod.nominated_node, []).append(pod)
    nodes = []
    for node in snapshot.nodes:
        claim = by_provider.get(node.provider_id)
        if is_going(node) or (claim is not None and claim.is_warm):
            continue
        nodes.append(_node_room(node, claim, snapshot.pods_on(node.name), snapshot.daemonsets))
        if claim is not None and snapshot.node_of(claim) is not node:
            nodes[-1].free = NOTHING
    nodes += [
        in_flight_node(claim, snapshot)
        for claim in claims
        if claim.phase in _WITHOUT_NODE and not claim.is_warm and snapshot.node_of(claim) is None
    ]
    for existing in nodes:
        for pod in nominated.get(existing.name, ()):
            existing.take(pod.shape, 1)
    return sorted(nodes, key=lambda existing: (existing.in_flight, existing.name))


def is_going(node: Node) -> bool:
    """Return whether a node is being deleted, so that its pods will need another."""
    return node.deleting


def is_closed(node: Node) -> bool:
    """Return whether a node takes no more pods because it may be disrupted soon; its present pods stay for now."""
    return any(taint.identity == DISRUPTED.identity for taint in node.taints)


def _node_room(
    node: Node, claim: NodeClaim | None, pods: Sequence[Pod], daemonsets: Iterable[Shape]
) -> ExistingNode:
    initialized = claim is None or node.labels.get(INITIALIZED) == "true"
    if initialized or claim is None:
        labels, taints, offered = dict(node.labels), node.taints, node.allocatable
    else:
        labels = {**claim.labels, **node.labels}
        taints = _lasting(claim, node.taints)
        offered = claim.allocatable.at_least(node.allocatable)
    labels.setdefault(HOSTNAME, node.name)
    hosted = Counter(pod.shape for pod in pods)
    present = {(shape.namespace, shape.owner) for shape in hosted if shape.is_daemon}
    expected = tuple(
        daemon
        for daemon in _tolerant(daemonsets, taints)
        if (daemon.namespace, daemon.owner) not in present and not label_refusal(labels, daemon.terms)
    )
    used = total(
        [shape.requests.times(count) if count > 1 else shape.requests for shape, count in hosted.items()]
    )
    free = NOTHING if is_closed(node) else offered - total([used, *(daemon.requests for daemon in expected)])
    leaving = Counter(pod.shape for pod in pods if pod.deleting)
    return ExistingNode(node.name, labels, taints, free, hosted, not initialized, leaving, expected)


def awaited_daemons(
    node: Node, claim: NodeClaim | None, pods: Sequence[Pod], daemonsets: Iterable[Shape]
) -> tuple[Shape, ...]:
    """Return the DaemonSets that belong on a Node and have no pod there yet; `pods` are the pods that it runs."""
    return _node_room(node, claim, pods, daemonsets).expected


def in_flight_node(claim: NodeClaim, snapshot: Snapshot) -> ExistingNode:
    """Return a claim in flight as a node. Before the launch only the labels with a single possible value are known.

    Every DaemonSet that may come is expected.
    """
    requirements = Requirements.from_labels(claim.labels).union(claim.requirements)
    taints = _lasting(claim, claim.taints)
    expected = tuple(
        daemon for daemon in _tolerant(snapshot.daemonsets, taints) if compatible_terms(requirements, daemon)
    )
    offered = claim.allocatable.at_least(snapshot.attach_limits.on(claim.instance_type))
    free = offered - total([daemon.requests for daemon in expected])
    labels = {**claim.requirements.settled, **claim.labels}
    return ExistingNode(claim.name, labels, taints, free, Counter(), in_flight=True, expected=expected)


def _lasting(claim: NodeClaim, taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """Leave out the taints that a starting node loses: startup taints, and those known to be ephemeral or temporary."""
    startup = {t.identity for t in claim.startup_taints}
    if claim.held_until is not None:
        startup.add(REGISTERED_UNSCHEDULABLE.identity)
    return tuple(t for t in taints if t.identity not in startup and not (is_ephemeral(t) or is_temporary(t)))


def _tolerant(daemonsets: Iterable[Shape], taints: Iterable[Taint]) -> list[Shape]:
    taints = tuple(taints)
    return [d for d in daemonsets if not d.refusal and first_untolerated(taints, d.tolerations) is None]


def nominations(claims: Iterable[NodeClaim], now: datetime) -> dict[str, str]:
    """Return the name of the live claim that each pod (namespace/name) was bought for.

    A pod whose capacity was taken by another is bought for once more, and waits for the newest claim.
    """
    expecting = [
        claim
        for claim in claims
        if (claim.phase in COMING and not claim.is_warm)
        or (claim.phase is Phase.INITIALIZED and now - claim.phase_since < NOMINATION)
    ]
    expecting.sort(key=lambda claim: (claim.bought_at, claim.name))
    return {pod: claim.name for claim in expecting for pod in claim.nominated}


def was_bought_for(claim: NodeClaim, pod: Pod) -> bool:
    """Return whether a claim that is nominated for a pod's name was bought for this very pod.

    A StatefulSet creates its pods again under the same names.
    """
    return pod.created_at <= claim.bought_at


def existing_node_of(
    claim: NodeClaim, existing_nodes: Mapping[str, ExistingNode], snapshot: Snapshot
) -> ExistingNode | None:
    """Return which of the nodes, by name, belongs to a claim, before or after its Node joined; None if none does."""
    node = snapshot.node_of(claim)
    name = node.name if node is not None else claim.node_name
    return existing_nodes.get(name) or existing_nodes.get(claim.name)


def by_age(pods: Iterable[Pod]) -> list[Pod]:
    """Order pods oldest first, ties by name."""
    return sorted(pods, key=lambda pod: (pod.created_at, pod.key))


def with_zones_cordoned(snapshot: Snapshot, zones: Collection[str]) -> Snapshot:
    """Return the snapshot with the nodes in these zones cordoned."""
    return with_cordoned(snapshot, lambda node: node.labels.get(ZONE) in zones) if zones else snapshot


def with_cordoned(snapshot: Snapshot, is_selected: Callable[[Node], bool]) -> Snapshot:
    """Return the snapshot with the chosen nodes cordoned."""

    def cordoned(node: Node) -> Node:
        if not is_selected(node) or REGISTERED_UNSCHEDULABLE in node.taints:
            return node
        return replace(node, taints=(*node.taints, REGISTERED_UNSCHEDULABLE))

    return replace(snapshot, nodes=tuple(map(cordoned, snapshot.nodes)))


def outside_zones(claims: Iterable[NodeClaim], zones: Collection[str]) -> list[NodeClaim]:
    """Return the claims without those whose node is not ready yet and is, or will be, in one of these zones."""
    if not zones:
        return list(claims)
    return [claim for claim in claims if claim.phase not in COMING or zone_of(claim) not in zones]


def zone_of(claim: NodeClaim) -> str:
    """Return the zone where a claim's node is or will be; empty if it is not settled."""
    return claim.zone or claim.requirements.settled.get(ZONE, "")


def to_nominate(
    claims: Iterable[NodeClaim], pods: Iterable[Pod], now: datetime
) -> Mapping[str, tuple[str, ...]]:
    """Return, by claim name, the pods (namespace/name) that it was bought for and that wait without a nomination."""
    nominated = nominations(claims, now)
    by_claim: dict[str, list[str]] = {}
    for pod in pods:
        if pod.key in nominated and not (pod.node or pod.nominated_node or pod.deleting):
            by_claim.setdefault(nominated[pod.key], []).append(pod.key)
    return {claim: tuple(sorted(keys)) for claim, keys in by_claim.items()}


def to_clear(claims: Sequence[NodeClaim], snapshot: Snapshot, now: datetime) -> Mapping[str, tuple[str, ...]]:
    """Return, by claim name, the pods (namespace/name) that nodesmith nominated for its Node and that no longer wait.

    kube-scheduler would keep reserving their room. Furthermore, if it refused a pod because of such room and the
    nominated pod was then bound elsewhere, it does not retry the refused pod for five minutes. When a nomination is
    cleared, it retries all pods of equal or lower priority at once (kubernetes/kubernetes#134859).
    """
    nominated = nominations(claims, now)
    by_claim: dict[str, list[str]] = {}
    for pod, claim in _ours(claims, snapshot):
        if nominated.get(pod.key) != claim.name and not pod.deleting:
            by_claim.setdefault(claim.name, []).append(pod.key)
    return {claim: tuple(sorted(keys)) for claim, keys in by_claim.items()}


def preempting_only(snapshot: Snapshot, claims: Iterable[NodeClaim]) -> Snapshot:
    """Return the snapshot with only the nominations that kube-scheduler made by preemption.

    Nominations for nodes that are gone, and those from `to_nominate`, are removed: their pods wait for their claim, or
    for a new one, as if they had no nomination. If pods on the nominated node are terminating, the nomination counts as
    a preemption, even if nodesmith made it first.
    """
    if not any(pod.nominated_node for pod in snapshot.pods):
        return snapshot
    nodes, own_pods = {node.name for node in snapshot.nodes}, {pod.key for pod, _ in _ours(claims, snapshot)}

    def is_valid(pod: Pod) -> bool:
        return pod.nominated_node in nodes and pod.key not in own_pods

    pods = tuple(
        replace(pod, nominated_node="") if pod.nominated_node and not is_valid(pod) else pod
        for pod in snapshot.pods
    )
    return replace(snapshot, pods=pods)


def _ours(claims: Iterable[NodeClaim], snapshot: Snapshot) -> Iterator[tuple[Pod, NodeClaim]]:
    """Yield the pods that nodesmith nominated, each with the claim whose Node it is nominated for."""
    nominated = {pod.nominated_node for pod in snapshot.pods if pod.nominated_node}
    by_nomination = {
        (claim.node_name, key): claim
        for claim in claims
        if claim.node_name in nominated
        for key in claim.nominated
    }
    vacating = {pod.node for pod in snapshot.pods if pod.deleting and pod.node}
    for pod in snapshot.pods:
        if pod.nominated_node and pod.nominated_node not in vacating:
            claim = by_nomination.get((pod.nominated_node, pod.key))
            if claim is not None and _may_have_nominated(claim, pod):
                yield pod, claim


def _may_have_nominated(claim: NodeClaim, pod: Pod) -> bool:
    """Return whether nodesmith has nominated a claim's pods since a pod exists, which may have been created again."""
    if claim.phase in COMING or was_bought_for(claim, pod):
        return True
    return pod.created_at < (claim.initialized_at or claim.phase_since) + NOMINATION
