"""The other offerings a planned node may have, and what no node may hold because that would leave too few types.

With more capacity pools to choose from, EC2 launches more reliably. All of them hold the node's pods and satisfy their
constraints. The list ends where prices exceed a tolerance above the price the node was chosen for, but not before it
has enough types for EC2 to choose well (AWS asks for at least ten to fifteen on spot): if a region has so many zones
that fewer types fill a request, further ones replace the most expensive offerings of types that occur twice. Where EC2
recently lacked capacity for many offerings, the list is as long as a request may be: finding capacity comes first.

If fewer types than the NodePool's minValues could hold a node's pods, the node is refused. A node that holds at least
as much of every resource, and pods of the same kinds, would be refused again. So a bin is replaced by several bins that
each have less of one resource or exclude one of the kinds; no other node is lost. A refused node teaches most if it is
first reduced to the least that would still be refused: often an amount of one resource, whichever pods request it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from operator import gt, le

from nodesmith.decisions.launch import MAX_OVERRIDES
from nodesmith.decisions.packing import Bin, Node, Vector, undominated
from nodesmith.decisions.provisioning.purchase.packingproblem import (
    Offer,
    PackingProblem,
    TemplateOffers,
    pairs,
)
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.decisions.scheduling.offerings.options import TypeOption
from nodesmith.decisions.scheduling.offerings.quotas import RemainingQuotas
from nodesmith.decisions.scheduling.offerings.reservationsandgroups import limited_zone
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, ON_DEMAND, SPOT, ZONE
from nodesmith.model.apimachinery.requirements import Requirement
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.policies import MinValuesPolicy

_ENOUGH_TYPES = 15
_USUAL_TOLERANCE, _WIDEST_TOLERANCE, _SCARCE_TOLERANCE = 1.25, 2.0, 4.0
_Kind = tuple[Shape, FrozenMap[str]]


@dataclass(frozen=True, slots=True)
class Options:
    """Offerings for one node, cheapest first; `refusal` is why there are none that satisfy minValues.

    `relaxed` is True if these do not satisfy minValues and the policy accepts that.
    """

    offers: tuple[Offer, ...]
    refusal: str = ""
    relaxed: bool = False

    @property
    def price_hourly_usd(self) -> float:
        """The price of the first offering, USD an hour; 0 for a reservation, which is paid for anyway."""
        cheapest = self.offers[0].offering
        return 0.0 if cheapest.reservation else cheapest.price_hourly_usd

    @property
    def surcharge_hourly_usd(self) -> float:
        """The node's cost beyond its instance, in USD an hour."""
        return self.offers[0].type_option.surcharge_hourly_usd


def options(
    template_offers: TemplateOffers,
    chosen: Offer,
    demands: int,
    size: Vector,
    most: Vector,
    policy: MinValuesPolicy = MinValuesPolicy.STRICT,
) -> Options:
    """Return what one node may be, from its template's offers.

    `demands` are the bits of the demands whose pods it holds, and `size` is their total request. `most` is what it may
    take of the NodePool's limits, in order of their names. `policy` says whether it may be bought without all its
    minValues.
    """
    flexible, is_pinned = flexible_requirements(chosen.template), _is_counted_by_zone(chosen.template)
    offering, zone = chosen.offering, chosen.offering.zone
    price = offering.risk_hourly_usd if offering.commitment else offering.cost_hourly_usd
    scarce = (chosen.offering.capacity_type, zone) in chosen.template.scarce
    offers: list[Offer] = []
    types: set[str] = set()
    dearer: list[Offer] = []
    on_demand = inf  # spot that costs more than on-demand is not worth it, if that can be had
    for offer in template_offers.holding(demands, size, committed=bool(chosen.offering.commitment)):
        enough = len(types) >= _ENOUGH_TYPES
        tolerance = _USUAL_TOLERANCE if enough else _WIDEST_TOLERANCE
        dear = offer.offering.cost_hourly_usd > price * (_SCARCE_TOLERANCE if scarce else tolerance)
        wasteful = bool(offers) and offer.offering.cost_hourly_usd > on_demand
        at_limit = len(offers) >= MAX_OVERRIDES
        short = at_limit and offering.capacity_type == SPOT and not enough  # in regions with many zones
        full = dear or wasteful or (at_limit and not short)
        if full and not _lacking(flexible, _sold_in(zone, offers)):
            break
        if offer.offering.capacity_type != chosen.offering.capacity_type:
            is_other = (offer.offering.capacity_type, chosen.offering.capacity_type) == (ON_DEMAND, SPOT)
            if is_other and all(map(le, template_offers.cost(offer), most)):
                on_demand = min(on_demand, offer.offering.cost_hourly_usd)
            continue
        if is_pinned and offer.offering.zone != zone:
            continue  # the plan counts how many instances a placement group has in each zone
        # Bare metal and accelerators would be wasted on the pods, but minValues may need them, as in Karpenter.
        wastes = offer.is_exotic and not chosen.is_exotic
        is_beyond = any(map(gt, template_offers.cost(offer), most))
        if is_beyond or (wastes and not flexible) or _is_sold_otherwise(offer, chosen):
            continue
        if wastes or offer.type_option.surcharge_hourly_usd > chosen.type_option.surcharge_hourly_usd:
            full = True  # EC2 knows no surcharges, and would choose it by its price
        if at_limit and not full:
            offers = offers if offer.type_option.type.name in types else _making_room(offers, offer)
        else:
            (dearer if full else offers).append(offer)
        types.update(() if wastes else (offer.type_option.type.name,))
    offers = _without_risky(_with_min_values(offers, dearer, flexible, zone), flexible, zone)
    refusal = unmet_min_values(flexible, offers)
    if refusal and policy is MinValuesPolicy.STRICT:
        return Options((), refusal)
    return Options(tuple(_paid_alike(offers, offering)), relaxed=bool(refusal))


def offers_for_no_pods(template: Template, types: Sequence[TypeOption]) -> list[Offer]:
    """Return the offers of these types for a node that is bought for no pods, in their order.

    Bare metal and types with accelerators are among them only if there are no others, or if minValues may need them.
    """
    plain: Sequence[TypeOption] = [type_option for type_option in types if not type_option.is_exotic]
    if not plain or any(requirement.min_values for requirement in template.requirements.values()):
        plain = types
    return [
        Offer(template, type_option, offering, (), 0)
        for type_option in plain
        for offering in type_option.offerings
    ]


def affordable(
    quotas: RemainingQuotas, template: Template, offers: Sequence[Offer], nodes: int = 1
) -> tuple[Offer, ...]:
    """Return the offers that quotas leave enough for, as `Left.narrowed` does."""
    allowed = set(quotas.narrowed(template, pairs(offers), nodes))
    return tuple(offer for offer, pair in zip(offers, pairs(offers), strict=True) if pair in allowed)


def for_no_pods(
    offers: Sequence[Offer], policy: MinValuesPolicy = MinValuesPolicy.STRICT, *, has_zone: bool = False
) -> Options:
    """Return what a node may be that is bought for no pods, from offers of one capacity type, cheapest first.

    With `has_zone`, its zone is decided, and minValues of zones do not count.
    """
    flexible = [r for r in flexible_requirements(offers[0].template) if not (has_zone and r.key == ZONE)]
    plain = [offer for offer in offers if not offer.is_exotic] or list(offers)
    others = [*plain[MAX_OVERRIDES:], *(offer for offer in offers if offer.is_exotic)]
    accepted = sorted(_supplied(plain[:MAX_OVERRIDES], others, flexible), key=_by_cost)
    refusal = unmet_min_values(flexible, accepted)
    if refusal and policy is MinValuesPolicy.STRICT:
        return Options((), refusal)
    return Options(tuple(accepted), relaxed=bool(refusal))


def unmet_min_values(flexible: Iterable[Requirement], offers: Sequence[Offer]) -> str:
    """Return which minValues these offers do not reach; empty if they reach all."""
    short = [f"{r.key} {len(values_of(r, offers))} of {r.min_values}" for r in _lacking(flexible, offers)]
    return f"minValues requirement is not met for label(s) {', '.join(short)}" if short else ""


def _paid_alike(offers: Iterable[Offer], chosen: Offering) -> Iterator[Offer]:
    """Yield the offers. Where commitments pay for a part of the chosen one, they pay as much of the others."""
    for offer in offers:
        offering, use_left = offer.offering, chosen.commitment_use
        if chosen.commitment and chosen.price_hourly_usd and offering.commitment_use > use_left:
            price = offering.listed_hourly_usd * (1 - use_left / offering.commitment_use)
            offer = offer._replace(
                offering=replace(offering, price_hourly_usd=price, commitment_use=use_left)
            )
        yield offer


def _is_sold_otherwise(offer: Offer, chosen: Offer) -> bool:
    """Return whether an offer has another reservation or commitment, with its own limits."""
    offering, chosen_offering = offer.offering, chosen.offering
    return (offering.reservation, offering.commitment) != (
        chosen_offering.reservation,
        chosen_offering.commitment,
    )


def has_choice(template_offers: TemplateOffers, chosen: Offer, demands: int, size: Vector) -> bool:
    """Return whether a node that holds so much can satisfy minValues, ignoring limits."""
    flexible = flexible_requirements(chosen.template)
    alike = [
        offer
        for offer in template_offers.holding(demands, size, committed=bool(chosen.offering.commitment))
        if offer.offering.commitment == chosen.offering.commitment
        and offer.offering.capacity_type == chosen.offering.capacity_type
        and offer.offering.reservation == chosen.offering.reservation
        and (bool(flexible) or chosen.is_exotic or not offer.is_exotic)
    ]
    return not _lacking(flexible, alike)


def flexible_requirements(template: Template) -> list[Requirement]:
    """Return the requirements with minValues, by label."""
    return [r for _, r in sorted(template.requirements.items()) if r.min_values]


def _is_counted_by_zone(template: Template) -> bool:
    return any(limited_zone(name) for name in template.remaining)


def _lacking(flexible: Iterable[Requirement], offers: Sequence[Offer]) -> list[Requirement]:
    """Return the requirements whose minValues these offers do not reach."""
    return [r for r in flexible if len(values_of(r, offers)) < (r.min_values or 0)]


def _sold_in(zone: str, offers: Iterable[Offer]) -> list[Offer]:
    return [offer for offer in offers if offer.offering.zone == zone]


def _with_min_values(
    offers: list[Offer], others: Sequence[Offer], flexible: Sequence[Requirement], zone: str
) -> list[Offer]:
    """Add the offers that minValues lack, first in the zone where the node most likely launches, then anywhere."""
    offers = _supplied(offers, _sold_in(zone, others), flexible, zone)
    offers = _supplied(offers, others, flexible)
    return sorted(offers, key=_by_cost)


def _by_cost(offer: Offer) -> tuple[float, float, str, str]:
    return *offer.offering.costs, offer.type_option.type.name, offer.offering.zone


def _without_risky(offers: list[Offer], flexible: Sequence[Requirement], zone: str) -> list[Offer]:
    """Leave out pools with recent interruptions, the riskiest first, because EC2 weighs prices and not our losses.

    A pool stays if its type is sold nowhere else and too few other types remain, or if minValues need it.
    """
    short = len(_lacking(flexible, offers)), len(_lacking(flexible, _sold_in(zone, offers)))
    risky = [offer for offer in offers if offer.offering.risk_hourly_usd]
    for offer in sorted(risky, key=lambda w: (-w.offering.risk_hourly_usd, w.key)):
        remaining = [other for other in offers if other is not offer]
        types = {other.type_option.type.name for other in remaining}
        if offer.type_option.type.name not in types and len(types) < _ENOUGH_TYPES:
            continue
        if short == (len(_lacking(flexible, remaining)), len(_lacking(flexible, _sold_in(zone, remaining)))):
            offers = remaining
    return offers


def _supplied(
    offers: list[Offer], others: Iterable[Offer], flexible: Sequence[Requirement], zone: str | None = None
) -> list[Offer]:
    """Add offers until minValues are reached, counting only those in `zone` if one is given."""
    for offer in others:
        among = offers if zone is None else _sold_in(zone, offers)
        unmet = _lacking(flexible, among)
        if not unmet:
            break
        if any(not values_of(r, [offer]) <= values_of(r, among) for r in unmet):
            offers = _making_room(offers, offer)
    return offers


def _making_room(offers: list[Offer], offer: Offer) -> list[Offer]:
    """Add an offer; if the list is full, it replaces the most expensive offer of a type that occurs twice."""
    if len(offers) < MAX_OVERRIDES:
        return [*offers, offer]
    names = [k.type_option.type.name for k in offers]
    spare = next((i for i in reversed(range(len(offers))) if names.count(names[i]) > 1), None)
    return offers if spare is None else [*offers[:spare], *offers[spare + 1 :], offer]


def values_of(requirement: Requirement, offers: Iterable[Offer]) -> set[str]:
    """Return the values of a label that these offers leave possible.

    A request has one capacity type, so for that label all offerings of the types count.
    """
    if requirement.key == CAPACITY_TYPE:
        return {offering.capacity_type for offer in offers for offering in offer.type_option.offerings}
    if requirement.key == ZONE:
        return {offer.offering.zone for offer in offers}
    labels = (offer.type_option.type.labels.get(requirement.key) for offer in offers)
    return {value for value in labels if value is not None}


@dataclass(frozen=True, slots=True)
class Cut:
    """What was refused: pods of some kinds with `size` together, by resource, from a NodePool with a capacity type.

    With a `commitment`, only offers that it pays for are refused.
    """

    nodepool: str
    capacity_type: str
    size: FrozenMap[int]
    kinds: frozenset[_Kind]
    by_limits: bool = False
    """More types would serve if the NodePool's limits allowed them: it is refused now, but not in every purchase."""
    commitment: str = ""

    def concerns(self, offer: Offer) -> bool:
        """Return whether an offer is of the same NodePool, capacity type and commitment."""
        market = offer.offering.capacity_type, offer.offering.commitment
        return (offer.template.name, *market) == (self.nodepool, self.capacity_type, self.commitment)


def cut(offered: PackingProblem, node: Node) -> Cut:
    """Return the cut that a refused node teaches."""
    offer, bits = offered.offer(node.bin), sum(1 << i for i, _ in node.holds)
    size = tuple(
        sum(offered.items[i].size[axis] * number for i, number in node.holds)
        for axis in range(len(offered.dimensions))
    )
    by_limits = has_choice(offered.offers_by_template[offer.template.name], offer, bits, size)
    if not by_limits:
        bits, size = _smallest_refused(offered, offer, bits, size)
    kinds = frozenset(_kind(demand) for i, demand in enumerate(offered.demands) if bits >> i & 1)
    amounts = FrozenMap(dict(zip(offered.dimensions, size, strict=True)))
    offering = offer.offering
    return Cut(offer.template.name, offering.capacity_type, amounts, kinds, by_limits, offering.commitment)


def _smallest_refused(offered: PackingProblem, offer: Offer, bits: int, size: Vector) -> tuple[int, Vector]:
    """Return as few kinds, and as little of each resource, as would still be refused."""
    template_offers = offered.offers_by_template[offer.template.name]
    for index in range(bits.bit_length()):
        fewer = bits & ~(1 << index)
        if fewer != bits and not has_choice(template_offers, offer, fewer, size):
            bits = fewer
    for axis, amount in enumerate(size):
        steps = sorted(
            {0, *(room[axis] + 1 for room in template_offers.rooms if room[axis] < amount), amount}
        )

        def has_choice_with(less: int, axis: int = axis, so_far: Vector = size) -> bool:
            return has_choice(template_offers, offer, bits, (*so_far[:axis], less, *so_far[axis + 1 :]))

        least = steps[bisect_left(steps, True, key=lambda less: not has_choice_with(less))]
        size = (*size[:axis], least, *size[axis + 1 :])
    return bits, size


def without_cuts(offered: PackingProblem, cuts: Iterable[Cut]) -> PackingProblem:
    """Return the packing problem with bins that cannot hold anything that was cut.

    `cuts` must be all of them at once: a bin that another NodePool's bin dominates is left out, and would be missing if
    that one were cut later.
    """
    offers, bins = dict(offered.offers), list(offered.bins)
    for number, one in enumerate(cuts):
        bits = _bits(one, offered.demands)
        size = tuple(one.size.get(name, 0) for name in offered.dimensions)
        remaining: list[Bin] = []
        parts: list[Bin] = []
        for candidate in bins:
            offer = offers[candidate.key]
            if (
                bits is None
                or not one.concerns(offer)
                or bits & ~candidate.admits
                or not all(map(le, size, candidate.capacity))
            ):
                (parts if one.concerns(offer) else remaining).append(candidate)
                continue
            of_candidate = [
                replace(part, key=f"{candidate.key}#{number}.{place}")
                for place, part in enumerate(_parts(candidate, size, bits))
            ]
            offers.update((part.key, offer) for part in of_candidate)
            parts += of_candidate
        # A cut concerns all bins of a NodePool, capacity type and commitment, so one of these may dominate another.
        bins = [*remaining, *undominated(parts)]
    return replace(offered, bins=tuple(undominated(bins)), offers=offers)


def _parts(whole: Bin, size: Vector, bits: int) -> Iterator[Bin]:
    for axis, amount in enumerate(size):
        if amount:
            yield replace(whole, capacity=(*whole.capacity[:axis], amount - 1, *whole.capacity[axis + 1 :]))
    for index in range(bits.bit_length()):
        if bits >> index & 1 and whole.admits != 1 << index:
            yield replace(whole, admits=whole.admits & ~(1 << index))


def _bits(one: Cut, demands: Sequence[Demand]) -> int | None:
    """Return the kinds of a cut as bits of demands; None if one of them is no longer demanded."""
    indices = [index for index, demand in enumerate(demands) if _kind(demand) in one.kinds]
    return sum(1 << index for index in indices) if len(indices) == len(one.kinds) else None


def _kind(demand: Demand) -> _Kind:
    return demand.shape, demand.pins
