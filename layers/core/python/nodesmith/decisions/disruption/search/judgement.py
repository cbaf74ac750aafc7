"""The judge of trials: it applies all rules to a trial's outcome and decides whether the trial becomes a move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import fsum

from nodesmith.decisions.disruption.candidates import Candidate
from nodesmith.decisions.disruption.proposals import Proposal
from nodesmith.decisions.disruption.simulation.simulation import Trial
from nodesmith.decisions.disruption.simulation.zones import Zones
from nodesmith.decisions.disruption.worth import (
    LEAST_SAVING,
    PoolTotals,
    cpus,
    cut,
    downsized,
    family,
    for_spot,
    is_enough,
    worst_price,
    worth_usd,
)
from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, SPOT
from nodesmith.model.karpenter.nodepools import Objective
from nodesmith.model.ledger.moves import Reason

MOST_BOUGHT = 48
"""the largest number of nodes that one move buys: they are written in one transaction with the sources"""
_UNEVEN = (
    "its pods, or pods in transit, would be spread over zones less evenly, and zone rebalancing is enabled"
)
_MORE_NODES = "it would be replaced by more nodes, and its NodePool's objective is LeastNodes"
_NO_BETTER = "its pods, or pods in transit, would not be spread over zones more evenly"


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges trials, given the totals of NodePools, the time, and zones if they matter."""

    pool_totals: Mapping[str, PoolTotals]
    now: datetime
    zones: Zones | None = None

    def worth(self, sources: Sequence[Candidate], bought_hourly_usd: float) -> float:
        """Return the worth of moving these sources' pods to nodes that cost `bought_hourly_usd`."""
        return worth_usd(sources, bought_hourly_usd, self.pool_totals, self.now)

    def consolidation(self, sources: Sequence[Candidate], trial: Trial) -> Proposal | str:
        """Return the move that realizes the saving of a trial, or the reason why there is none."""
        impossible = _impossible(trial)
        if impossible:
            return impossible
        templates = {template.name: template for tier in trial.tiers for template in tier}
        surcharge = fsum(node.surcharge_hourly_usd for node in trial.nodes)
        price = fsum(source.price_hourly_usd for source in sources)
        nodes = cut(trial.nodes, price * (1 - LEAST_SAVING) - surcharge, templates)
        if nodes is None:
            return _with_split(_why_no_cheaper(sources, trial, surcharge), trial)
        if _is_spot_for_spot(sources, nodes):
            narrowed = _spot_for_spot(sources, nodes, templates)
            if isinstance(narrowed, str):
                return narrowed
            nodes = narrowed
        replacement_price = fsum(node.price_hourly_usd for node in nodes) + surcharge
        if _adds_nodes(sources, nodes):
            return _MORE_NODES
        worth = self.worth(sources, replacement_price)
        if worth <= 0 or not is_enough(sources, price - worst_price(nodes) - surcharge):
            return _with_split(why_not_worth(sources, price - replacement_price), trial)
        if self._gain(sources, trial, nodes) < 0:
            return _UNEVEN
        return proposal(Reason.UNDERUTILIZED, sources, trial, nodes, price - replacement_price, worth)

    def rebalancing(self, sources: Sequence[Candidate], trial: Trial) -> Proposal | str:
        """Return the move that spreads pods over zones more evenly, at any price, or the reason why there is none."""
        impossible = _impossible(trial)
        if impossible:
            return impossible
        if self._gain(sources, trial, trial.nodes) <= 0:
            return _NO_BETTER
        replacement_price = fsum(node.price_hourly_usd + node.surcharge_hourly_usd for node in trial.nodes)
        saving = fsum(source.price_hourly_usd for source in sources) - replacement_price
        return proposal(Reason.UNBALANCED, sources, trial, trial.nodes, saving, 0.0)

    def _gain(self, sources: Sequence[Candidate], trial: Trial, nodes: Sequence[PlannedNode]) -> int:
        """Return how much a move reduces the number of excess pods in zones; 0 if zones do not matter."""
        return 0 if self.zones is None else self.zones.gain(sources, trial.destinations, nodes)


def _impossible(trial: Trial) -> str:
    """Return the reason why a trial's outcome is impossible; empty if it is possible."""
    if len(trial.nodes) > MOST_BOUGHT:
        return f"{len(trial.nodes)} nodes would have to be bought at once"
    return trial.refusal


def _why_no_cheaper(sources: Sequence[Candidate], trial: Trial, surcharge_hourly_usd: float) -> str:
    """Return the reason why the nodes of a trial do not save enough, with both prices."""
    price_hourly_usd = fsum(source.price_hourly_usd for source in sources)
    needed = fsum(node.price_hourly_usd for node in trial.nodes) + surcharge_hourly_usd
    subject, cost, whose = ("it", "costs", "its") if len(sources) == 1 else ("they", "cost", "their")
    compared = f"{subject} {cost} {price_hourly_usd:.4f} USD an hour, and what {whose} pods need {needed:.4f}"
    if needed > price_hourly_usd * (1 - LEAST_SAVING):
        least = "" if needed >= price_hourly_usd else f"at least {LEAST_SAVING:.0%} "
        return f"{subject} cannot be replaced by anything {least}cheaper: {compared}"
    return f"the instance types that are cheaper are too few for minValues: {compared}"


def why_not_worth(sources: Sequence[Candidate], saving_hourly_usd: float, at_most: str = "") -> str:
    """Return the reason why a saving is too small, with the saving, the eviction cost and what would be lost.

    `at_most` stands before a saving that is only a bound.
    """
    number = sum(len(source.pods) for source in sources)
    eviction_cost = fsum(source.eviction_cost for source in sources)
    lost_usd = fsum(source.lost_usd for source in sources)
    pods = f"{number} pod{'' if number == 1 else 's'}"
    cost = f"restarting {pods} (eviction cost {eviction_cost:.4g})"
    lost = f", which loses {lost_usd:.4f} USD of work of Jobs and of slow starts" if lost_usd else ""
    saves = "what it saves is not worth its" if len(sources) == 1 else "what they save is not worth their"
    return f"{saves} evictions: {at_most}{saving_hourly_usd:.4f} USD an hour for {cost}{lost}"


def _with_split(reason: str, trial: Trial) -> str:
    """Return why a move is not made, and the split of a workload that the move has to keep."""
    return f"{reason}: {trial.split}" if trial.split else reason


def proposal(
    reason: Reason,
    sources: Sequence[Candidate],
    trial: Trial | None,
    nodes: Sequence[PlannedNode],
    saving_hourly_usd: float,
    worth: float,
    drift: str = "",
) -> Proposal:
    """Return the proposal of a move. `trial` is None if no pod has to move; `drift` is why its source is replaced."""
    return Proposal(
        reason,
        tuple(source.name for source in sources),
        tuple(nodes),
        dict(sorted(trial.destinations.items())) if trial else {},
        saving_hourly_usd,
        fsum(source.eviction_cost for source in sources),
        worth,
        _description(reason, sources, nodes, saving_hourly_usd) + (f": {drift}" if drift else ""),
    )


def _description(
    reason: Reason, sources: Sequence[Candidate], nodes: Sequence[PlannedNode], saving_hourly_usd: float
) -> str:
    """Return a sentence about what a move does."""
    subject = f"{len(sources)} node{'s' if len(sources) > 1 else ''}"
    number = sum(len(source.pods) for source in sources)
    pods = f"{number} pod{'' if number == 1 else 's'}"
    into = f"onto {len(nodes)} new node{'s' if len(nodes) > 1 else ''}" if nodes else "into free capacity"
    match reason:
        case Reason.EMPTY:
            return f"removing {subject} without pods saves {saving_hourly_usd:.4f} USD an hour"
        case Reason.DRIFTED:
            return f"replacing {subject} with {pods}"
        case Reason.UNBALANCED:
            return f"moving {pods} from {subject} {into} spreads them over zones"
        case Reason.UNDERUTILIZED:
            return f"moving {pods} from {subject} {into} saves {saving_hourly_usd:.4f} USD an hour"


def _spot_for_spot(
    sources: Sequence[Candidate], nodes: Sequence[PlannedNode], templates: Mapping[str, Template]
) -> tuple[PlannedNode, ...] | str:
    """Return the spot nodes that may replace spot nodes, or the reason why none may."""
    least = _spot_types(sources)
    if least is None:
        return "its NodePool does not allow spot to be replaced by spot"
    largest: dict[str, int] = {}
    for source in sources:
        source_family = family(source.node.labels)
        if source_family:
            largest[source_family] = max(largest.get(source_family, 0), cpus(source.node.labels))
    offered = [(node, templates[node.claim.nodepool]) for node in nodes]
    narrowed = [
        for_spot(node, template, least) or downsized(node, template, largest) for node, template in offered
    ]
    fitting = tuple(node for node in narrowed if node is not None)
    if len(fitting) < len(narrowed):
        return (
            f"spot is replaced by spot only if {least} types are cheaper, or by a smaller size of its family"
        )
    return fitting


def _spot_types(sources: Sequence[Candidate]) -> int | None:
    """Return how many types must be cheaper by the strictest of the nodes' NodePools; None if one forbids it."""
    settings = [source.pool.options.spot_types for source in sources]
    numbers = [number for number in settings if number is not None]
    return max(numbers) if len(numbers) == len(settings) else None


def _is_spot_for_spot(sources: Sequence[Candidate], nodes: Sequence[PlannedNode]) -> bool:
    """Return whether a move only exchanges spot nodes for at least as many other spot nodes."""
    removed = (source.node.labels.get(CAPACITY_TYPE) for source in sources)
    kinds = {*removed, *(node.request.capacity_type for node in nodes)}
    return len(nodes) >= len(sources) and kinds == {SPOT}


def _adds_nodes(sources: Sequence[Candidate], nodes: Sequence[PlannedNode]) -> bool:
    """Return whether a move buys more nodes than it removes, although a NodePool's objective is few nodes."""
    few = any(source.pool.options.objective is Objective.LEAST_NODES for source in sources)
    return few and len(nodes) > len(sources)
