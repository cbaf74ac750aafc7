"""The methods of disruption: emptiness, replacement of drifted nodes, rebalancing, and consolidation.

The first three examine single nodes, and each node gets a separate move. If a drifted node cannot be replaced, because
a pod would have no node or the NodePool may not buy, the other nodes are not affected. Rebalancing moves nodes with
pods in excess in their zone, if their NodePool enables it: a pod changes its zone only with its node, since nodesmith
does not move single pods.

Consolidation finds sets of nodes whose pods fit on fewer or cheaper nodes: any number may become any other number. Sets
are formed within a NodePool, because pods mostly stay in one, and then from all remaining nodes. The nodes examined
longest ago come first; among those, the nodes with the largest worth if all their waste were saved. A set is first
tried as a whole, because packing depends on the whole. If steps suffice, these parts follow: the set without the nodes
that would only be bought again; its nodes whose pods fit into free capacity; its first half; and so on. A set is not
tried if the bound on its worth shows that it cannot succeed.

The waste of a node is its price minus the worth of its pods. Pods are valued at prices per unit of each resource at
which the capacity of no node on offer is worth more than the node's price (see packing's `resource_prices`). New nodes
for some pods cost at least the pods' worth. A set of nodes therefore saves at most its waste plus the worth of the free
capacity of all other nodes.
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
    order = sorted(empty, key=lambda candidate: (-candidate.price_hourly_usd, candidate.name))
    for candidate in under_way.allowed.within(order, Reason.EMPTY):
        under_way.accept([candidate], under_way.removal_of_empty([candidate]), None)
    under_way.note_budget(order, Reason.EMPTY)


def renew(candidates: Iterable[Candidate], looked_at: Mapping[str, datetime], under_way: Pass) -> None:
    """Propose to replace drifted nodes as far as budgets allow, leaving half of the steps for consolidation.

    Nodes without pods come first, then nodes with the oldest drift. Nodes of a static NodePool are replaced one by one,
    whatever runs on them, so that it keeps as many nodes as its replicas.
    """
    reserve = under_way.steps_left // 2
    order = sorted(
        (c for c in candidates if c.name in under_way.drift and under_way.is_free(c)),
        key=lambda c: (
            bool(c.pods),
            looked_at.get(c.name, _NEVER),
            c.claim.drifted_at or under_way.inputs.now,
            c.name,
        ),
    )
    static: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in order:
        if under_way.steps_left <= reserve:
            break
        if not under_way.is_free(candidate) or not under_way.allowed.within([candidate], Reason.DRIFTED):
            continue
        waits = under_way.backing_off(candidate, Reason.DRIFTED)
        if waits is not None:
            under_way.blocked[candidate.name] = waits
            continue
        if candidate.pool.is_static:
            if not under_way.is_expecting_pods(candidate):
                static[candidate.pool.name].append(candidate)
            continue
        under_way.examined.append(candidate.name)
        result, trial = renewed(candidate, under_way)
        if isinstance(result, Proposal):
            under_way.accept([candidate], result, trial)
        else:
            under_way.blocked[candidate.name] = _unplaced(candidate, result)
    for drifted in static.values():
        _renew_static(drifted, under_way)
    under_way.note_budget(order, Reason.DRIFTED)


def renewed(candidate: Candidate, under_way: Pass) -> tuple[Proposal | str, Trial]:
    """Return the move that replaces a drifted node, or the reason why there is none, and the trial."""
    trial = under_way.try_without([candidate])
    if trial.displaced:
        return f"it has drifted ({under_way.drift[candidate.name]}), and {trial.refusal}", trial
    return _drifted(candidate, trial, trial.nodes, under_way), trial


def static_renewals(sources: Sequence[Candidate], under_way: Pass) -> list[Proposal] | str:
    """Return the moves that replace nodes of a static NodePool one by one, as its limits allow, or why there are none.

    If the NodePool has more nodes than replicas, there is no move, since it is unknown which nodes will be removed.
    """
    pool, inputs = sources[0].pool, under_way.inputs
    claims = [c for c in inputs.ledger.claims if c.nodepool == pool.name and c.phase is not Phase.GIVEN_UP]
    moving = inputs.ledger.replacements
    serving = sum(not claim.is_ending and claim.name not in moving for claim in claims)
    if serving > (pool.replicas or 0):
        return f"NodePool {pool.name} has {serving} nodes, but replicas is {pool.replicas}: surplus nodes go first"
    number = min(len(sources), _headroom(pool, len(claims)))
    if number <= 0:
        return f"the limits of NodePool {pool.name} allow no additional node"
    going = {candidate.name for candidate in sources[:number]}
    staying = [claim for claim in claims if claim.name not in going]
    try:
        nodes = list(planned(pool, number, staying, inputs, left_of(inputs)))
    except Rejected as error:
        return str(error)
    return [_drifted(source, None, [node], under_way) for source, node in zip(sources, nodes, strict=False)]


def _renew_static(candidates: Sequence[Candidate], under_way: Pass) -> None:
    chosen = under_way.allowed.within(candidates, Reason.DRIFTED)
    proposals = static_renewals(chosen, under_way) if chosen else []
    if isinstance(proposals, str):
        under_way.blocked.update({candidate.name: _unplaced(candidate, proposals) for candidate in chosen})
        return
    for candidate, move in zip(chosen, proposals, strict=False):
        under_way.accept([candidate], move, None)


def _headroom(pool: NodePool, nodes: int) -> int:
    return pool.limits[NODES] - nodes if NODES in pool.limits else nodes


def _drifted(
    source: Candidate, trial: Trial | None, nodes: Sequence[PlannedNode], under_way: Pass
) -> Proposal:
    replacement_price = fsum(node.price_hourly_usd + node.surcharge_hourly_usd for node in nodes)
    saving = source.price_hourly_usd - replacement_price
    return proposal(Reason.DRIFTED, [source], trial, nodes, saving, 0.0, str(under_way.drift[source.name]))


def _unplaced(candidate: Candidate, message: str) -> Blocker:
    return Blocker("Unreplaceable", f"NodeClaim/{candidate.name}", message)


def rebalance(candidates: Iterable[Candidate], looked_at: Mapping[str, datetime], under_way: Pass) -> None:
    """Propose to move unbalanced nodes as far as budgets allow, leaving half of the steps for consolidation.

    The nodes with the most excess pods come first. For each workload, one node moves at a time, since the new zones of
    its pods determine which moves are still needed. Such moves may cost money, so the pods must have been quiet for an
    hour: workloads that come and go balance themselves.
    """
    zones = under_way.zones
    if zones is None:
        return
    reserve = under_way.steps_left // 2
    surplus = {c: zones.surplus(c) for c in candidates if may_rebalance(c, under_way)}
    order = sorted(
        (candidate for candidate in surplus if surplus[candidate]),
        key=lambda c: (looked_at.get(c.name, _NEVER), -surplus[c], c.name),
    )
    for candidate in order:
        if under_way.steps_left <= reserve:
            break
        if not zones.surplus(candidate) or not under_way.allowed.within([candidate], Reason.UNBALANCED):
            continue
        result, trial = rebalanced(candidate, under_way)
        if isinstance(result, Proposal):
            under_way.accept([candidate], result, trial)
    under_way.note_budget(order, Reason.UNBALANCED)


def rebalanced(candidate: Candidate, under_way: Pass) -> tuple[Proposal | str, Trial]:
    """Return the move that spreads a node's pods over zones, or the reason why there is none, and the trial."""
    trial = under_way.try_without([candidate])
    return under_way.judge.rebalancing([candidate], trial), trial


def may_rebalance(candidate: Candidate, under_way: Pass) -> bool:
    """Return whether a node may be disrupted for the sake of zones now."""
    if not candidate.pool.disruption.rebalances_zones or not under_way.is_free(candidate):
        return False
    is_quiet = under_way.inputs.now - quiet_since(candidate.claim, candidate.node) >= QUIET_BEFORE_REBALANCING
    return is_quiet and under_way.backing_off(candidate, Reason.UNBALANCED) is None


LARGEST = 24
"""the largest number of nodes that one move removes: their replacements are written in one transaction"""
_MOST_TRIALS = 5
"""the largest number of trials of one set and its parts"""
_NOTHING_CHEAPER = "nothing cheaper was found for its pods"


@dataclass(slots=True)
class _Batch:
    """A batch of candidates that are examined together: those still `waiting`, in order, and the dual prices."""

    waiting: list[Candidate]
    prices: Prices
    free_usd: float
    """worth of the free capacity in the cluster, USD an hour"""


def consolidate(candidates: Sequence[Candidate], looked_at: Mapping[str, datetime], under_way: Pass) -> None:
    """Search, while steps last, for sets of nodes with a cheaper replacement, one set from each NodePool in turn."""
    ordered = sorted(candidates, key=lambda candidate: (candidate.pool.name, candidate.name))
    groups = [list(members) for _, members in groupby(ordered, key=lambda candidate: candidate.pool.name)]
    groups.sort(key=lambda group: min(looked_at.get(candidate.name, _NEVER) for candidate in group))
    batches = [_batch(group, looked_at, under_way) for group in groups]
    while batches and under_way.steps_left > 0:
        for batch in batches:
            if under_way.steps_left > 0:
                _look_at_next(batch, under_way)
        batches = [batch for batch in batches if batch.waiting]
    remaining = [candidate for candidate in candidates if under_way.is_free(candidate)]
    if len(groups) > 1 and len(remaining) <= LARGEST and under_way.steps_left > 0:
        _look_at_next(_batch(remaining, looked_at, under_way), under_way)


def _batch(candidates: Sequence[Candidate], looked_at: Mapping[str, datetime], under_way: Pass) -> _Batch:
    unit_prices = prices(candidates, under_way.fleet.tiers)

    def rank(candidate: Candidate) -> tuple[datetime, float, str]:
        useful_usd = candidate.price_hourly_usd - unit_prices.waste(candidate)
        promise = under_way.judge.worth([candidate], useful_usd)
        return looked_at.get(candidate.name, _NEVER), -promise, candidate.name

    shapes = {pod.shape for candidate in candidates for pod in candidate.pods}
    free_usd = unit_prices.free(under_way.fleet.open_to(shapes))
    return _Batch(sorted(candidates, key=rank), unit_prices, free_usd)


def _look_at_next(batch: _Batch, under_way: Pass) -> None:
    """Examine the next set of a batch. If budgets allow none of the batch's nodes, note that for each of them."""
    waiting: list[Candidate] = []
    for candidate in batch.waiting:
        if under_way.is_free(candidate):
            waiting.append(candidate)
        else:
            under_way.note_destination(candidate)
    batch.waiting = waiting
    window = under_way.allowed.within(batch.waiting, Reason.UNDERUTILIZED, LARGEST)
    if not window:
        for name, blocker in under_way.allowed.budget_blockers(batch.waiting, Reason.UNDERUTILIZED).items():
            under_way.blocked.setdefault(name, blocker)
    under_way.examined += [candidate.name for candidate in window or batch.waiting]
    examined = {candidate.name for candidate in _best_of(window, batch, under_way) or window or batch.waiting}
    batch.waiting = [candidate for candidate in batch.waiting if candidate.name not in examined]


def _best_of(window: Sequence[Candidate], batch: _Batch, under_way: Pass) -> Sequence[Candidate]:
    """Accept the best move of a set or a part of it, and return its sources; empty if none is worth it."""
    best: tuple[Proposal, Sequence[Candidate], Trial] | None = None
    parts = deque((part, 0.0) for part in _halves(window))
    tried: set[tuple[str, ...]] = set()
    free_usd, reasons = batch.free_usd, dict.fromkeys((c.name for c in window), _NOTHING_CHEAPER)
    while parts and len(tried) < _MOST_TRIALS and under_way.steps_left > 0:
        sources, beside_usd = parts.popleft()
        names, least = tuple(candidate.name for candidate in sources), best[0].worth_usd if best else 0.0
        if names in tried or _most_worth(sources, batch.prices, free_usd + beside_usd, under_way) <= least:
            continue
        tried.add(names)
        trial = under_way.try_without(sources)
        result = under_way.judge.consolidation(sources, trial)
        if isinstance(result, Proposal) and result.worth_usd > least:
            best = result, sources, trial
            # A part of a set hardly uses more free capacity than the set.
            free_usd = min(free_usd, _used_usd(sources, trial, batch.prices))
        elif isinstance(result, str):
            reasons.update(_reasons_to_stay(sources, trial, result))
        parts.extendleft((part, 0.0) for part in _fitting(sources, trial))
        if isinstance(result, Proposal) and under_way.has_time:
            parts.extendleft(_not_bought_again(sources, trial, batch.prices, under_way))
    if best is None:
        if under_way.steps_left > 0:
            found_alone = {n: why for n, why in under_way.needed.items() if why != _NOTHING_CHEAPER}
            under_way.needed |= {**reasons, **found_alone}
        return ()
    under_way.accept(best[1], best[0], best[2])
    return best[1]


def _reasons_to_stay(sources: Sequence[Candidate], trial: Trial, message: str) -> Iterator[tuple[str, str]]:
    """Yield the nodes that were tried together, each with the reason why it stays, if that concerns the node."""
    displaced, others = frozenset(trial.displaced), len(sources) - 1
    for candidate in sources:
        pod = next((pod.key for pod in candidate.pods if pod.key in displaced), None)
        company = f"with {others} other node{'' if others == 1 else 's'}: " if others else ""
        if not (others and displaced):
            yield candidate.name, f"{company}{message}"
        elif pod is not None:
            yield candidate.name, f"{company}{trial.refusal_of(pod)}"


def _halves(window: Sequence[Candidate]) -> Iterator[Sequence[Candidate]]:
    size = len(window)
    while size:
        yield window[:size]
        size //= 2


def _fitting(sources: Sequence[Candidate], trial: Trial) -> Iterator[Sequence[Candidate]]:
    """Yield the nodes whose pods all fit into free capacity, if that applies to some of the nodes but not to all."""
    new_names = {node.claim.name for node in trial.nodes}
    fitting = [
        candidate
        for candidate in sources
        if all(trial.destinations.get(pod.key, "") not in new_names | {""} for pod in candidate.pods)
    ]
    if fitting and len(fitting) < len(sources):
        yield fitting


def _not_bought_again(
    sources: Sequence[Candidate], trial: Trial, unit_prices: Prices, under_way: Pass
) -> Iterator[tuple[Sequence[Candidate], float]]:
    """Yield the nodes without those that equal the nodes to buy, with the worth of the free capacity of those left out.

    Among equal nodes, those with the highest eviction cost are left out.
    """
    purchases = Counter(_make(node) for node in trial.nodes)
    staying: list[Candidate] = []
    for source in sorted(sources, key=lambda c: (-c.eviction_cost, c.name)):
        make = source.node.labels.get(INSTANCE_TYPE, ""), source.node.labels.get(CAPACITY_TYPE, "")
        if purchases[make]:
            purchases[make] -= 1
            staying.append(source)
    names = {source.name for source in staying}
    if 0 < len(names) < len(sources):
        existing_nodes = under_way.fleet.existing_nodes_of(source.node.name for source in staying)
        yield [source for source in sources if source.name not in names], unit_prices.free(existing_nodes)


def _make(node: PlannedNode) -> tuple[str, str]:
    """Return the instance type and capacity type that a node will most likely have."""
    return node.request.cheapest.instance_type, node.request.capacity_type


def _most_worth(sources: Sequence[Candidate], unit_prices: Prices, free_usd: float, under_way: Pass) -> float:
    """Return an upper bound on the worth of a move: it saves at most its sources' waste plus all free capacity."""
    price = fsum(source.price_hourly_usd for source in sources)
    saving = min(price, fsum(map(unit_prices.waste, sources)) + free_usd)
    return under_way.judge.worth(sources, price - saving) if is_enough(sources, saving) else 0.0


def _used_usd(sources: Sequence[Candidate], trial: Trial, unit_prices: Prices) -> float:
    """Return the worth of the free capacity that the pods of these nodes use in a trial."""
    new_names = {node.claim.name for node in trial.nodes}
    pods = (pod for source in sources for pod in source.pods)
    moved = (pod for pod in pods if trial.destinations[pod.key] not in new_names)
    return fsum(unit_prices.worth(pod.shape.requests) for pod in moved)


@dataclass(frozen=True, slots=True)
class Prices:
    """The dual price of a unit of each resource, in USD an hour."""

    units: Mapping[str, float]

    def worth(self, resources: Resources) -> float:
        """Return the worth of these amounts; negative amounts count as 0."""
        return fsum(price * max(0, resources.of(name)) for name, price in self.units.items())

    def waste(self, candidate: Candidate) -> float:
        """Return what a node costs beyond the worth of its pods, in USD an hour; negative if it costs less."""
        return candidate.price_hourly_usd - fsum(self.worth(pod.shape.requests) for pod in candidate.pods)

    def free(self, existing_nodes: Iterable[ExistingNode]) -> float:
        """Return the worth of the free capacity of these nodes."""
        return fsum(self.worth(existing.free) for existing in existing_nodes)


def prices(candidates: Sequence[Candidate], tiers: Iterable[Sequence[Template]]) -> Prices:
    """Return the dual prices for the pods of these nodes, given the nodes that may be bought for them."""
    pods = [pod for candidate in candidates for pod in candidate.pods]
    demands = [Demand(shape, tuple(alike)) for shape, alike in by_shape(pods)]
    offered = packing_problem([template for tier in tiers for template in tier], demands)
    if not offered.bins:
        return Prices({})
    duals = resource_prices(offered.items, offered.bins)
    return Prices({name: price for name, price in zip(offered.dimensions, duals, strict=True) if price > 0})
