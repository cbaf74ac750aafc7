"""Consolidation: find sets of nodes whose pods fit on fewer or cheaper nodes. Any number may become any other number.

Sets are formed within a NodePool, because pods mostly stay in one, and then from all remaining nodes. The nodes
examined longest ago come first; among those, the nodes with the largest worth if all their waste were saved. A set is
first tried as a whole, because packing depends on the whole. If steps suffice, these parts follow: the set without the
nodes that would only be bought again; its nodes whose pods fit into free capacity; its first half; and so on. If none
of these is a move, each node of the set is tried alone, since one node that must stay thwarts every set with it. A set
is not tried if the bound on its worth shows that it cannot succeed.

The waste of a node is its price minus the worth of its pods. Pods are valued at prices per unit of each resource at
which the capacity of no node on offer is worth more than the node's price (see packing's `resource_prices`). New nodes
for some pods cost at least the pods' worth. A set of nodes therefore saves at most its waste plus the worth of the free
capacity of all other nodes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from math import fsum

from nodesmith.decisions.disruption.candidates import Candidate
from nodesmith.decisions.disruption.proposals import Proposal
from nodesmith.decisions.disruption.search.judgement import why_not_worth
from nodesmith.decisions.disruption.search.searchpass import Pass
from nodesmith.decisions.disruption.simulation.simulation import Trial
from nodesmith.decisions.disruption.worth import is_enough
from nodesmith.decisions.packing import resource_prices
from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.decisions.provisioning.purchase.packingproblem import packing_problem
from nodesmith.decisions.scheduling.demands import Demand, by_shape
from nodesmith.decisions.scheduling.existing import ExistingNode
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_TYPE
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.ledger.moves import Reason

_NEVER = datetime.min.replace(tzinfo=UTC)
LARGEST = 24
"""the largest number of nodes that one move removes: their replacements are written in one transaction"""
_MOST_TRIALS = 5
"""the largest number of trials of one set and its parts, before its nodes are tried alone"""
_NOTHING_CHEAPER = "nothing cheaper was found for its pods"


@dataclass(slots=True)
class _Batch:
    """A batch of candidates that are examined together: those still `waiting`, in order, and the dual prices."""

    waiting: list[Candidate]
    prices: Prices
    free_usd: float
    """worth of the free capacity in the cluster, USD an hour"""
    alone: bool = True
    """whether nodes are tried alone, if that has not happened before"""


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
        last = _batch(remaining, looked_at, under_way)
        last.alone = False
        _look_at_next(last, under_way)


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
    tried: set[tuple[str, ...]] = set()
    sources = _best_of(window, batch, under_way, tried)
    if not sources and batch.alone:
        _try_alone(window, batch, under_way, tried)
    examined = {candidate.name for candidate in sources or window or batch.waiting}
    batch.waiting = [candidate for candidate in batch.waiting if candidate.name not in examined]


def _try_alone(
    window: Sequence[Candidate], batch: _Batch, under_way: Pass, tried: set[tuple[str, ...]]
) -> None:
    """Accept the moves of single nodes of a set that as a whole, and in the parts already `tried`, is no move."""
    for candidate in window:
        if not under_way.is_free(candidate):
            under_way.note_destination(candidate)
        elif under_way.steps_left > 0:
            _best_of(under_way.allowed.within([candidate], Reason.UNDERUTILIZED), batch, under_way, tried)


def _best_of(
    window: Sequence[Candidate], batch: _Batch, under_way: Pass, tried: set[tuple[str, ...]]
) -> Sequence[Candidate]:
    """Accept the best move of a set or a part of it, and return its sources; empty if none is worth it.

    What is `tried` is not tried again.
    """
    best: tuple[Proposal, Sequence[Candidate], Trial] | None = None
    parts = deque((part, 0.0) for part in _halves(window))
    most = len(tried) + _MOST_TRIALS
    free_usd, reasons = batch.free_usd, dict.fromkeys((c.name for c in window), _NOTHING_CHEAPER)
    while parts and len(tried) < most and under_way.steps_left > 0:
        sources, beside_usd = parts.popleft()
        names, least = tuple(candidate.name for candidate in sources), best[0].worth_usd if best else 0.0
        if names in tried:
            continue
        most_saved = _most_saved(sources, batch.prices, free_usd + beside_usd)
        if _most_worth(sources, most_saved, under_way) <= least:
            if len(sources) == 1 and is_enough(sources, most_saved):
                reasons[names[0]] = why_not_worth(sources, most_saved, "at most ")
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
            found_before = {n: why for n, why in under_way.needed.items() if why != _NOTHING_CHEAPER}
            found_alone = {
                n: why for n, why in reasons.items() if len(window) == 1 and why != _NOTHING_CHEAPER
            }
            under_way.needed |= {**reasons, **found_before, **found_alone}
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


def _most_saved(sources: Sequence[Candidate], unit_prices: Prices, free_usd: float) -> float:
    """Return the most that a move may save, in USD an hour: its sources' waste plus all free capacity."""
    price = fsum(source.price_hourly_usd for source in sources)
    return min(price, fsum(map(unit_prices.waste, sources)) + free_usd)


def _most_worth(sources: Sequence[Candidate], most_saved_usd: float, under_way: Pass) -> float:
    """Return an upper bound on the worth of a move; 0 if even the most that it may save is too little."""
    price = fsum(source.price_hourly_usd for source in sources)
    is_possible = is_enough(sources, most_saved_usd)
    return under_way.judge.worth(sources, price - most_saved_usd) if is_possible else 0.0


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
