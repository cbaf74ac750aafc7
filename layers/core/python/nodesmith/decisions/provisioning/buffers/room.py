"""The room of CapacityBuffers: where it is, and which nodes are bought for it.

A decision places the planned pods after all pods, in the room that these leave, and buys for the rest. So a plan for
pods is the same with and without buffers. Each decision places the planned pods again: a new pod simply takes their
room. Disruption sees them bound to nodes: their eviction costs nothing, since nothing runs, but they need another
place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from nodesmith.decisions.provisioning.attempts import Repeating, histories
from nodesmith.decisions.provisioning.buffers.missingroom import (
    NOT_NOW,
    MissingRoom,
    uncontended,
    without_unstartable,
)
from nodesmith.decisions.provisioning.buffers.resolutions import Resolution, resolutions
from nodesmith.decisions.provisioning.buffers.spendinglimits import (
    DEAR,
    bought_within,
    limits_of,
    placed_room,
    runs_something,
    within_dollars,
)
from nodesmith.decisions.provisioning.buffers.warmcapacity import (
    WarmCapacity,
    WarmDemand,
    hosting,
    warm_capacity,
    warm_demand,
)
from nodesmith.decisions.provisioning.clusterstate import effective_snapshot, needs, reserved
from nodesmith.decisions.provisioning.growth import with_planned
from nodesmith.decisions.provisioning.nodepools.tiers import Pools, pools
from nodesmith.decisions.provisioning.plan import Inputs, Plan, PlannedNode, Room
from nodesmith.decisions.provisioning.planner import Planner, Search
from nodesmith.decisions.provisioning.purchase.claims import WarmFor
from nodesmith.decisions.scheduling.existing import ExistingNode, existing_nodes, in_flight_node
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.decisions.scheduling.preferences import PreferenceMode
from nodesmith.decisions.scheduling.workloads import Workloads, controller
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import DISRUPTED
from nodesmith.model.apimachinery.quantities import NOTHING
from nodesmith.model.apimachinery.times import first_after
from nodesmith.model.karpenter.nodeclaims import COMING, NodeClaim
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot

_NOT_ON_DEMAND = "no NodePool can provide on-demand instances for the rest now"
_LATER = "more are bought after the nodes for pods"
_SOON = timedelta(seconds=5)
_BUFFERS_AT_ONCE = 10
"""For how many buffers one decision buys instances to be stopped."""


@dataclass(frozen=True, slots=True)
class Remainder:
    """The result of a decision about pods: templates that may still buy, and the planner, which continues its count.

    `offers` are the NodePools that could buy before it. All are None if there was nothing to decide.
    """

    tiers: tuple[tuple[Template, ...], ...] | None = None
    planner: Planner | None = None
    offers: Pools | None = None


def with_room(plan: Plan, remainder: Remainder, inputs: Inputs) -> Plan:
    """Return a plan for pods with the nodes that CapacityBuffers need in addition."""
    plan = _with_running(plan, remainder, inputs)
    away = inputs.ledger.shifted(inputs.now)
    stopped = warm_capacity(inputs.snapshot, inputs.ledger.claims, inputs.now, away)
    return _with_stopped(plan, remainder, inputs, stopped) if stopped else plan


def _running_buffers(inputs: Inputs) -> list[Resolution]:
    """Return the requests of buffers for room on running nodes."""
    return [resolution for resolution in resolutions(inputs.snapshot, inputs.now) if not resolution.is_warm]


def _with_running(plan: Plan, remainder: Remainder, inputs: Inputs) -> Plan:
    """Return the plan with the nodes for room on running nodes."""
    requested = _running_buffers(inputs)
    pods = [pod for resolution in requested for pod in resolution.pods()]
    if not pods:
        return replace(plan, rooms=tuple(map(_no_room, requested)))
    snapshot = _with_sources_open(effective_snapshot(inputs), inputs.ledger)
    free = _left_by(plan, snapshot, inputs)
    planner = _planner(inputs, snapshot, pods, free, remainder)
    planner.tiers = uncontended(planner.tiers if remainder.tiers is None else remainder.tiers, plan)
    reasons = _unproven(requested, free, snapshot, inputs.ledger)
    places = placed_room(requested, pods, free, planner, snapshot, inputs.ledger)
    spent, beyond = within_dollars(requested, places, free, snapshot, inputs.ledger)
    reasons |= dict.fromkeys(beyond, DEAR)
    in_flight = frozenset(existing.name for existing in free if existing.in_flight)
    lacking = [pod for pod in pods if pod.key not in places and pod.key not in reasons]
    repeating = _repeating(lacking, requested, snapshot, inputs)
    fresh, held = repeating.split(lacking)
    nodes: tuple[PlannedNode, ...] = ()
    missing = MissingRoom(plan, remainder.tiers, planner)
    if fresh and not plan.new:
        budgets = {key: limit - spent.get(key, 0.0) for key, limit in limits_of(requested).items()}
        bought = bought_within(budgets, fresh, free, planner, repeating.repetition_of())
        nodes, placed_late, dear, attempt = bought
        places |= placed_late
        reasons |= dict.fromkeys(dear, DEAR)
        reasons |= missing.of(attempt) if attempt is not None else {}
    placed = _Placed(places, in_flight, nodes, reasons | {pod.key: str(reason) for pod, reason in held})
    rooms = tuple(placed.room(resolution) for resolution in requested)
    due = first_after(inputs.now, (plan.due, repeating.due(held), missing.due))
    return replace(plan, nodes=(*plan.nodes, *nodes), rooms=rooms, due=due)


def _no_room(resolution: Resolution) -> Room:
    """Return the room of a buffer that asks for none, with the message of its status."""
    return Room(resolution.key, resolution.wanted, resolution.count, reason=resolution.message)


def _with_stopped(plan: Plan, remainder: Remainder, inputs: Inputs, stopped: Sequence[WarmCapacity]) -> Plan:
    """Return the plan with the instances to prepare for buffers of stopped instances.

    They are for later, so nothing is bought for them together with other nodes. The next decision follows soon.
    """
    demands = [(warm, warm_demand(warm, inputs.now)) for warm in stopped]
    due = [demand.due for _, demand in demands]
    lacking = [(warm, demand) for warm, demand in demands if demand.pods]
    nodes_by_key: dict[str, tuple[PlannedNode, ...]] = {}
    reasons: dict[str, str] = {}
    is_later = bool(plan.nodes or plan.starts or plan.new)
    if lacking and is_later:
        due.append(inputs.now + _SOON)
    elif lacking:
        nodes_by_key, reasons, freed = _prepared(plan, remainder, inputs, lacking[:_BUFFERS_AT_ONCE])
        due += [freed, inputs.now + _SOON if len(lacking) > _BUFFERS_AT_ONCE else None]
    demands = [
        (warm, replace(demand, reason=_LATER) if demand.pods and is_later else demand)
        for warm, demand in demands
    ]
    rooms = [
        _stopped_room(warm, demand, nodes_by_key.get(warm.resolution.key), reasons, inputs)
        for warm, demand in demands
    ]
    nodes = [node for group in nodes_by_key.values() for node in group]
    shown_rooms = tuple(
        room for room, (warm, _) in zip(rooms, demands, strict=True) if warm.resolution.buffer is not None
    )
    return replace(
        plan,
        nodes=(*plan.nodes, *nodes),
        rooms=(*plan.rooms, *shown_rooms),
        due=first_after(inputs.now, (plan.due, *due)),
    )


def _prepared(
    plan: Plan, remainder: Remainder, inputs: Inputs, lacking: Sequence[tuple[WarmCapacity, WarmDemand]]
) -> tuple[dict[str, tuple[PlannedNode, ...]], dict[str, str], datetime | None]:
    """Return the instances to buy by buffer, why there are none for planned pods, and when time alone allows more."""
    snapshot = effective_snapshot(inputs)
    free = _left_by(plan, snapshot, inputs)
    for existing in free:
        existing.free = NOTHING  # they count for spreads only
    free += [node for warm, _ in lacking for node in hosting(warm, snapshot)]
    planner = _planner(
        inputs, snapshot, [pod for _, demand in lacking for pod in demand.pods], free, remainder
    )
    planner.tiers = uncontended(planner.tiers if remainder.tiers is None else remainder.tiers, plan)
    nodes_by_buffer: dict[str, tuple[PlannedNode, ...]] = {}
    missing, reasons = MissingRoom(plan, remainder.tiers, planner), dict[str, str]()
    for warm, demand in lacking:
        attempt, _ = Search(planner, demand.pods, free, bounded=True).best(PreferenceMode.RULE)
        template = warm.resolution.template
        images = template.images if template is not None else ()
        nodes = planner.written_down(attempt.purchase, WarmFor(warm.resolution.key, images))
        attempts = FrozenMap(demand.attempts)
        nodes_by_buffer[warm.resolution.key] = tuple(
            replace(node, claim=replace(node.claim, attempts=attempts)) for node in nodes
        )
        reasons |= missing.of(attempt)
        planner.tiers = tuple(map(tuple, attempt.purchase.tiers))
    return nodes_by_buffer, reasons, missing.due


def _stopped_room(
    warm: WarmCapacity,
    demand: WarmDemand,
    nodes: tuple[PlannedNode, ...] | None,
    reasons: Mapping[str, str],
    inputs: Inputs,
) -> Room:
    coming = sum(len(node.claim.nominated) for node in nodes or ())
    reason = demand.reason or ("" if warm.resolution.count else warm.resolution.message)
    if demand.pods and nodes is not None and coming < len(demand.pods):
        reason = next((reasons[pod.key] for pod in demand.pods if pod.key in reasons), _NOT_ON_DEMAND)
    return without_unstartable(warm, warm.room(coming, reason), inputs)


@dataclass(frozen=True, slots=True)
class _Placed:
    """Where planned pods have room: `places` by node, of which some are `in_flight`, and on `nodes` to buy.

    `reasons` has reasons why planned pods have no room.
    """

    places: Mapping[str, str]
    in_flight: frozenset[str]
    nodes: tuple[PlannedNode, ...]
    reasons: Mapping[str, str]

    def room(self, resolution: Resolution) -> Room:
        """Return the room of one buffer."""
        if not resolution.count:
            return _no_room(resolution)
        keys = [pod.key for pod in resolution.pods()]
        nominated = {key for node in self.nodes for key in node.claim.nominated}
        placed, coming = Counter(self.places.get(key) for key in keys), sum(key in nominated for key in keys)
        flying = sum(placed[name] for name in self.in_flight)
        unplaced = placed[None] - coming
        reason = next((self.reasons[key] for key in keys if key in self.reasons), "") if unplaced else ""
        if unplaced and not reason:
            reason = NOT_NOW
        ready = len(keys) - placed[None] - flying
        return Room(resolution.key, resolution.wanted, resolution.count, ready, flying, coming, reason)


def _planner(
    inputs: Inputs,
    snapshot: Snapshot,
    pods: Sequence[Pod],
    free: Sequence[ExistingNode],
    remainder: Remainder,
) -> Planner:
    # Pods and room see the same NodePools: their snapshots differ only in taints of nodes.
    offers = remainder.offers or pools(snapshot, inputs.ledger, inputs.catalog, inputs.settings, inputs.now)
    known_shapes = [shape for existing in free for shape in (*existing.hosted, *existing.expected)]
    return Planner(
        inputs, offers, dict.fromkeys(pod.shape for pod in pods), known_shapes, after=remainder.planner
    )


def _left_by(plan: Plan, snapshot: Snapshot, inputs: Inputs) -> list[ExistingNode]:
    """Return the existing nodes, and those that the plan buys, with the room that its pods leave."""
    free = reserved(snapshot, needs(snapshot, inputs).wanted, inputs).free
    shapes = {pod.key: pod.shape for pod in snapshot.pods}
    for existing in free:
        for key in (plan.placed or {}).get(existing.name, ()):
            existing.take(shapes[key], 1)
    for node in plan.nodes:
        existing = in_flight_node(node.claim, snapshot)
        for key in node.claim.nominated:
            existing.take(shapes[key], 1)
        free.append(existing)
    return free


def _with_sources_open(snapshot: Snapshot, ledger: Ledger) -> Snapshot:
    """Return the snapshot without the taint of sources of moves in progress.

    Their planned pods stay until the move's replacements are ready, as pods do. Otherwise nodes would be bought for a
    proposed move before it is known whether the move is made.
    """
    sources = ledger.sources
    source_ids = {claim.provider_id for claim in ledger.claims if claim.name in sources and claim.provider_id}
    if not source_ids:
        return snapshot

    def opened(node: Node) -> Node:
        if node.provider_id not in source_ids:
            return node
        return replace(node, taints=tuple(t for t in node.taints if t.identity != DISRUPTED.identity))

    return replace(snapshot, nodes=tuple(map(opened, snapshot.nodes)))


def _repeating(
    fresh: Sequence[Pod], requested: Sequence[Resolution], snapshot: Snapshot, inputs: Inputs
) -> Repeating:
    names = Workloads()
    extended = with_stand_ins(snapshot, requested, inputs.ledger, names)
    return Repeating(histories(fresh, (), inputs.ledger, extended, inputs.now, names), names, inputs.now)


def with_stand_ins(
    snapshot: Snapshot, requested: Sequence[Resolution], ledger: Ledger, names: Workloads
) -> Snapshot:
    """Return the snapshot with one planned pod of a buffer on each Node that was bought for it and serves it.

    A Node serves a buffer if it has room for one of its pods, or if pods run there, which have used the room.
    """
    if not requested or not any(claim.attempts for claim in ledger.claims):
        return snapshot
    free = existing_nodes(snapshot, ledger.claims)
    stand_ins = [
        replace(pod, key=f"{pod.key}@{existing.name}", node=existing.name)
        for pod, _, existing in _room_bought(requested, free, snapshot, ledger, names)
        if _serves(existing, pod.shape)
    ]
    return replace(snapshot, pods=(*snapshot.pods, *stand_ins))


def _room_bought(
    requested: Iterable[Resolution],
    free: Iterable[ExistingNode],
    snapshot: Snapshot,
    ledger: Ledger,
    names: Workloads,
) -> Iterator[tuple[Pod, NodeClaim, ExistingNode]]:
    """Yield the first planned pod of each buffer with each claim that was bought for the buffer, and its node."""
    by_name = {existing.name: existing for existing in free}
    for pod in (pods[0] for resolution in requested if (pods := resolution.pods())):
        owner = names.controller_of(pod)
        for claim in ledger.claims:
            if claim.attempts and owner in map(controller, claim.attempts):
                existing = by_name.get(snapshot.host_of(claim))
                if existing is not None:
                    yield pod, claim, existing


def _serves(existing: ExistingNode, shape: Shape) -> bool:
    has_room = existing.admits(shape) and existing.fits(shape, 1) > 0
    return has_room or any(count and runs_something(hosted) for hosted, count in existing.hosted.items())


def _unproven(
    requested: Sequence[Resolution], free: Iterable[ExistingNode], snapshot: Snapshot, ledger: Ledger
) -> dict[str, str]:
    """Return, with the reason, the planned pods of buffers that wait for a node which is known to lack the room.

    `attempts` judges such a node once it is ready. Until then no other node is bought.
    """
    purchases = _room_bought(requested, free, snapshot, ledger, Workloads())
    waiting = {
        (pod.shape.namespace, pod.shape.owner): claim.name
        for pod, claim, existing in purchases
        if claim.phase in COMING and not _serves(existing, pod.shape)
    }
    reasons = {}
    for pod in (pod for resolution in requested for pod in resolution.pods()):
        claim = waiting.get((pod.shape.namespace, pod.shape.owner))
        if claim is not None:
            reasons[pod.key] = f"NodeClaim {claim}, which was bought for it, is not ready and lacks the room"
    return reasons


def room_of(inputs: Inputs) -> dict[Pod, str]:
    """Return the planned pods that have room now, each with the name of its Node, or of its claim if it has no Node.

    Pods that wait for a node come first.
    """
    requested = _running_buffers(inputs)
    pods = [pod for resolution in requested for pod in resolution.pods()]
    if not pods:
        return {}
    snapshot = _with_sources_open(effective_snapshot(inputs), inputs.ledger)
    current = reserved(snapshot, needs(snapshot, inputs).wanted, inputs)
    planner = _planner(inputs, snapshot, [*current.fresh, *pods], current.free, Remainder())
    planner.assign(current.fresh, current.free, PreferenceMode.RULE)
    placed = placed_room(requested, pods, current.free, planner, snapshot, inputs.ledger)
    within_dollars(requested, placed, current.free, snapshot, inputs.ledger)
    return {pod: placed[pod.key] for pod in pods if pod.key in placed}


def with_room_taken(inputs: Inputs) -> Inputs:
    """Return the inputs as disruption sees them.

    The planned pods of buffers run where they have room, and those of workloads that have grown wait for a node.
    """
    inputs = with_planned(inputs)
    if not inputs.snapshot.capacitybuffers:
        return inputs
    nodes = {node.name for node in inputs.snapshot.nodes}
    placeholders = [
        replace(pod, node=name, unschedulable=False) for pod, name in room_of(inputs).items() if name in nodes
    ]
    return replace(inputs, snapshot=replace(inputs.snapshot, pods=(*inputs.snapshot.pods, *placeholders)))
