"""The room of CapacityBuffers: where it is, and which nodes are bought for it.

A decision places the planned pods after all pods, on what these leave, and buys for the rest. So a plan for pods is the
same with and without buffers. Where planned pods are is decided anew each time: a pod that comes simply takes their
room. Disruption sees them bound to nodes: their eviction costs nothing, since nothing runs, but they need another
place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from nodesmith.decisions.provisioning.attempts import Repeating, histories
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
    wanted,
    warm_capacity,
)
from nodesmith.decisions.provisioning.clusterstate import foreseen, needs, reserved
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

_CONTENDED = "pods wait for the limits of NodePools, and pods come first"
_NOT_ON_DEMAND = "no NodePool can provide on-demand instances for the rest now"
_LATER = "more are bought after the nodes for pods"
_SOON = timedelta(seconds=5)
_BUFFERS_AT_ONCE = 10
"""For how many buffers one decision buys instances to be stopped."""
_NOT_NOW = "no NodePool can provide more room now"


@dataclass(frozen=True, slots=True)
class Remainder:
    """What a decision about pods leaves: what may still be bought, and the planner, whose count of nodes goes on.

    `offers` is what could be bought before it. All are None if there was nothing to decide.
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


def _asked(inputs: Inputs) -> list[Resolution]:
    """Return what buffers ask of nodes that run."""
    return [each for each in resolutions(inputs.snapshot, inputs.now) if not each.is_warm]


def _with_running(plan: Plan, remainder: Remainder, inputs: Inputs) -> Plan:
    """Return the plan with the nodes for room on nodes that run."""
    asked = _asked(inputs)
    pods = [pod for each in asked for pod in each.pods()]
    if not pods:
        return replace(plan, rooms=tuple(map(_no_room, asked)))
    snapshot = _with_sources_open(foreseen(inputs), inputs.ledger)
    free = _left_by(plan, snapshot, inputs)
    planner = _planner(inputs, snapshot, pods, free, remainder)
    planner.tiers = _uncontended(planner.tiers if remainder.tiers is None else remainder.tiers, plan)
    why = _unproven(asked, free, snapshot, inputs.ledger)
    there = placed_room(asked, pods, free, planner, snapshot, inputs.ledger)
    spent, beyond = within_dollars(asked, there, free, snapshot, inputs.ledger)
    why |= dict.fromkeys(beyond, DEAR)
    in_flight = frozenset(existing.name for existing in free if existing.in_flight)
    lacking = [pod for pod in pods if pod.key not in there and pod.key not in why]
    repeating = _repeating(lacking, asked, snapshot, inputs)
    fresh, held = repeating.split(lacking)
    nodes: tuple[PlannedNode, ...] = ()
    if fresh and not plan.new:
        left = {key: limit - spent.get(key, 0.0) for key, limit in limits_of(asked).items()}
        nodes, placed_late, dear = bought_within(left, fresh, free, planner, repeating.repetition_of())
        there |= placed_late
        why |= dict.fromkeys(dear, DEAR)
    placed = _Placed(there, in_flight, nodes, why | {pod.key: str(reason) for pod, reason in held})
    rooms = tuple(placed.room(each, plan) for each in asked)
    due = first_after(inputs.now, (plan.due, repeating.due(held)))
    return replace(plan, nodes=(*plan.nodes, *nodes), rooms=rooms, due=due)


def _no_room(each: Resolution) -> Room:
    """Return the room of a buffer that asks for none, with what its status says about that."""
    return Room(each.key, each.wanted, each.count, why=each.message)


def _with_stopped(plan: Plan, remainder: Remainder, inputs: Inputs, stopped: Sequence[WarmCapacity]) -> Plan:
    """Return the plan with the instances to prepare for buffers of stopped instances.

    They are for later, so nothing is bought for them together with other nodes. A soon look comes back to them.
    """
    asked = [(warm, wanted(warm, inputs.now)) for warm in stopped]
    due = [each.due for _, each in asked]
    lacking = [(warm, each) for warm, each in asked if each.pods]
    bought: dict[str, tuple[PlannedNode, ...]] = {}
    is_later = bool(plan.nodes or plan.starts or plan.new)
    if lacking and is_later:
        due.append(inputs.now + _SOON)
    elif lacking:
        bought = _prepared(plan, remainder, inputs, lacking[:_BUFFERS_AT_ONCE])
        due += [inputs.now + _SOON] if len(lacking) > _BUFFERS_AT_ONCE else []
    asked = [(warm, replace(each, why=_LATER) if each.pods and is_later else each) for warm, each in asked]
    rooms = [_stopped_room(warm, each, bought.get(warm.each.key), plan) for warm, each in asked]
    nodes = [node for found in bought.values() for node in found]
    shown = tuple(room for room, (warm, _) in zip(rooms, asked, strict=True) if warm.each.buffer is not None)
    return replace(
        plan,
        nodes=(*plan.nodes, *nodes),
        rooms=(*plan.rooms, *shown),
        due=first_after(inputs.now, (plan.due, *due)),
    )


def _prepared(
    plan: Plan, remainder: Remainder, inputs: Inputs, lacking: Sequence[tuple[WarmCapacity, WarmDemand]]
) -> dict[str, tuple[PlannedNode, ...]]:
    """Return the instances to buy, by buffer."""
    snapshot = foreseen(inputs)
    free = _left_by(plan, snapshot, inputs)
    for existing in free:
        existing.free = NOTHING  # they count for spreads only
    free += [node for warm, _ in lacking for node in hosting(warm, snapshot)]
    planner = _planner(inputs, snapshot, [pod for _, each in lacking for pod in each.pods], free, remainder)
    planner.tiers = _uncontended(planner.tiers if remainder.tiers is None else remainder.tiers, plan)
    found: dict[str, tuple[PlannedNode, ...]] = {}
    for warm, each in lacking:
        chosen, _ = Search(planner, each.pods, free, bounded=True).best(PreferenceMode.RULE)
        template = warm.each.template
        images = template.images if template is not None else ()
        nodes = planner.written_down(chosen.purchase, WarmFor(warm.each.key, images))
        attempts = FrozenMap(each.attempts)
        found[warm.each.key] = tuple(
            replace(node, claim=replace(node.claim, attempts=attempts)) for node in nodes
        )
        planner.tiers = tuple(map(tuple, chosen.purchase.tiers))
    return found


def _stopped_room(
    warm: WarmCapacity, each: WarmDemand, nodes: tuple[PlannedNode, ...] | None, plan: Plan
) -> Room:
    coming = sum(len(node.claim.nominated) for node in nodes or ())
    why = each.why or ("" if warm.each.count else warm.each.message)
    if each.pods and nodes is not None and coming < len(each.pods):
        why = _CONTENDED if _contended(plan) else _NOT_ON_DEMAND
    return warm.room(coming, why)


@dataclass(frozen=True, slots=True)
class _Placed:
    """Where planned pods have room: `there` by node, of which some are `in_flight`, and on `nodes` to buy.

    `why` has reasons why planned pods have no room.
    """

    there: Mapping[str, str]
    in_flight: frozenset[str]
    nodes: tuple[PlannedNode, ...]
    why: Mapping[str, str]

    def room(self, each: Resolution, plan: Plan) -> Room:
        """Return the room of one buffer."""
        if not each.count:
            return _no_room(each)
        keys = [pod.key for pod in each.pods()]
        bought = {key for node in self.nodes for key in node.claim.nominated}
        found, coming = Counter(self.there.get(key) for key in keys), sum(key in bought for key in keys)
        flying = sum(found[name] for name in self.in_flight)
        left = found[None] - coming
        reason = next((self.why[key] for key in keys if key in self.why), "") if left else ""
        if left and not reason:
            reason = _CONTENDED if _contended(plan) else _NOT_NOW
        there = len(keys) - found[None] - flying
        return Room(each.key, each.wanted, each.count, there, flying, coming, reason)


def _contended(plan: Plan) -> frozenset[str]:
    """Return the names of the NodePools whose limits keep pods pending: what is left of them is not for buffers."""
    return frozenset(u.why.nodepool for u in plan.unplaced if u.why.blocking.startswith("limit"))


def _uncontended(tiers: tuple[tuple[Template, ...], ...], plan: Plan) -> tuple[tuple[Template, ...], ...]:
    names = _contended(plan)
    return tuple(tuple(each for each in tier if each.name not in names) for tier in tiers)


def _planner(
    inputs: Inputs,
    snapshot: Snapshot,
    pods: Sequence[Pod],
    free: Sequence[ExistingNode],
    remainder: Remainder,
) -> Planner:
    # Pods and room see the same NodePools; the taints in which their snapshots differ are no matter of these.
    offers = remainder.offers or pools(snapshot, inputs.ledger, inputs.catalog, inputs.settings, inputs.now)
    met = [shape for existing in free for shape in (*existing.hosted, *existing.expected)]
    return Planner(inputs, offers, dict.fromkeys(pod.shape for pod in pods), met, after=remainder.planner)


def _left_by(plan: Plan, snapshot: Snapshot, inputs: Inputs) -> list[ExistingNode]:
    """Return the existing nodes, and those that the plan buys, with what its pods leave of them."""
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

    Their planned pods stay until the move's replacements are ready, as pods do. Otherwise a proposed move would cause
    nodes to be bought before it is known whether it is made.
    """
    sources = ledger.sources
    ours = {claim.provider_id for claim in ledger.claims if claim.name in sources and claim.provider_id}
    if not ours:
        return snapshot

    def opened(node: Node) -> Node:
        if node.provider_id not in ours:
            return node
        return replace(node, taints=tuple(t for t in node.taints if t.identity != DISRUPTED.identity))

    return replace(snapshot, nodes=tuple(map(opened, snapshot.nodes)))


def _repeating(
    fresh: Sequence[Pod], asked: Sequence[Resolution], snapshot: Snapshot, inputs: Inputs
) -> Repeating:
    names = Workloads()
    seen = with_stand_ins(snapshot, asked, inputs.ledger, names)
    return Repeating(histories(fresh, (), inputs.ledger, seen, inputs.now, names), names, inputs.now)


def with_stand_ins(
    snapshot: Snapshot, asked: Sequence[Resolution], ledger: Ledger, names: Workloads
) -> Snapshot:
    """Return the snapshot with one planned pod of a buffer on each Node that was bought for it and serves it.

    A Node serves a buffer if it has room for one of its pods, or if pods run there, which have used the room.
    """
    if not asked or not any(claim.attempts for claim in ledger.claims):
        return snapshot
    free = existing_nodes(snapshot, ledger.claims)
    found = [
        replace(pod, key=f"{pod.key}@{existing.name}", node=existing.name)
        for pod, _, existing in _bought(asked, free, snapshot, ledger, names)
        if _serves(existing, pod.shape)
    ]
    return replace(snapshot, pods=(*snapshot.pods, *found))


def _bought(
    asked: Iterable[Resolution],
    free: Iterable[ExistingNode],
    snapshot: Snapshot,
    ledger: Ledger,
    names: Workloads,
) -> Iterator[tuple[Pod, NodeClaim, ExistingNode]]:
    """Yield the first planned pod of each buffer with each claim that was bought for the buffer, and its node."""
    by_name = {existing.name: existing for existing in free}
    for pod in (pods[0] for each in asked if (pods := each.pods())):
        who = names.controller_of(pod)
        for claim in ledger.claims:
            if claim.attempts and who in map(controller, claim.attempts):
                node = snapshot.node_of(claim)
                existing = by_name.get(claim.name if node is None else node.name)
                if existing is not None:
                    yield pod, claim, existing


def _serves(existing: ExistingNode, shape: Shape) -> bool:
    has_room = existing.admits(shape) and existing.fits(shape, 1) > 0
    return has_room or any(count and runs_something(hosted) for hosted, count in existing.hosted.items())


def _unproven(
    asked: Sequence[Resolution], free: Iterable[ExistingNode], snapshot: Snapshot, ledger: Ledger
) -> dict[str, str]:
    """Return, with the reason, the planned pods of buffers that wait for a node which lacks the room already.

    `attempts` judges such a node once it is ready. Until then no other one is bought.
    """
    bought = _bought(asked, free, snapshot, ledger, Workloads())
    waiting = {
        (pod.shape.namespace, pod.shape.owner): claim.name
        for pod, claim, existing in bought
        if claim.phase in COMING and not _serves(existing, pod.shape)
    }
    found = {}
    for pod in (pod for each in asked for pod in each.pods()):
        claim = waiting.get((pod.shape.namespace, pod.shape.owner))
        if claim is not None:
            found[pod.key] = f"NodeClaim {claim}, which was bought for it, is not ready and lacks the room"
    return found


def room_of(inputs: Inputs) -> dict[Pod, str]:
    """Return the planned pods that have room now, each with the name of its Node, or of its claim if it has no Node.

    Pods that wait for a node come first.
    """
    asked = _asked(inputs)
    pods = [pod for each in asked for pod in each.pods()]
    if not pods:
        return {}
    snapshot = _with_sources_open(foreseen(inputs), inputs.ledger)
    there = reserved(snapshot, needs(snapshot, inputs).wanted, inputs)
    planner = _planner(inputs, snapshot, [*there.fresh, *pods], there.free, Remainder())
    planner.assign(there.fresh, there.free, PreferenceMode.RULE)
    placed = placed_room(asked, pods, there.free, planner, snapshot, inputs.ledger)
    within_dollars(asked, placed, there.free, snapshot, inputs.ledger)
    return {pod: placed[pod.key] for pod in pods if pod.key in placed}


def with_room_taken(inputs: Inputs) -> Inputs:
    """Return the inputs as disruption sees them.

    The planned pods of buffers run where they have room, and those of workloads that have grown wait for a node.
    """
    inputs = with_planned(inputs)
    if not inputs.snapshot.capacitybuffers:
        return inputs
    nodes = {node.name for node in inputs.snapshot.nodes}
    taken = [
        replace(pod, node=name, unschedulable=False) for pod, name in room_of(inputs).items() if name in nodes
    ]
    return replace(inputs, snapshot=replace(inputs.snapshot, pods=(*inputs.snapshot.pods, *taken)))
