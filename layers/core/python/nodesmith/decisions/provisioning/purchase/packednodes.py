"""From a market to a basket: how what is demanded is packed, what each node may be, and what minValues refuse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from nodesmith.decisions.packing import Node, Packing, Vector, pack
from nodesmith.decisions.provisioning.purchase.flexibility import Options, options
from nodesmith.decisions.provisioning.purchase.fragility import sturdier
from nodesmith.decisions.provisioning.purchase.minvalues import Cut, cut, without
from nodesmith.decisions.provisioning.purchase.order import Order, Purchase
from nodesmith.decisions.provisioning.purchase.packingproblem import Market, limits
from nodesmith.decisions.provisioning.reasons.refusals import Filter, Refusal
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.policies import MinValuesPolicy

_MOST_SCOUTED = 16


@dataclass(frozen=True, slots=True)
class Basket:
    """A packing of what is offered, with what each node may be, and what it takes of its NodePool's limits.

    Where a node may be nothing, for want of choice, it is refused, and a cut says what is learned of that.
    """

    offered: Market
    packing: Packing
    entries: Sequence[tuple[Node, Options, Vector]]
    refused: Sequence[Cut]


def filled(
    offered: Market, tier: Sequence[Template], order: Order, result: Purchase, *, quick: bool = False
) -> Basket:
    """Pack what is demanded; only `quick`ly, if it is to be seen what minValues refuse."""
    packing = pack(
        offered.items,
        offered.bins,
        limits(tier),
        bounded=not offered.is_settled,  # else a bound on this is none on all plans
        good_enough=inf if quick or order.quick else order.good_enough,
        known=order.known.plans,
    )
    result.steps += packing.steps
    return _basket(offered, packing, order, result)


def scouted(offered: Market, tier: Sequence[Template], order: Order, result: Purchase) -> list[Cut]:
    """Return what minValues refuse of quick plans, until they refuse nothing: thorough ones are then seldom refused."""
    cuts: list[Cut] = []
    for _ in range(_MOST_SCOUTED):
        basket = filled(offered, tier, order, result, quick=True)
        if not basket.refused:
            break
        cuts += basket.refused
        offered = without(offered, basket.refused)
    return cuts


def made_sturdier(basket: Basket, tier: Sequence[Template], order: Order, result: Purchase) -> Basket:
    """Return what costs about as much and no longer has all pods of a shape on one node, if there is such."""
    if order.quick:
        return basket
    offered, tolerance = basket.offered, order.settings.fragility_tolerance
    other = sturdier(offered, basket.packing, limits(tier), tolerance, order.good_enough, order.known.plans)
    if other is None:
        return basket
    result.steps += other.steps
    found = _basket(offered, other, order, result)
    return basket if found.refused else found


def _basket(offered: Market, packing: Packing, order: Order, result: Purchase) -> Basket:
    left, entries = dict(packing.limits), []
    for node in packing.nodes:
        limit = left.get(node.bin.limit, ())
        found, taken = _found(offered, node, limit, order.settings.min_values_policy)
        ware = offered.wares[node.bin.key]
        is_limited = ware.template.remaining or any(r.min_values for r in ware.template.requirements.values())
        for demand in (offered.demands[i] for i, _ in node.holds):
            if is_limited:
                order.choices.used(ware.template.name, demand)
            if not found.wares:
                result.refusals[demand.shape, demand.zone, ware.template.name] = Refusal(
                    Filter.MIN_VALUES,
                    found.refusal,
                    "minValues",
                    "lower minValues, or allow more instance types",
                )
        taken = taken if found.wares else (0,) * len(limit)
        if limit:
            triples = zip(limit, node.bin.cost, taken, strict=True)
            left[node.bin.limit] = tuple(have + node.repeats * (cost - took) for have, cost, took in triples)
        entries.append((node, found, taken))
    refused = list(dict.fromkeys(cut(offered, node) for node, found, _ in entries if not found.wares))
    order.known.learn(refused)
    return Basket(offered, packing, entries, refused)


def _found(offered: Market, node: Node, limit: Vector, policy: MinValuesPolicy) -> tuple[Options, Vector]:
    """Return what a node may be, and what it takes of limits: more than it needs where minValues cannot be had so."""
    ware, axes = offered.wares[node.bin.key], range(len(node.bin.capacity))
    size = tuple(sum(offered.items[i].size[axis] * n for i, n in node.holds) for axis in axes)
    holds, shelf = sum(1 << i for i, _ in node.holds), offered.shelves[ware.template.name]
    found = options(shelf, ware, holds, size, node.bin.cost, policy)
    if found.wares or not any(limit):
        return found, node.bin.cost
    most = tuple(cost + have // node.repeats for cost, have in zip(node.bin.cost, limit, strict=True))
    found = options(shelf, ware, holds, size, most, policy)
    return found, tuple(map(max, zip(*(shelf.cost(each) for each in found.wares), strict=True)))
