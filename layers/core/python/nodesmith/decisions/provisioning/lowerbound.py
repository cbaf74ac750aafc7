"""Prices that no plan for the same pods can undercut, and the pods that no plan can serve.

What an attempt settles before buying (domains, existing nodes, which NodePool first) is open again here, so the bound
holds for all plans and not only for those that settle it alike. What remains are the pods, what they ask of a node on
their own, which of them may share one, and all offers. Free capacity costs nothing: its greatest possible value, at the
dual prices of each resource (see `resource_prices`), is subtracted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from math import ceil, fsum
from operator import le

from nodesmith.decisions.packing import GOOD_ENOUGH, Bin, Item, lower_bound, pack, resource_prices
from nodesmith.decisions.provisioning.alternatives import NO_BOUNDS, Attempt, Bounds
from nodesmith.decisions.provisioning.purchase.packingproblem import (
    PackingProblem,
    dearer_than,
    packing_problem,
    with_node_usd,
)
from nodesmith.decisions.scheduling.conflicts import PodConflicts
from nodesmith.decisions.scheduling.demands import Demand, by_shape
from nodesmith.decisions.scheduling.existing import ExistingNode
from nodesmith.decisions.scheduling.offerings.launchable import Admission
from nodesmith.decisions.scheduling.offerings.options import Pricing, undominated_offers, vector
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.decisions.scheduling.sharing import shared
from nodesmith.model.kubernetes.pods import Pod, Shape

_FEW = 64
"""Up to so many pods it is worth packing what must be bought to get the bound."""
_EXACT, _FUZZ = 1 + 1e-9, 1e-9
"""How near a bound must be where each node has a high price, and what rounding may have added to it."""


def bounds(
    attempt: Attempt,
    pods: Sequence[Pod],
    existing_nodes: Sequence[ExistingNode],
    templates: Sequence[Template],
    daemonsets: Sequence[Shape],
    conflicts: PodConflicts,
) -> Bounds:
    """Return lower bounds on all plans that place what this attempt places.

    `existing_nodes` have the capacity that was free before the attempt; `conflicts` cover the shapes of all pods. 0
    where no bound is claimed.
    """
    purchase = attempt.purchase
    if not purchase.nodes or not purchase.is_bounded:
        return NO_BOUNDS
    of_all = _OfAllPlans(attempt, pods, existing_nodes, templates, daemonsets, conflicts)
    price = (
        purchase.bound_hourly_usd
        if _settles_nothing(attempt)
        else min(of_all.least(Pricing.PRICE), purchase.price_hourly_usd)
    )
    is_surcharged = any(template.type_options.is_surcharged for template in templates)
    least = min(of_all.least(Pricing.PAID), purchase.cost_hourly_usd) if is_surcharged else price
    if not any(template.least_nodes for template in templates):
        return Bounds(price, least)
    nodes, cost = of_all.least_nodes(len(purchase.nodes))
    least = max(least, min(cost, purchase.cost_hourly_usd))
    return Bounds(price if is_surcharged else least, least, min(nodes, len(purchase.nodes)))


class _OfAllPlans:
    """Bounds on all plans that place what an attempt places, whatever the attempt has settled."""

    def __init__(
        self,
        attempt: Attempt,
        pods: Sequence[Pod],
        existing_nodes: Sequence[ExistingNode],
        templates: Sequence[Template],
        daemonsets: Sequence[Shape],
        conflicts: PodConflicts,
    ) -> None:
        self._attempt, self._pods, self._existing = attempt, pods, existing_nodes
        self._templates, self._daemonsets, self._conflicts = templates, daemonsets, conflicts

    @cached_property
    def _demands(self) -> list[Demand]:
        served = _served(self._attempt, self._pods)
        demands = [Demand(shape, tuple(alike)) for shape, alike in served]
        return shared(demands, self._conflicts, self._templates, self._daemonsets)

    def least(self, pricing: Pricing) -> float:
        """Return a lower bound on the cost, USD an hour."""
        offered = packing_problem(self._templates, self._demands, pricing=pricing)
        return max(0.0, self._bound(offered, offered.bins) - offered.worth_hourly_usd)

    def least_nodes(self, number: int) -> tuple[int, float]:
        """Return a lower bound on the number of nodes, and one on the cost of plans with no more than `number`.

        With U added to the price of each node, any plan of n nodes costs at least the bound B of that problem: its
        nodes themselves then cost at least B - n × U.
        """
        offered = packing_problem(self._templates, self._demands, pricing=Pricing.PAID)
        fewest = self._bound(offered, [replace(each, price=1.0, instead=None) for each in offered.bins])
        node_usd = dearer_than(number, offered.bins)
        most = number * node_usd
        bound = self._bound(offered, with_node_usd(offered.bins, node_usd), _EXACT) * (1 - _FUZZ)
        return ceil(fewest - _FUZZ * max(1.0, fewest)), max(0.0, bound - most - offered.worth_hourly_usd)

    def _bound(self, offered: PackingProblem, bins: Sequence[Bin], good_enough: float = GOOD_ENOUGH) -> float:
        if not bins:
            return 0.0
        items = _displaced(offered, self._existing) if self._existing else offered.items
        few = sum(item.count for item in offered.items) <= _FEW
        bound = pack(items, bins, good_enough=good_enough).bound if few else lower_bound(items, bins)
        return max(bound, _beside(offered, bins, self._existing)) if self._existing else bound


def _settles_nothing(attempt: Attempt) -> bool:
    """Return whether the purchase's own bound holds for all plans.

    It does if nothing was decided before the purchase beyond what the rules require.
    """
    if attempt.assignment.placed or len(attempt.purchase.served_by) > 1:
        return False
    return not any(demand.is_settled for demand in attempt.assignment.demands)


def _served(attempt: Attempt, pods: Sequence[Pod]) -> list[tuple[Shape, list[Pod]]]:
    left = {pod.key for demand in attempt.purchase.left for pod in demand.pods}
    left |= {pod.key for stuck, _ in attempt.assignment.stuck for pod in stuck}
    return by_shape(pod for pod in pods if pod.key not in left)


def _displaced(offered: PackingProblem, existing_nodes: Sequence[ExistingNode]) -> list[Item]:
    """Return the items; those that an existing node could take have count 0, the rest must be bought for."""
    most = [max(existing.free.of(name) for existing in existing_nodes) for name in offered.dimensions]
    return [
        replace(item, count=0)
        if all(map(le, item.size, most))
        and any(
            existing.fits(demand.shape, 1) and existing.admits(demand.shape) for existing in existing_nodes
        )
        else item
        for item, demand in zip(offered.items, offered.demands, strict=True)
    ]


def _beside(offered: PackingProblem, bins: Sequence[Bin], existing_nodes: Sequence[ExistingNode]) -> float:
    """Bound the price if existing nodes may take some pods.

    The bound is the dual value of all requests minus that of the free capacity.
    """
    prices = resource_prices(offered.items, bins)
    wanted = [sum(item.size[axis] * item.count for item in offered.items) for axis in range(len(prices))]
    named = list(zip(offered.dimensions, prices, wanted, strict=True))
    taken = [
        price * max(0, min(existing.free.of(n), most))
        for existing in existing_nodes
        for n, price, most in named
    ]
    worth = [price * amount for _, price, amount in named]
    return fsum(worth) - fsum(taken)


def unschedulable(
    pods: Iterable[Pod], existing_nodes: Sequence[ExistingNode], templates: Sequence[Template]
) -> int:
    """Return how many pods have no place whatever happens to all others."""
    known: dict[Shape, bool] = {}
    count = 0
    for pod in pods:
        if pod.shape not in known:
            known[pod.shape] = not _is_servable(pod.shape, existing_nodes, templates)
        count += known[pod.shape]
    return count


def _is_servable(shape: Shape, existing_nodes: Iterable[ExistingNode], templates: Iterable[Template]) -> bool:
    if any(existing.fits(shape, 1) and existing.admits(shape) for existing in existing_nodes):
        return True
    return any(_holds(template, shape) for template in templates)


def _holds(template: Template, shape: Shape) -> bool:
    names = tuple(sorted(shape.requests.nonzero()))
    size, limits = vector(shape.requests, names), tuple(sorted(template.remaining))
    most = vector(template.remaining, limits)
    admission = Admission(template, (Demand(shape, ()),))
    return any(
        all(map(le, size, offer.room)) and all(map(le, offer.cost, most))
        for type_options in (template.type_options, template.reserved)
        for _, types, purchase_options in admission.alike(type_options)
        for offer in undominated_offers(type_options, types, purchase_options, names, limits)
    )
