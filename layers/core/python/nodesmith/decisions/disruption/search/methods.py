"""The methods of disruption: emptiness, replacement of drifted nodes, rebalancing, and consolidation.

The first three look at single nodes, and each node gets a move of its own. If a drifted node cannot be replaced,
because a pod would have no node or the NodePool may not buy, the other nodes are not affected. Rebalancing moves nodes
whose pods are in excess in their zone, if their NodePool enables it: a pod changes its zone only with its node, since
nodesmith does not move single pods.

Consolidation finds sets of nodes whose pods fit on less. Any number of nodes may become any other number. Sets are
formed within a NodePool, because pods mostly stay in one, and then from all nodes left. The nodes examined longest ago
come first; among those, the nodes with the largest worth if all their waste were saved. A set is tried as a whole
first, because packing depends on the whole. Then come, if steps suffice, the set without the nodes that would only be
bought again; the nodes of it whose pods fit into free capacity; its first half; and so on. A set is not tried if the
bound on its worth shows that it cannot succeed.

Waste is what nodes cost beyond the worth of their pods, at prices per unit of each resource at which no node that can
be bought holds more than its price is worth (see packing's `resource_prices`). New nodes for some pods cost at least
the pods' worth. A set of nodes therefore saves at most its waste plus the worth of the free capacity of all other
nodes.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from math import fsum

from nodesmith.decisions.disruption.candidates import Candidate, quiet_since
from nodesmith.decisions.disruption.proposals import Blocker, Proposal
from nodesmith.decisions.disruption.search.judgement import proposal
from nodesmith.decisions.disruption.search.searchpass import Pass
from nodesmith.decisions.disruption.simulation.simulation import Trial
from nodesmith.decisions.disruption.worth import is_enough
from nodesmith.decisions.packing import resource_prices
from nodesmith.decisions.provisioning.nodepools.static import left_of, planned
from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.decisions.provisioning.purchase.packingproblem import packing_problem
from nodesmith.decisions.scheduling.demands import Demand, by_shape
from nodesmith.decisions.scheduling.existing import ExistingNode
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_TYPE
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.karpenter.nodepools import NODES, NodePool
from nodesmith.model.ledger.moves import Reason

_NEVER = datetime.min.replace(tzinfo=UTC)
QUIET_BEFORE_REBALANCING = timedelta(hours=1)
"""How long a node must have had no pod events before it is disrupted for the sake of zones."""


def remove_empty(empty: Iterable[Candidate], under_way: Pass) -> None:
    """Propose to remove as many empty nodes as budgets allow, the most expensive first."""
    order = sorted(empty, key=lambda one: (-one.price_hourly_usd, one.name))
    for one in under_way.allowed.within(order, Reason.EMPTY):
        under_way.accept([one], under_way.emptied([one]), None)
    under_way.note_budget(order, Reason.EMPTY)


def renew(candidates: Iterable[Candidate], looked_at: Mapping[str, datetime], under_way: Pass) -> None:
    """Propose to replace drifted nodes as far as budgets allow, leaving half of the steps for consolidation.

    Nodes without pods come first, then those whose drift is oldest. Nodes of a static NodePool are replaced one by one,
    whatever runs on them: it keeps as many as its replicas.
    """
    reserve = under_way.left // 2
    order = sorted(
        (one for one in candidates if one.name in under_way.drift and under_way.is_free(one)),
        key=lambda one: (
            bool(one.pods),
            looked_at.get(one.name, _NEVER),
            one.claim.drifted_at or under_way.inputs.now,
            one.name,
        ),
    )
    static: dict[str, list[Candidate]] = defaultdict(list)
    for one in order:
        if under_way.left <= reserve:
            break
        if not under_way.is_free(one) or not under_way.allowed.within([one], Reason.DRIFTED):
            continue
        waits = under_way.backing_off(one, Reason.DRIFTED)
        if waits is not None:
            under_way.blocked[one.name] = waits
            continue
        if one.pool.is_static:
            if not under_way.is_expecting_pods(one):
                static[one.pool.name].append(one)
            continue
        under_way.seen.append(one.name)
        found, trial = renewed(one, under_way)
        if isinstance(found, Proposal):
            under_way.accept([one], found, trial)
        else:
            under_way.blocked[one.name] = _unplaced(one, found)
    for mine in static.values():
        _renew_static(mine, under_way)
    under_way.note_budget(order, Reason.DRIFTED)


def renewed(one: Candidate, under_way: Pass) -> tuple[Proposal | str, Trial]:
    """Return the move that replaces a drifted node, or the reason why there is none, and the trial."""
    trial = under_way.try_without([one])
    if trial.displaced:
        why = f"it has drifted ({under_way.drift[one.name]}), and pod {trial.displaced[0]} would have no node"
        return f"{why}: {trial.split}" if trial.split else why, trial
    return _drifted(one, trial, trial.nodes, under_way), trial


def static_renewals(mine: Sequence[Candidate], under_way: Pass) -> list[Proposal] | str:
    """Return the moves that replace nodes of a static NodePool one by one, as its limits allow, or why there are none.

    If the NodePool has more nodes than replicas, there are none, since it is unknown which of them will be removed.
    """
    pool, inputs = mine[0].pool, under_way.inputs
    there = [c for c in inputs.ledger.claims if c.nodepool == pool.name and c.phase is not Phase.GIVEN_UP]
    moving = inputs.ledger.replacements
    serving = sum(not claim.is_ending and claim.name not in moving for claim in there)
    if serving > (pool.replicas or 0):
        return f"NodePool {pool.name} has {serving} nodes, but replicas is {pool.replicas}: surplus nodes go first"
    number = min(len(mine), _headroom(pool, len(there)))
    if number <= 0:
        return f"the limits of NodePool {pool.name} allow no additional node"
    going = {one.name for one in mine[:number]}
    staying = [claim for claim in there if claim.name not in going]
    try:
        nodes = list(planned(pool, number, staying, inputs, left_of(inputs)))
    except Rejected as error:
        return str(error)
    return [_drifted(one, None, [node], under_way) for one, node in zip(mine, nodes, strict=False)]


def _renew_static(mine: Sequence[Candidate], under_way: Pass) -> None:
    chosen = under_way.allowed.within(mine, Reason.DRIFTED)
    found = static_renewals(chosen, under_way) if chosen else []
    if isinstance(found, str):
        under_way.blocked.update({one.name: _unplaced(one, found) for one in chosen})
        return
    for one, move in zip(chosen, found, strict=False):
        under_way.accept([one], move, None)


def _headroom(pool: NodePool, nodes: int) -> int:
    return pool.limits[NODES] - nodes if NODES in pool.limits else nodes


def _drifted(one: Candidate, trial: Trial | None, nodes: Sequence[PlannedNode], under_way: Pass) -> Proposal:
    bought = fsum(node.price_hourly_usd + node.surcharge_hourly_usd for node in nodes)
    saving = one.price_hourly_usd - bought
    return proposal(Reason.DRIFTED, [one], trial, nodes, saving, 0.0, under_way.drift[one.name])


def _unplaced(one: Candidate, why: str) -> Blocker:
    return Blocker("Unreplaceable", f"NodeClaim/{one.name}", why)


def rebalance(candidates: Iterable[Candidate], looked_at: Mapping[str, datetime], under_way: Pass) -> None:
    """Propose to move unbalanced nodes as far as budgets allow, leaving half of the steps for consolidation.

    The nodes with the most excess pods come first. Of a workload, one node moves at a time, since the arrival of its
    pods determines what is left to do. Such moves may cost money, so the pods must have been quiet for an hour:
    workloads that come and go balance themselves.
    """
    zones = under_way.zones
    if zones is None:
        return
    reserve = under_way.left // 2
    surplus = {one: zones.surplus(one) for one in candidates if is_asked(one, under_way)}
    order = sorted(
        (one for one in surplus if surplus[one]),
        key=lambda one: (looked_at.get(one.name, _NEVER), -surplus[one], one.name),
    )
    for one in order:
        if under_way.left <= reserve:
            break
        if not zones.surplus(one) or not under_way.allowed.within([one], Reason.UNBALANCED):
            continue
        found, trial = rebalanced(one, under_way)
        if isinstance(found, Proposal):
            under_way.accept([one], found, trial)
    under_way.note_budget(order, Reason.UNBALANCED)


def rebalanced(one: Candidate, under_way: Pass) -> tuple[Proposal | str, Trial]:
    """Return the move that spreads a node's pods over zones, or the reason why there is none, and the trial."""
    trial = under_way.try_without([one])
    return under_way.judge.rebalancing([one], trial), trial


def is_asked(one: Candidate, under_way: Pass) -> bool:
    """Return whether a node may be disrupted for the sake of zones now."""
    if not one.pool.disruption.rebalances_zones or not under_way.is_free(one):
        return False
    is_quiet = under_way.inputs.now - quiet_since(one.claim, one.node) >= QUIET_BEFORE_REBALANCING
    return is_quiet and under_way.backing_off(one, Reason.UNBALANCED) is None


LARGEST = 24
"""the number of nodes that one move removes at most: their replacements are written in one transaction"""
_MOST_TRIALS = 5
"""of one set and its parts"""
_NOTHING_CHEAPER = "nothing cheaper was found for its pods"


@dataclass(slots=True)
class _Batch:
    """A batch of candidates that are examined together: those still `waiting`, in order, and the dual prices."""

    waiting: list[Candidate]
    prices: Prices
    free_usd: float
    """worth of the free capacity in the cluster, USD an hour"""


def consolidate(candidates: Sequence[Candidate], looked_at: Mapping[str, datetime], under_way: Pass) -> None:
    """Search for sets of nodes whose pods fit on less while steps are left, one set from each NodePool in turn."""
    ordered = sorted(candidates, key=lambda one: (one.pool.name, one.name))
    groups = [list(mine) for _, mine in groupby(ordered, key=lambda one: one.pool.name)]
    groups.sort(key=lambda group: min(looked_at.get(one.name, _NEVER) for one in group))
    batches = [_batch(group, looked_at, under_way) for group in groups]
    while batches and under_way.left > 0:
        for batch in batches:
            if under_way.left > 0:
                _look_at_next(batch, under_way)
        batches = [batch for batch in batches if batch.waiting]
    left = [one for one in candidates if under_way.is_free(one)]
    if len(groups) > 1 and len(left) <= LARGEST and under_way.left > 0:
        _look_at_next(_batch(left, looked_at, under_way), under_way)


def _batch(candidates: Sequence[Candidate], looked_at: Mapping[str, datetime], under_way: Pass) -> _Batch:
    known = prices(candidates, under_way.fleet.tiers)

    def rank(one: Candidate) -> tuple[datetime, float, str]:
        promise = under_way.judge.worth([one], one.price_hourly_usd - known.waste(one))
        return looked_at.get(one.name, _NEVER), -promise, one.name

    shapes = {pod.shape for one in candidates for pod in one.pods}
    return _Batch(sorted(candidates, key=rank), known, known.free(under_way.fleet.open_to(shapes)))


def _look_at_next(batch: _Batch, under_way: Pass) -> None:
    """Examine the next set of a batch. If budgets allow none of its nodes, note that for all of them."""
    waiting: list[Candidate] = []
    for one in batch.waiting:
        if under_way.is_free(one):
            waiting.append(one)
        else:
            under_way.note_destination(one)
    batch.waiting = waiting
    window = under_way.allowed.within(batch.waiting, Reason.UNDERUTILIZED, LARGEST)
    if not window:
        for name, blocker in under_way.allowed.kept(batch.waiting, Reason.UNDERUTILIZED).items():
            under_way.blocked.setdefault(name, blocker)
    under_way.seen += [one.name for one in window or batch.waiting]
    done = {one.name for one in _best_of(window, batch, under_way) or window or batch.waiting}
    batch.waiting = [one for one in batch.waiting if one.name not in done]


def _best_of(window: Sequence[Candidate], batch: _Batch, under_way: Pass) -> Sequence[Candidate]:
    """Accept the best move of a set or a part of it, and return its sources; empty if none is worth it."""
    best: tuple[Proposal, Sequence[Candidate], Trial] | None = None
    parts = deque((part, 0.0) for part in _halves(window))
    tried: set[tuple[str, ...]] = set()
    free_usd, whys = batch.free_usd, dict.fromkeys((one.name for one in window), _NOTHING_CHEAPER)
    while parts and len(tried) < _MOST_TRIALS and under_way.left > 0:
        sources, beside_usd = parts.popleft()
        names, least = tuple(one.name for one in sources), best[0].worth_usd if best else 0.0
        if names in tried or _most_worth(sources, batch.prices, free_usd + beside_usd, under_way) <= least:
            continue
        tried.add(names)
        trial = under_way.try_without(sources)
        found = under_way.judge.consolidation(sources, trial)
        if isinstance(found, Proposal) and found.worth_usd > least:
            best = found, sources, trial
            free_usd = min(free_usd, _used_usd(sources, trial, batch.prices))  # a part will hardly use more
        elif isinstance(found, str):
            whys.update(_reasons_to_stay(sources, trial, found))
        parts.extendleft((part, 0.0) for part in _fitting(sources, trial))
        if isinstance(found, Proposal) and under_way.has_time:
            parts.extendleft(_not_bought_again(sources, trial, batch.prices, under_way))
    if best is None:
        if under_way.left > 0:
            under_way.needed.update(whys)
        return ()
    under_way.accept(best[1], best[0], best[2])
    return best[1]


def _reasons_to_stay(sources: Sequence[Candidate], trial: Trial, found: str) -> Iterator[tuple[str, str]]:
    """Yield for nodes that were tried together why each of them stays, if the reason concerns that node."""
    displaced = frozenset(trial.displaced)
    for one in sources:
        pod = next((pod.key for pod in one.pods if pod.key in displaced), None)
        if len(sources) == 1 or not displaced:
            yield one.name, found
        elif pod is not None:
            yield one.name, f"pod {pod} would have no node"


def _halves(window: Sequence[Candidate]) -> Iterator[Sequence[Candidate]]:
    size = len(window)
    while size:
        yield window[:size]
        size //= 2


def _fitting(sources: Sequence[Candidate], trial: Trial) -> Iterator[Sequence[Candidate]]:
    """Yield the nodes whose pods all fit into free capacity, if some but not all do."""
    bought = {node.claim.name for node in trial.nodes}
    found = [
        one
        for one in sources
        if all(trial.destinations.get(pod.key, "") not in bought | {""} for pod in one.pods)
    ]
    if found and len(found) < len(sources):
        yield found


def _not_bought_again(
    sources: Sequence[Candidate], trial: Trial, known: Prices, under_way: Pass
) -> Iterator[tuple[Sequence[Candidate], float]]:
    """Yield the nodes except those like the nodes that would be bought for them, with the worth of free capacity.

    That is the free capacity of the nodes left out: among equal nodes, those with the highest eviction cost.
    """
    bought = Counter(_make(node) for node in trial.nodes)
    staying: list[Candidate] = []
    for one in sorted(sources, key=lambda one: (-one.eviction_cost, one.name)):
        make = one.node.labels.get(INSTANCE_TYPE, ""), one.node.labels.get(CAPACITY_TYPE, "")
        if bought[make]:
            bought[make] -= 1
            staying.append(one)
    names = {one.name for one in staying}
    if 0 < len(names) < len(sources):
        existing_nodes = under_way.fleet.existing_nodes_of(one.node.name for one in staying)
        yield [one for one in sources if one.name not in names], known.free(existing_nodes)


def _make(node: PlannedNode) -> tuple[str, str]:
    """Return the instance type and capacity type that a node will most likely have."""
    return node.request.cheapest.instance_type, node.request.capacity_type


def _most_worth(sources: Sequence[Candidate], known: Prices, free_usd: float, under_way: Pass) -> float:
    """Return an upper bound on the worth of a move: it saves at most its sources' waste plus all free capacity."""
    price = fsum(source.price_hourly_usd for source in sources)
    saving = min(price, fsum(map(known.waste, sources)) + free_usd)
    return under_way.judge.worth(sources, price - saving) if is_enough(sources, saving) else 0.0


def _used_usd(sources: Sequence[Candidate], trial: Trial, known: Prices) -> float:
    """Return the worth of the free capacity that the pods of these nodes have taken."""
    bought = {node.claim.name for node in trial.nodes}
    pods = (pod for source in sources for pod in source.pods)
    return fsum(known.worth(p.shape.requests) for p in pods if trial.destinations[p.key] not in bought)


@dataclass(frozen=True, slots=True)
class Prices:
    """The dual price of a unit of each resource, in USD an hour."""

    units: Mapping[str, float]

    def worth(self, resources: Resources) -> float:
        """Return the worth of these amounts; negative amounts count as 0."""
        return fsum(price * max(0, resources.of(name)) for name, price in self.units.items())

    def waste(self, one: Candidate) -> float:
        """Return what a node costs beyond the worth of its pods, in USD an hour; negative if it costs less."""
        return one.price_hourly_usd - fsum(self.worth(pod.shape.requests) for pod in one.pods)

    def free(self, existing_nodes: Iterable[ExistingNode]) -> float:
        """Return the worth of the free capacity of these nodes."""
        return fsum(self.worth(existing.free) for existing in existing_nodes)


def prices(candidates: Sequence[Candidate], tiers: Iterable[Sequence[Template]]) -> Prices:
    """Return the dual prices for the pods of these nodes, given what may be bought for them."""
    pods = [pod for one in candidates for pod in one.pods]
    demands = [Demand(shape, tuple(alike)) for shape, alike in by_shape(pods)]
    offered = packing_problem([template for tier in tiers for template in tier], demands)
    if not offered.bins:
        return Prices({})
    found = resource_prices(offered.items, offered.bins)
    return Prices({name: price for name, price in zip(offered.dimensions, found, strict=True) if price > 0})
