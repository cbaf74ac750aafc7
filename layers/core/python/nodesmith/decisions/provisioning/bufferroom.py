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

from nodesmith.decisions.due import first_after
from nodesmith.decisions.provisioning.attempts import Repeating, Workloads, controller, histories
from nodesmith.decisions.provisioning.buffers import Resolution, resolutions
from nodesmith.decisions.provisioning.clusterstate import foreseen, needs, reserved
from nodesmith.decisions.provisioning.nodepooltiers import pools
from nodesmith.decisions.provisioning.plan import Inputs, Plan, PlannedNode, Room
from nodesmith.decisions.provisioning.planner import Planner, Search
from nodesmith.decisions.provisioning.proactive import with_planned
from nodesmith.decisions.scheduling.existing import ExistingNode, existing_nodes, in_flight_node
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.decisions.scheduling.preferences import PreferenceMode
from nodesmith.model.apimachinery.taints import DISRUPTED
from nodesmith.model.karpenter.capacitybuffers import LIMIT_USD
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot

_CONTENDED = "pods wait for the limits of NodePools, and pods come first"
_NOT_NOW = "no NodePool can provide more room now"
_DEAR = f"its limit in dollars is reached ({LIMIT_USD})"
_ATTEMPTS = 5
"""How often nodes are chosen for planned pods: for all, for ever fewer until they cost what a limit in dollars allows,
and at last without those of the buffers that still cost more."""
_LESS = 0.95
"""Fewer pods need a little more for each."""
_YOUNG = frozenset({Phase.PENDING, Phase.LAUNCHED, Phase.REGISTERED})


@dataclass(frozen=True, slots=True)
class Rest:
    """What a decision about pods leaves: what may still be bought, and the planner, whose count of nodes goes on.

    Both are None if there was nothing to decide.
    """

    tiers: tuple[tuple[Template, ...], ...] | None = None
    planner: Planner | None = None


def with_room(plan: Plan, rest: Rest, inputs: Inputs) -> Plan:
    """Return a plan for pods with the nodes that CapacityBuffers need in addition."""
    asked = resolutions(inputs.snapshot, inputs.now)
    pods = [pod for each in asked for pod in each.pods()]
    if not pods:
        return replace(plan, rooms=tuple(Room(each.key, each.wanted, each.count) for each in asked))
    snapshot = _with_sources_open(foreseen(inputs), inputs.ledger)
    free = _left_by(plan, snapshot, inputs)
    planner = _planner(inputs, snapshot, pods, free, rest)
    planner.tiers = _uncontended(planner.tiers if rest.tiers is None else rest.tiers, plan)
    why = _unproven(asked, free, snapshot, inputs.ledger)
    there = _placed(pods, free, planner)
    spent, beyond = _within_dollars(asked, there, free, snapshot, inputs.ledger)
    why |= dict.fromkeys(beyond, _DEAR)
    in_flight = frozenset(existing.name for existing in free if existing.in_flight)
    lacking = [pod for pod in pods if pod.key not in there and pod.key not in why]
    repeating = _repeating(lacking, asked, snapshot, inputs)
    fresh, held = repeating.split(lacking)
    nodes: tuple[PlannedNode, ...] = ()
    if fresh and not plan.new:
        left = {key: limit - spent.get(key, 0.0) for key, limit in _limits(asked).items()}
        nodes, placed_late, dear = _bought_within(left, fresh, free, planner)
        there |= placed_late
        why |= dict.fromkeys(dear, _DEAR)
        nodes = repeating.noted(nodes, fresh)
    placed = _Placed(there, in_flight, nodes, why | {pod.key: str(reason) for pod, reason in held})
    rooms = tuple(placed.room(each, plan) for each in asked)
    due = first_after(inputs.now, (plan.due, repeating.due(held)))
    return replace(plan, nodes=(*plan.nodes, *nodes), rooms=rooms, due=due)


def _buffer_of(pod: Pod) -> str:
    """Return the key (namespace/name) of the buffer that a planned pod stands for."""
    return f"{pod.shape.namespace}/{pod.shape.owner.partition('/')[2]}"


def _limits(asked: Iterable[Resolution]) -> dict[str, float]:
    """Return the limits of buffers in USD an hour, by key."""
    buffers = {each.key: each.buffer for each in asked if each.buffer is not None}
    return {key: buffer.limit_usd for key, buffer in buffers.items() if buffer.limit_usd is not None}


def _within_dollars(
    asked: Sequence[Resolution],
    there: dict[str, str],
    free: Iterable[ExistingNode],
    snapshot: Snapshot,
    ledger: Ledger,
) -> tuple[dict[str, float], list[str]]:
    """Remove from `there` the planned pods on nodes that cost a buffer more than its limit in dollars.

    Return the price of the nodes without pods that each limited buffer holds, and the keys of the removed pods. The
    nodes with most of its pods are kept first.
    """
    limits = _limits(asked)
    if not limits:
        return {}, []
    idle = {e.name for e in free if not any(map(runs_something, (*e.hosted, *e.expected)))}
    prices = dict[str, float]()
    for claim in ledger.claims:
        node = snapshot.node_of(claim)
        prices[claim.name if node is None else node.name] = claim.price_hourly_usd
    spent, beyond = dict[str, float](), list[str]()
    for each in asked:
        if each.key not in limits:
            continue
        held = Counter(there[pod.key] for pod in each.pods() if there.get(pod.key) in idle)
        for name, _ in sorted(held.items(), key=lambda item: (-item[1], item[0])):
            price = spent.get(each.key, 0.0) + prices.get(name, 0.0)
            if price <= limits[each.key]:
                spent[each.key] = price
            else:
                beyond += [pod.key for pod in each.pods() if there.get(pod.key) == name]
    for key in beyond:
        del there[key]
    return spent, beyond


def _bought_within(
    left: Mapping[str, float], fresh: Sequence[Pod], free: Sequence[ExistingNode], planner: Planner
) -> tuple[tuple[PlannedNode, ...], dict[str, str], list[str]]:
    """Buy for planned pods, with what is `left` of the limits in dollars of buffers.

    A buffer whose nodes would cost more gets nodes for fewer pods, or else none. Return the nodes, the node by pod for
    those that fit on existing ones, and the keys of pods that are left out.
    """
    pods, out = list(fresh), list[str]()
    for attempt in range(_ATTEMPTS):
        chosen, _ = Search(planner, pods, free, bounded=True).best(PreferenceMode.RULE)
        nodes = planner.written_down(chosen.purchase)
        owners = {pod.key: _buffer_of(pod) for pod in pods}
        cost = dict.fromkeys(left, 0.0)
        for node in nodes:
            for owner in {owners[key] for key in node.claim.nominated} & left.keys():
                cost[owner] += node.claim.price_hourly_usd
        dear = {key: left[key] / cost[key] for key in sorted(left) if cost[key] > left[key]}
        if not dear:
            placed = {key: name for name, keys in chosen.assignment.placed.items() for key in keys}
            return nodes, placed, out
        is_last = attempt == _ATTEMPTS - 2
        for buffer, share in dear.items():
            mine = [pod.key for pod in pods if owners[pod.key] == buffer]
            out += mine[0 if is_last else int(len(mine) * max(0.0, share) * _LESS) :]
        pods = [pod for pod in pods if pod.key not in set(out)]
    return (), {}, [pod.key for pod in fresh]


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
    inputs: Inputs, snapshot: Snapshot, pods: Sequence[Pod], free: Sequence[ExistingNode], rest: Rest
) -> Planner:
    offers = pools(snapshot, inputs.ledger, inputs.catalog, inputs.settings, inputs.now)
    met = [shape for existing in free for shape in (*existing.hosted, *existing.expected)]
    return Planner(inputs, offers, dict.fromkeys(pod.shape for pod in pods), met, after=rest.planner)


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


def _placed(pods: Sequence[Pod], free: list[ExistingNode], planner: Planner) -> dict[str, str]:
    """Place planned pods on existing nodes, which this fills; return the name of the node by pod.

    Nodes that run pods are filled first, so that the others can be removed.
    """
    free.sort(
        key=lambda existing: (
            existing.in_flight,
            not any(map(runs_something, existing.hosted)),
            existing.name,
        )
    )
    placed = planner.assign(pods, free, PreferenceMode.RULE).placed
    return {key: name for name, keys in placed.items() for key in keys}


def runs_something(shape: Shape) -> bool:
    """Return whether pods of a shape keep their node: all that run, except DaemonSet and static pods."""
    return shape.moves and not shape.is_room


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
        if claim.phase in _YOUNG and not _serves(existing, pod.shape)
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
    asked = resolutions(inputs.snapshot, inputs.now)
    pods = [pod for each in asked for pod in each.pods()]
    if not pods:
        return {}
    snapshot = _with_sources_open(foreseen(inputs), inputs.ledger)
    there = reserved(snapshot, needs(snapshot, inputs).wanted, inputs)
    planner = _planner(inputs, snapshot, [*there.fresh, *pods], there.free, Rest())
    planner.assign(there.fresh, there.free, PreferenceMode.RULE)
    placed = _placed(pods, there.free, planner)
    _within_dollars(asked, placed, there.free, snapshot, inputs.ledger)
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
