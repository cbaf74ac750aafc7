"""The worth of a move: its saving for as long as it lasts, less its evictions, the losses, and the overlap.

    worth = saving per hour × expected life
          − eviction cost × price of an eviction − losses − price per hour of the purchases × overlap

One formula serves all policies; they differ in the price of an eviction. For `WhenEmpty` it is infinite. For
`WhenEmptyOrUnderutilized` it is the cost of a restart: a pod takes about ten minutes to start, connect and warm up,
which costs 0.008 USD on an instance for one pod of 1 cpu (0.05 USD an hour). For `Balanced` it depends on the NodePool,
as in Karpenter: the share of the NodePool's price that a move saves must be at least half the share of the NodePool's
eviction costs that it causes.

The losses are the work of Jobs' pods so far, because they start over, and the time until pods are Ready, if similar
pods have needed more than ten minutes for that (see `costs` and `observation.startups`).

The expected life is unknown, but nodes that have been quiet for some time mostly stay quiet for as long again.

A replacement must save money whichever offering EC2 picks: a fleet request lists many, and EC2 does not choose among
them by price alone. The list is therefore cut so that even its most expensive offerings cost less than the sources.
This is Karpenter's rule, for any number of replacements. Spot replaces a spot node only if enough types are cheaper
(15, or the number that its NodePool specifies), and only the cheapest of them may replace it; otherwise successive
replacements would follow the price down to the scarcest type. A smaller size of the same family is always allowed,
because it follows the need and not the price.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import fsum, inf

from nodesmith.decisions.disruption.candidates import Candidate, CandidateSelection, quiet_since
from nodesmith.decisions.disruption.expiration import expires_at
from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.decisions.provisioning.purchase.claims import only
from nodesmith.decisions.scheduling.compatibility import WINDOWS
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.labels import (
    INSTANCE_CPU,
    INSTANCE_FAMILY,
    OS,
    SPOT,
)
from nodesmith.model.karpenter.disruption import BALANCED, WHEN_EMPTY

EVICTION_USD = 0.008
LEAST_SAVING = 0.02
"""share of the sources' cost; a smaller saving is ignored, which makes cycles impossible"""
OVERLAP_HOURS = 5 / 60
"""How long sources and replacements run side by side: boot, drain, and EC2's shutdown."""
WINDOWS_OVERLAP_HOURS = 15 / 60
"""The same for Windows, which boots for several minutes and then pulls and unpacks images of several GB."""
_SHORTEST, _LONGEST = timedelta(hours=1), timedelta(hours=24)
_BALANCED_FACTOR = 2.0


@dataclass(frozen=True, slots=True)
class PoolTotals:
    """The price of all nodes of a NodePool, in USD an hour, and the total cost of disrupting them, in evictions."""

    price_hourly_usd: float
    eviction_cost: float


def totals(selection: CandidateSelection) -> dict[str, PoolTotals]:
    """Return the totals of each NodePool, by name. As in Karpenter, a node counts 1 in addition to its pods.

    The policy Balanced needs the totals. In its NodePools, nodes that may not be disrupted now count as well.
    """
    by_pool: dict[str, PoolTotals] = {}
    of_candidates = (
        (candidate.pool.name, candidate.price_hourly_usd, candidate.eviction_cost)
        for candidate in selection.candidates
    )
    for pool, price, eviction_cost in (*of_candidates, *selection.blocked_totals(BALANCED)):
        before = by_pool.get(pool, PoolTotals(0.0, 0.0))
        by_pool[pool] = PoolTotals(
            before.price_hourly_usd + price, before.eviction_cost + 1.0 + eviction_cost
        )
    return by_pool


def worth_usd(
    sources: Collection[Candidate],
    bought_hourly_usd: float,
    pool_totals: Mapping[str, PoolTotals],
    now: datetime,
) -> float:
    """Return the worth of a move in USD; a move is made only if its worth is positive.

    `bought_hourly_usd` is the highest price of the purchases. The worth is at most the worth to any of the move's
    NodePools with the policy Balanced: the savings of other NodePools do not pay for evictions in these.
    """
    price = fsum(source.price_hourly_usd for source in sources)
    saving, life = price - bought_hourly_usd, expected_hours(sources, now)
    evictions_usd = [
        eviction_usd(source, pool_totals, life) * source.eviction_cost if source.eviction_cost else 0.0
        for source in sources
    ]
    losses = fsum(source.lost_usd for source in sources)
    worth = saving * life - fsum(evictions_usd) - losses - bought_hourly_usd * _overlap_hours(sources)
    balanced = {s.pool.name for s in sources if s.pool.disruption.consolidation_policy == BALANCED}
    for pool in sorted(balanced) if price else ():
        in_pool = [
            (s.price_hourly_usd, usd)
            for s, usd in zip(sources, evictions_usd, strict=True)
            if s.pool.name == pool
        ]
        share = fsum(source_price for source_price, _ in in_pool) / price
        worth = min(worth, saving * share * life - fsum(usd for _, usd in in_pool))
    return worth


def _overlap_hours(sources: Collection[Candidate]) -> float:
    is_windows = any(source.node.labels.get(OS) == WINDOWS for source in sources)
    return WINDOWS_OVERLAP_HOURS if is_windows else OVERLAP_HOURS


def eviction_usd(source: Candidate, pool_totals: Mapping[str, PoolTotals], life_hours: float) -> float:
    """Return the price in USD of an ordinary pod's eviction from a node, by its NodePool's policy."""
    policy = source.pool.disruption.consolidation_policy
    if policy == WHEN_EMPTY:
        return inf
    if policy != BALANCED:
        return EVICTION_USD
    of_pool = pool_totals[source.pool.name]
    per_hour = of_pool.price_hourly_usd / (of_pool.eviction_cost * _BALANCED_FACTOR)
    return per_hour * life_hours * (1.0 + source.eviction_cost) / source.eviction_cost


def expected_hours(sources: Collection[Candidate], now: datetime) -> float:
    """Return for how many hours a move's saving is expected to last: as long as its sources have been quiet.

    It lasts at least an hour, at most a day, and no longer than until the first of the sources would end in any case.
    """
    quiet = min(now - quiet_since(source.claim, source.node) for source in sources)
    life = min(max(quiet, _SHORTEST), _LONGEST)
    ends = [end - now for end in (expires_at(source.claim) for source in sources) if end is not None]
    return max(timedelta(0), min([life, *ends])) / timedelta(hours=1)


def worth_more_from(quiet: datetime, now: datetime, soon: timedelta) -> datetime | None:
    """Return when a move of a node may be worth more than now; None if never. The node has been quiet since `quiet`.

    While the move's expected life grows, its worth grows all the time, so the result is `soon` after now.
    """
    if now < quiet + _SHORTEST:
        return quiet + _SHORTEST
    return now + soon if now < quiet + _LONGEST else None


def is_enough(sources: Collection[Candidate], saving_hourly_usd: float) -> bool:
    """Return whether a move saves a large enough share of its sources' cost to be considered at all."""
    return saving_hourly_usd >= LEAST_SAVING * fsum(source.price_hourly_usd for source in sources)


def worst_price(nodes: Sequence[PlannedNode]) -> float:
    """Return the total price of nodes if EC2 picks the most expensive offering of each. Reserved nodes cost nothing."""
    return fsum(
        0.0 if node.request.reservations else max(o.price_hourly_usd for o in node.request.overrides)
        for node in nodes
    )


def cut(
    nodes: Sequence[PlannedNode], most_hourly_usd: float, templates: Mapping[str, Template]
) -> tuple[PlannedNode, ...] | None:
    """Cut the offerings of nodes so that together they cost at most `most_hourly_usd`, whichever EC2 picks.

    Return None if that leaves a node without offerings or with too few for minValues. `templates` are by NodePool. Each
    node's list is cut at the same multiple of its cheapest offering.
    """
    cheapest = fsum(node.price_hourly_usd for node in nodes)
    if cheapest <= 0:
        return tuple(nodes)
    factor = most_hourly_usd / cheapest
    if factor < 1:
        return None
    narrowed = [
        _below(node, node.price_hourly_usd * factor, templates[node.claim.nodepool]) for node in nodes
    ]
    fitting = tuple(node for node in narrowed if node is not None)
    return fitting if len(fitting) == len(nodes) else None


def for_spot(node: PlannedNode, template: Template, least_types: int) -> PlannedNode | None:
    """Return a spot node cut to its cheapest types; None if it has too few.

    It keeps `least_types`, or more if minValues need more. Nodes that are not spot are returned unchanged.
    """
    types = list(dict.fromkeys(o.instance_type for o in node.request.overrides))
    if node.request.capacity_type != SPOT:
        return node
    if len(types) < least_types:
        return None
    for number in range(max(1, least_types), len(types) + 1):
        few = frozenset(types[:number])
        narrowed = only(node, [o for o in node.request.overrides if o.instance_type in few], template)
        if narrowed is not None:
            return narrowed
    return None


def downsized(node: PlannedNode, template: Template, largest: Mapping[str, int]) -> PlannedNode | None:
    """Return a spot node cut to smaller sizes than the nodes that it replaces; None if there are none.

    `largest` is the largest number of cpus among the replaced nodes, by instance family.
    """
    labels = {choice.type.name: choice.type.labels for choice in template.choices}
    overrides = [
        override
        for override in node.request.overrides
        if cpus(labels[override.instance_type]) < largest.get(family(labels[override.instance_type]), 0)
    ]
    return only(node, overrides, template)


def family(labels: Mapping[str, str]) -> str:
    """Return the instance family in the labels of an instance type or a node."""
    return labels.get(INSTANCE_FAMILY, "")


def cpus(labels: Mapping[str, str]) -> int:
    """Return the number of cpus in the labels of an instance type or a node; 0 if there is none."""
    text = labels.get(INSTANCE_CPU, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _below(node: PlannedNode, most_hourly_usd: float, template: Template) -> PlannedNode | None:
    if node.request.reservations:
        return node
    return only(node, [o for o in node.request.overrides if o.price_hourly_usd <= most_hourly_usd], template)
