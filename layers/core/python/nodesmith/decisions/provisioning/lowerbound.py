"""A price that no plan for the same pods can undercut, and the pods that no plan can serve.

What an attempt settles before buying (domains, existing nodes, which NodePool first) is open again here, so the bound
holds for all plans and not only for those that settle it alike. What remains are the pods, what they ask of a node on
their own, which of them may share one, and all offers. Free capacity costs nothing: its greatest possible value, at the
dual prices of each resource (see `resource_prices`), is subtracted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import fsum
from operator import le

from nodesmith.decisions.packing import Bin, Item, lower_bound, pack, resource_prices
from nodesmith.decisions.provisioning.alternatives import Attempt
from nodesmith.decisions.provisioning.purchase.packingproblem import PackingProblem, packing_problem
from nodesmith.decisions.scheduling.conflicts import PodConflicts
from nodesmith.decisions.scheduling.demands import Demand, by_shape
from nodesmith.decisions.scheduling.existing import ExistingNode
from nodesmith.decisions.scheduling.offerings.launchable import Admission
from nodesmith.decisions.scheduling.offerings.options import undominated_offers, vector
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.decisions.scheduling.sharing import shared
from nodesmith.model.kubernetes.pods import Pod, Shape

_FEW = 64
"""Up to so many pods it is worth packing what must be bought to get the bound."""


def least_price(
    attempt: Attempt,
    pods: Sequence[Pod],
    existing_nodes: Sequence[ExistingNode],
    templates: Sequence[Template],
    daemonsets: Sequence[Shape],
) -> float:
    """Return a lower bound, in USD an hour, on all plans that place what this attempt places.

    `existing_nodes` have the capacity that was free before the attempt. 0.0 where no bound is claimed.
    """
    purchase = attempt.purchase
    if not purchase.nodes or not purchase.is_bounded:
        return 0.0
    if _settles_nothing(attempt):
        return purchase.bound_hourly_usd
    served = _served(attempt, pods)
    conflicts = PodConflicts([*(shape for shape, _ in served), *daemonsets])
    demands = [Demand(shape, tuple(alike)) for shape, alike in served]
    offered = packing_problem(templates, shared(demands, conflicts, templates, daemonsets), plain=True)
    if not offered.bins:
        return 0.0
    bins = offered.bins
    items = _displaced(offered, existing_nodes) if existing_nodes else offered.items
    few = sum(item.count for item in offered.items) <= _FEW
    bound = pack(items, bins).bound if few else lower_bound(items, bins)
    if existing_nodes:
        bound = max(bound, _beside(offered, bins, existing_nodes))
    return max(0.0, min(bound - offered.worth_hourly_usd, purchase.price_hourly_usd))


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
