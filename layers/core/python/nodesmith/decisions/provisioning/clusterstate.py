"""The pods that need nodes, and the existing nodes with what ending nodes, claims and moves in progress leave of them.

Provisioning decides about these pods. Disruption places them first, so that its moves do not take their places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from nodesmith.decisions.budgets import is_open
from nodesmith.decisions.provisioning.plan import Inputs
from nodesmith.decisions.scheduling.demands import provisionable, unserved
from nodesmith.decisions.scheduling.existing import (
    ExistingNode,
    by_age,
    existing_node_of,
    existing_nodes,
    is_closed,
    is_going,
    nominations,
    outside_zones,
    preempting_only,
    was_bought_for,
    with_cordoned,
    with_zones_cordoned,
)
from nodesmith.decisions.termination.evictions import not_evictable
from nodesmith.model.apimachinery.labels import DISRUPTED, NODEPOOL
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.kubernetes.provisioningrequests import CONSUMES, PROVISIONED, Gang, consumed, title
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot, with_default_spreads


def living_claims(inputs: Inputs) -> list[NodeClaim]:
    """Return the claims that have a node or will have one.

    These are all but those that were given up, and those whose node is not ready in a zone that is shifted away.
    """
    away = inputs.ledger.shifted(inputs.now)
    return outside_zones((c for c in inputs.ledger.claims if c.phase is not Phase.GIVEN_UP), away)


def effective_snapshot(inputs: Inputs) -> Snapshot:
    """Return the snapshot as decisions use it.

    Default spreads apply, claims to devices are requests, and only nominations of pods that preempt others count.
    Ending nodes are going away. Nodes take no pods in a zone that is shifted away, or if their NodePool's schedule has
    closed it.
    """
    claims = living_claims(inputs)
    observed = _with_pools_cordoned(inputs.snapshot, inputs.now)
    observed = with_zones_cordoned(observed, inputs.ledger.shifted(inputs.now))
    prepared = with_default_spreads(observed, inputs.settings.default_spreads)
    prepared = without_ending(preempting_only(prepared, claims), claims)
    return prepared if prepared.devices is None else _with_devices(prepared, inputs)


def _with_devices(snapshot: Snapshot, inputs: Inputs) -> Snapshot:
    # Only clusters with pods that claim devices need these modules.
    from nodesmith.decisions.scheduling.devices.simulation import with_devices, without_simulation
    from nodesmith.decisions.scheduling.offerings.overlays import overlays_of

    if inputs.settings.ignore_dra_requests:
        return without_simulation(snapshot)
    return with_devices(snapshot, overlays_of(snapshot, inputs.catalog, inputs.settings).devices())


def _with_pools_cordoned(snapshot: Snapshot, now: datetime) -> Snapshot:
    pools = parsed_nodepools(snapshot.nodepools)
    closed = {name for name, pool in pools.items() if not is_open(pool, now)}
    return with_cordoned(snapshot, lambda node: node.labels.get(NODEPOOL) in closed) if closed else snapshot


def without_ending(snapshot: Snapshot, claims: Iterable[NodeClaim]) -> Snapshot:
    """Return the snapshot with the Nodes of ending claims marked as being deleted, if it does not show that yet."""
    return without(snapshot, {claim.provider_id for claim in claims if claim.is_ending and claim.provider_id})


def without(snapshot: Snapshot, providers: Collection[str]) -> Snapshot:
    """Return the snapshot with the Nodes of these instances marked as being deleted."""
    if not providers:
        return snapshot
    nodes = tuple(replace(n, deleting=True) if n.provider_id in providers else n for n in snapshot.nodes)
    return replace(snapshot, nodes=nodes)


def with_sources_closed(snapshot: Snapshot, ledger: Ledger) -> Snapshot:
    """Return the snapshot with the source Nodes of moves in progress tainted, if it does not show that yet."""
    sources = ledger.sources
    closed = {claim.provider_id for claim in ledger.claims if claim.name in sources and claim.provider_id}
    if not closed:
        return snapshot

    def tainted(node: Node) -> Node:
        if node.provider_id not in closed or is_closed(node):
            return node
        return replace(node, taints=(*node.taints, DISRUPTED))

    return replace(snapshot, nodes=tuple(map(tainted, snapshot.nodes)))


@dataclass(frozen=True, slots=True)
class Needs:
    """The pods that need a node (`wanted`), and the others without one, with the reason why nothing is bought for them.

    `leaving_nodes` are the Nodes that are going away; their pods are among `wanted`.
    """

    wanted: Sequence[Pod]
    ignored: Sequence[tuple[Pod, str]]
    leaving_nodes: frozenset[str]


def needs(snapshot: Snapshot, inputs: Inputs) -> Needs:
    """Find the pods that need a node. `snapshot` is the effective one."""
    going = frozenset(node.name for node in snapshot.nodes if is_going(node))
    keeps = not_evictable(snapshot, living_claims(inputs), inputs.now)
    cutoff = inputs.settings.expendable_priority_cutoff
    wanted, ignored = provisionable(snapshot.pods, going, keeps, cutoff)
    early = _consuming_early([pod for pod in wanted if CONSUMES in pod.shape.annotations], inputs)
    if early:
        wanted = [pod for pod in wanted if pod.key not in early]
        ignored += early.values()
    return Needs(wanted, ignored, going)


NO_TURN_YET = "its turn has not come yet"


def _consuming_early(pods: Iterable[Pod], inputs: Inputs) -> dict[str, tuple[Pod, str]]:
    """Return the pods without a node that consume a request whose room is not there, by key, each with the reason.

    Nothing is bought for such a pod: the request itself gets the room, or does not.
    """
    requests = {request.key: request for request in inputs.snapshot.requests}
    ready = {gang.request for gang in inputs.ledger.gangs if gang.was_provisioned}
    ready |= {key for key, request in requests.items() if PROVISIONED in request.conditions}
    messages = {gang.request: gang.message for gang in inputs.ledger.gangs if gang.message}
    early_pods: dict[str, tuple[Pod, str]] = {}
    for pod in pods:
        key = consumed(pod.shape.annotations, pod.shape.namespace)
        request = requests.get(key)
        if not key or pod.node or key in ready:
            continue
        reason = f"it waits for the room of ProvisioningRequest {key}"
        if request is not None and request.is_pod_group:
            if not request.lacking:
                continue
            why = "; ".join(request.faults) or messages.get(key, NO_TURN_YET)
            reason = f"{title(key)} gets room for {request.lacking} of its pods at once, or for none: {why}"
        elif request is None:
            reason = f"it waits for the room of ProvisioningRequest {key}, which does not exist"
        elif not request.is_served(shared=inputs.settings.shared_provisioning_classes):
            reason = f"ProvisioningRequest {key} has the class {request.class_name}, which nodesmith does not serve"
        early_pods[pod.key] = pod, reason
    return early_pods


@dataclass(frozen=True, slots=True)
class Reserved:
    """The existing nodes with their `free` capacity, and which pods still need a place.

    `fresh` are the pods to place now. `waiting` are those that wait for the claims that were bought for them, by which
    `nominated` maps pods to claims; their capacity is already taken.
    """

    free: list[ExistingNode]
    fresh: list[Pod] = field(default_factory=list)
    waiting: list[Pod] = field(default_factory=list)
    nominated: Mapping[str, str] = field(default_factory=dict)


def reserved(snapshot: Snapshot, wanted: Sequence[Pod], inputs: Inputs) -> Reserved:
    """Reserve capacity for moves in progress and for pods that claims were bought for, and return what is left."""
    claims = living_claims(inputs)
    free = existing_nodes(snapshot, claims)
    _keep_for_sources(free, snapshot, inputs.ledger)
    consuming = keep_booked(free, snapshot, inputs)
    if not wanted:
        return Reserved(free)
    nominated = nominations(claims, inputs.now)
    booked, others = list[Pod](), wanted
    if consuming:
        booked = [pod for pod in wanted if pod.key in consuming]
        others = [pod for pod in wanted if pod.key not in consuming]
    fresh, waiting = unserved(others, nominated)
    waiting, displaced = _reserve(waiting, nominated, claims, free, snapshot)
    return Reserved(free, [*fresh, *displaced], [*waiting, *booked], {**nominated, **consuming})


def _keep_for_sources(free: Sequence[ExistingNode], snapshot: Snapshot, ledger: Ledger) -> None:
    """Reserve the capacity that moves have bought for the pods that still run on their sources."""
    coming = ledger.replacements
    if not coming:
        return
    by_name = {existing.name: existing for existing in free}
    staying = {node.name for node in snapshot.nodes if not is_going(node)}
    elsewhere = {pod.key: pod for pod in snapshot.pods if pod.node in staying and not pod.deleting}
    for claim in ledger.claims:
        existing = (
            existing_node_of(claim, by_name, snapshot)
            if claim.name in coming and not claim.is_ending
            else None
        )
        if existing is None:
            continue
        for pod in filter(None, map(elsewhere.get, claim.nominated)):
            if pod.node != existing.name:
                existing.keep(pod.shape)


def _reserve(
    waiting: Iterable[Pod],
    nominated: Mapping[str, str],
    claims: Sequence[NodeClaim],
    free: Sequence[ExistingNode],
    snapshot: Snapshot,
) -> tuple[list[Pod], list[Pod]]:
    """Reserve the capacity that claims were bought with for the pods they were bought for, oldest first.

    Return the pods that still wait, and those that need another node: theirs is initialized but has no capacity left,
    because kube-scheduler does not know about reservations and gave it to others; or the claim was bought for an
    earlier pod of the same name, and cannot hold this one.
    """
    by_name = {claim.name: claim for claim in claims}
    places = {existing.name: existing for existing in free}
    nodes_by_claim: dict[str, ExistingNode | None] = {}
    still: list[Pod] = []
    displaced: list[Pod] = []
    for pod in by_age(waiting):
        claim = by_name[nominated[pod.key]]
        if claim.name not in nodes_by_claim:
            nodes_by_claim[claim.name] = existing_node_of(claim, places, snapshot)
        existing = nodes_by_claim[claim.name]
        if existing is not None:
            if not _may_wait(pod, claim, existing):
                displaced.append(pod)
                continue
            existing.take(pod.shape, 1)
        still.append(pod)
    return still, displaced


def _may_wait(pod: Pod, claim: NodeClaim, existing: ExistingNode) -> bool:
    """Return whether a pod may wait for the node of a claim that is nominated for its name."""
    if was_bought_for(claim, pod):
        return existing.in_flight or existing.fits(pod.shape, 1) > 0
    return existing.admits(pod.shape) and existing.fits(pod.shape, 1) > 0


def keep_booked(free: Sequence[ExistingNode], snapshot: Snapshot, inputs: Inputs) -> dict[str, str]:
    """Take the room that is kept for gangs from the existing nodes. Return the pods (namespace/name) that wait for it.

    Each of these pods consumes the room on the NodeClaim or Node that it is mapped to. Pods that run already have
    consumed theirs. Where other pods have taken the room, there is none to wait for.
    """
    gangs = [gang for gang in inputs.ledger.gangs if gang.keeps_room(inputs.now)]
    if not gangs:
        return {}
    rooms = Rooms(free, snapshot, living_claims(inputs))
    consumers = consumers_by_request(snapshot)
    places_by_pod: dict[str, str] = {}
    for gang in sorted(gangs, key=lambda gang: (gang.created_at, gang.id)):
        shapes, mine = shapes_of(gang, snapshot), consumers.get(gang.request, ())
        open_places: list[list[str]] = [[] for _ in shapes]
        for place, counts in sorted(unconsumed(gang, snapshot, rooms, mine).items()):
            for index, count in enumerate(counts):
                open_places[index] += [place] * rooms.take(place, shapes[index], count)
        for pod in by_age(pod for pod in mine if not pod.node):
            places = next((open_places[index] for index in _sets_like(gang, pod) if open_places[index]), None)
            if places:
                places_by_pod[pod.key] = places.pop()
    return places_by_pod


class Rooms:
    """The existing nodes by place: the name of a NodeClaim, or of a Node without one."""

    def __init__(self, free: Iterable[ExistingNode], snapshot: Snapshot, claims: Iterable[NodeClaim]) -> None:
        by_name = {existing.name: existing for existing in free}
        nodes = {claim.name: node.name for claim in claims if (node := snapshot.node_of(claim)) is not None}
        self._places = {node: claim for claim, node in nodes.items()}
        self._rooms = by_name | {claim: by_name[node] for claim, node in nodes.items() if node in by_name}

    def place_of(self, name: str) -> str:
        """Return the place of a Node or of an existing node, by its name."""
        return self._places.get(name, name)

    def take(self, place: str, shape: Shape, count: int) -> int:
        """Take room for as many of `count` pods as fit, and return how many do."""
        existing = self._rooms.get(place)
        fitting = existing.fits(shape, count) if existing is not None else 0
        if existing is not None and fitting:
            existing.take(shape, fitting)
        return fitting

    def __contains__(self, place: str) -> bool:
        """Return whether there is such a node, or will be, and pods may come to it."""
        return place in self._rooms


def consumers_by_request(snapshot: Snapshot) -> Mapping[str, list[Pod]]:
    """Return the pods that consume each ProvisioningRequest, by its namespace/name."""
    by_request: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        key = consumed(pod.shape.annotations, pod.shape.namespace)
        if key and not pod.deleting:
            by_request.setdefault(key, []).append(pod)
    return by_request


def shapes_of(gang: Gang, snapshot: Snapshot) -> list[Shape]:
    """Return the shape of each pod set: that of its PodTemplate, or only what its pods request if that is gone."""
    request = next((candidate for candidate in snapshot.requests if candidate.key == gang.request), None)
    namespace = gang.request.partition("/")[0]
    names = [pod_set.template for pod_set in request.pod_sets] if request is not None else []
    templates = [snapshot.podtemplates.get(f"PodTemplate/{namespace}/{name}") for name in names]
    if request is not None and request.is_pod_group:  # its sets are those of the pods that exist now
        by_requests = {t.shape.requests: t for t in reversed(templates) if t is not None}
        templates = [by_requests.get(requests) for requests in gang.sets]
    templates += [None] * (len(gang.sets) - len(templates))
    return [
        template.shape if template is not None else Shape(namespace, {}, requests=requests)
        for template, requests in zip(templates, gang.sets, strict=False)
    ]


def unconsumed(
    gang: Gang,
    snapshot: Snapshot,
    rooms: Rooms,
    consumers: Sequence[Pod] | None = None,
    *,
    booked: bool = True,
) -> dict[str, list[int]]:
    """Return a gang's places without the room of pods that run: on the place itself, or else on any other place.

    `consumers` are the pods of its request, if the caller knows them. Until a request is `booked` it has none; those of
    a group of pods exist before, and come as soon as nodes are ready.
    """
    request = next((candidate for candidate in snapshot.requests if candidate.uid == gang.id), None)
    if consumers is None:
        consumers = consumers_by_request(snapshot).get(gang.request, ())
    if request is not None and request.is_pod_group:
        consumers = _come_since(gang, request.lacking or 0, consumers, rooms)
    elif not booked:
        consumers = ()
    remaining = {place: list(counts) for place, counts in gang.places.items()}
    unassigned: Counter[tuple[int, ...]] = Counter()
    for pod in consumers:
        place, sets = rooms.place_of(pod.node), _sets_like(gang, pod)
        index = next((i for i in sets if place in remaining and remaining[place][i]), None)
        if index is not None:
            remaining[place][index] -= 1
        elif pod.node and (place in rooms or place in remaining):
            unassigned[tuple(sets)] += 1
    for indexes, count in sorted(unassigned.items()):
        _take_anywhere(remaining, indexes, count)
    return remaining


def _come_since(gang: Gang, lacking: int, pods: Iterable[Pod], rooms: Rooms) -> list[Pod]:
    """Return the bound pods of a group that took room of its gang: as many as it lacked before and lacks no more."""
    number = sum(map(sum, gang.places.values())) - lacking
    bound = [(rooms.place_of(pod.node), pod) for pod in pods if pod.node]
    bound.sort(key=lambda at: (at[0] not in gang.claims, at[0] not in gang.places, at[1].key))
    return [pod for _, pod in bound[: max(0, number)]]


def _take_anywhere(remaining: Mapping[str, list[int]], sets: Iterable[int], count: int) -> None:
    for index in sets:
        for place in sorted(remaining):
            amount = min(count, remaining[place][index])
            remaining[place][index] -= amount
            count -= amount


def _sets_like(gang: Gang, pod: Pod) -> list[int]:
    """Return the numbers of the pod sets that a pod may belong to, those with the same requests first."""
    return sorted(range(len(gang.sets)), key=lambda index: gang.sets[index] != pod.shape.requests)


MOST_NODES = 4_000
"""The most nodes of one gang: an item of the ledger holds at most 400 kB, and names them all."""


def too_many_nodes(new: int, placed: int, inputs: Inputs) -> str:
    """Return why pods cannot have so many new nodes and existing ones at once, in a sentence; empty if they can."""
    if new + placed > MOST_NODES:
        return f"its pods need {new + placed:,} nodes, at most {MOST_NODES:,} are possible: split it"
    free = inputs.ledger.spending.launches_left(inputs.now)
    return f"its pods need {new:,} new nodes, and {free:,} launches are left this hour" if new > free else ""
