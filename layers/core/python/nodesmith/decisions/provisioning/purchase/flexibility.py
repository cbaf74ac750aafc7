"""The other offerings a planned node may have: with more capacity pools to choose from, EC2 launches more reliably.

All of them hold the node's pods and satisfy their constraints. The list ends where prices exceed a tolerance above the
price the node was chosen for, but not before it has enough types for EC2 to choose well (AWS asks for at least ten to
fifteen on spot). Where EC2 recently lacked capacity for many offerings, the list is as long as a request may be:
finding capacity comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import gt

from nodesmith.decisions.launch import MAX_OVERRIDES
from nodesmith.decisions.packing import Vector
from nodesmith.decisions.provisioning.purchase.packingproblem import Offer, TemplateOffers
from nodesmith.decisions.scheduling.offerings.placementgroups import limited_zone
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, ON_DEMAND, SPOT, ZONE
from nodesmith.model.apimachinery.requirements import Requirement
from nodesmith.model.policies import MinValuesPolicy

_ENOUGH_TYPES = 15
_USUAL_TOLERANCE, _WIDEST_TOLERANCE, _SCARCE_TOLERANCE = 1.25, 2.0, 4.0


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


def options(
    template_offers: TemplateOffers,
    chosen: Offer,
    demands: int,
    size: Vector,
    most: Vector,
    policy: MinValuesPolicy = MinValuesPolicy.STRICT,
) -> Options:
    """Return what one node may be, from its template's offers.

    `demands` are the bits of the demands whose pods it holds, `size` is their total request, `most` is what it may take
    of the NodePool's limits, in order of their names; `policy` says whether it may be bought without all its minValues.
    """
    flexible, is_pinned = _flexible(chosen), _is_counted_by_zone(chosen.template)
    price, zone = chosen.offering.cost_hourly_usd, chosen.offering.zone
    scarce = (chosen.offering.capacity_type, zone) in chosen.template.scarce
    kept: list[Offer] = []
    types: set[str] = set()
    dearer: list[Offer] = []
    worthwhile = True  # spot that costs more than on-demand is not
    for offer in template_offers.holding(demands, size):
        enough = len(types) >= _ENOUGH_TYPES
        tolerance = _USUAL_TOLERANCE if enough else _WIDEST_TOLERANCE
        dear = offer.offering.cost_hourly_usd > price * (_SCARCE_TOLERANCE if scarce else tolerance)
        full = dear or not worthwhile or len(kept) >= MAX_OVERRIDES
        if full and not _lacking(flexible, _sold_in(zone, kept)):
            break
        if offer.offering.capacity_type != chosen.offering.capacity_type:
            if (offer.offering.capacity_type, chosen.offering.capacity_type) == (ON_DEMAND, SPOT):
                worthwhile = False
            continue
        if offer.offering.reservation != chosen.offering.reservation:
            continue  # another reservation has limits of its own
        if is_pinned and offer.offering.zone != zone:
            continue  # the plan counts how many instances a placement group has in each zone
        if any(map(gt, template_offers.cost(offer), most)):
            continue
        if offer.is_exotic and not chosen.is_exotic:
            continue
        (dearer if full else kept).append(offer)
        types.add(offer.type_option.type.name)
    kept = _sounder(_choosier(kept, dearer, flexible, zone), flexible, zone)
    lacking = _lacking(flexible, kept)
    if lacking and policy is MinValuesPolicy.STRICT:
        short = ", ".join(f"{r.key} {len(values_of(r, kept))} of {r.min_values}" for r in lacking)
        return Options((), f"minValues requirement is not met for label(s) {short}")
    return Options(tuple(kept), relaxed=bool(lacking))


def has_choice(template_offers: TemplateOffers, chosen: Offer, demands: int, size: Vector) -> bool:
    """Return whether a node that holds so much can satisfy minValues, ignoring limits."""
    flexible = _flexible(chosen)
    alike = [
        offer
        for offer in template_offers.holding(demands, size)
        if offer.offering.capacity_type == chosen.offering.capacity_type
        and offer.offering.reservation == chosen.offering.reservation
        and (chosen.is_exotic or not offer.is_exotic)
    ]
    return not _lacking(flexible, alike)


def _flexible(chosen: Offer) -> list[Requirement]:
    return [r for _, r in sorted(chosen.template.requirements.items()) if r.min_values]


def _is_counted_by_zone(template: Template) -> bool:
    return any(limited_zone(name) for name in template.remaining)


def _lacking(flexible: Iterable[Requirement], kept: Sequence[Offer]) -> list[Requirement]:
    """Return the requirements whose minValues these offers do not reach."""
    return [r for r in flexible if len(values_of(r, kept)) < (r.min_values or 0)]


def _sold_in(zone: str, offers: Iterable[Offer]) -> list[Offer]:
    return [offer for offer in offers if offer.offering.zone == zone]


def _choosier(
    kept: list[Offer], others: Sequence[Offer], flexible: Sequence[Requirement], zone: str
) -> list[Offer]:
    """Add the offers that minValues lack, first in the zone where the node most likely launches, then anywhere."""
    kept = _supplied(kept, _sold_in(zone, others), flexible, zone)
    kept = _supplied(kept, others, flexible)
    return sorted(kept, key=lambda w: (w.offering.cost_hourly_usd, w.type_option.type.name, w.offering.zone))


def _sounder(kept: list[Offer], flexible: Sequence[Requirement], zone: str) -> list[Offer]:
    """Leave out pools with recent interruptions, the riskiest first, because EC2 weighs prices and not our losses.

    A pool stays if its type is sold nowhere else and too few other types remain, or if minValues need it.
    """
    short = len(_lacking(flexible, kept)), len(_lacking(flexible, _sold_in(zone, kept)))
    risky = [offer for offer in kept if offer.offering.risk_hourly_usd]
    for offer in sorted(risky, key=lambda w: (-w.offering.risk_hourly_usd, w.key)):
        left = [each for each in kept if each is not offer]
        types = {each.type_option.type.name for each in left}
        if offer.type_option.type.name not in types and len(types) < _ENOUGH_TYPES:
            continue
        if short == (len(_lacking(flexible, left)), len(_lacking(flexible, _sold_in(zone, left)))):
            kept = left
    return kept


def _supplied(
    kept: list[Offer], others: Iterable[Offer], flexible: Sequence[Requirement], zone: str | None = None
) -> list[Offer]:
    """Add offers until minValues are reached, counting only those in `zone` if one is given."""
    for offer in others:
        among = kept if zone is None else _sold_in(zone, kept)
        needed = _lacking(flexible, among)
        if not needed:
            break
        if any(not values_of(r, [offer]) <= values_of(r, among) for r in needed):
            kept = _making_room(kept, offer)
    return kept


def _making_room(kept: list[Offer], offer: Offer) -> list[Offer]:
    """Add an offer; if the list is full, it replaces the most expensive offer of a type that occurs twice."""
    if len(kept) < MAX_OVERRIDES:
        return [*kept, offer]
    names = [k.type_option.type.name for k in kept]
    spare = next((i for i in reversed(range(len(kept))) if names.count(names[i]) > 1), None)
    return kept if spare is None else [*kept[:spare], *kept[spare + 1 :], offer]


def values_of(requirement: Requirement, kept: Iterable[Offer]) -> set[str]:
    """Return the values of a label that these offers leave possible.

    A request has one capacity type, so for that label all offerings of the types count.
    """
    if requirement.key == CAPACITY_TYPE:
        return {offering.capacity_type for offer in kept for offering in offer.type_option.offerings}
    if requirement.key == ZONE:
        return {offer.offering.zone for offer in kept}
    labels = (offer.type_option.type.labels.get(requirement.key) for offer in kept)
    return {value for value in labels if value is not None}
