"""From demands and templates to a packing problem: one bin per type and offering, one item per demand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import le, or_

from nodesmith.decisions.packing import Bin, Item
from nodesmith.decisions.scheduling.compatibility import (
    OFFERING_KEYS,
    compatible_terms,
    matching_types,
    taint_refusal,
)
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.decisions.scheduling.templates import Choice, Template
from nodesmith.model.catalog import Offering
from nodesmith.model.labels import CAPACITY_TYPE, ZONE, ZONE_ID
from nodesmith.model.requirements import Requirements
from nodesmith.model.resources import CPU, MEMORY, Resources

_EXOTIC_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "aws.amazon.com/neuron", "habana.ai/gaudi")
Vector = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ware:
    """What a bin stands for: a type of a NodePool, at its cheapest offering that admits the same demands."""

    template: Template
    choice: Choice
    offering: Offering


@dataclass(frozen=True, slots=True)
class Market:
    """Everything one tier of NodePools may sell to these demands. `admitted` answers who may go on what."""

    demands: tuple[Demand, ...]
    dimensions: tuple[str, ...]
    items: tuple[Item, ...]
    bins: tuple[Bin, ...]
    wares: Mapping[str, Ware]
    admission: Mapping[str, Admission]

    def ware(self, chosen: Bin) -> Ware:
        """Give what a bin stands for."""
        return self.wares[chosen.key]


class Admission:
    """Which demands a template's types and offerings admit, as bit masks: one bit per demand and affinity term."""

    def __init__(self, template: Template, demands: Sequence[Demand]) -> None:
        self._pairs: list[tuple[int, Demand, Requirements]] = []
        self.refusals: dict[int, str] = {}
        for index, demand in enumerate(demands):
            refusal = taint_refusal(template.pool.taints, demand.shape)
            terms, why = ((), refusal) if refusal else compatible_terms(template.requirements, demand.shape)
            if not terms:
                self.refusals[index] = why
            self._pairs += [(index, demand, term) for term in terms]
        self._types = self._type_masks(template)
        self._offerings: dict[tuple[str, str, str], int] = {}
        self._demands: dict[int, int] = {}

    def _type_masks(self, template: Template) -> dict[str, int]:
        masks = dict.fromkeys((t.name for t in template.types), 0)
        for bit, (_, _, term) in enumerate(self._pairs):
            for instance_type in matching_types(template.types, _without_offering_keys(term)):
                masks[instance_type.name] |= 1 << bit
        return masks

    def mask(self, choice: Choice, offering: Offering) -> int:
        """Give the demands (bit i for demand i) whose pods may run on this type bought this way."""
        pairs = self._types[choice.type.name] & self._offering_mask(offering)
        if pairs not in self._demands:
            self._demands[pairs] = reduce(
                or_, (1 << index for bit, (index, _, _) in enumerate(self._pairs) if pairs >> bit & 1), 0
            )
        return self._demands[pairs]

    def _offering_mask(self, offering: Offering) -> int:
        key = offering.zone, offering.zone_id, offering.capacity_type
        if key not in self._offerings:
            self._offerings[key] = sum(
                1 << bit
                for bit, (_, demand, term) in enumerate(self._pairs)
                if demand.zone in {None, offering.zone} and _offering_allowed(term, offering)
            )
        return self._offerings[key]


def _without_offering_keys(term: Requirements) -> Requirements:
    if OFFERING_KEYS.isdisjoint(term):
        return term
    return Requirements({key: r for key, r in term.items() if key not in OFFERING_KEYS})


def _offering_allowed(term: Requirements, offering: Offering) -> bool:
    values = {ZONE: offering.zone, ZONE_ID: offering.zone_id, CAPACITY_TYPE: offering.capacity_type}
    return all(term[key].allows(value) for key, value in values.items() if key in term)


def market(tier: Sequence[Template], demands: Sequence[Demand]) -> Market:
    """Set out what the templates of one tier can sell for these demands."""
    dimensions = _dimensions(demands)
    items = tuple(
        Item(_vector(d.shape.requests, dimensions), len(d.pods), min(d.per_node, len(d.pods)))
        for d in demands
    )
    admission = {template.name: Admission(template, demands) for template in tier}
    plain: list[Bin] = []
    exotic: list[Bin] = []
    wares: dict[str, Ware] = {}
    for purse, template in enumerate(tier):
        for choice in template.choices:
            bins = _bins(template, choice, admission[template.name], dimensions, purse, wares)
            (exotic if _is_exotic(choice) else plain).extend(bins)
    return Market(
        tuple(demands), dimensions, items, tuple(plain) + _needed(items, plain, exotic), wares, admission
    )


def _bins(
    template: Template,
    choice: Choice,
    admission: Admission,
    dimensions: Sequence[str],
    purse: int,
    wares: dict[str, Ware],
) -> list[Bin]:
    room = _vector(choice.room, dimensions)
    cost: Vector = ()
    if template.remaining:
        cost = tuple(limit_cost(choice, name) for name in sorted(template.remaining))
    found: dict[int, Bin] = {}
    for offering in choice.offerings:
        mask = admission.mask(choice, offering)
        if mask and mask not in found:
            key = f"{template.name}/{choice.type.name}/{offering.zone}/{offering.capacity_type}"
            wares[key] = Ware(template, choice, offering)
            found[mask] = Bin(key, room, offering.price_hourly_usd, mask, purse if cost else -1, cost)
    return list(found.values())


def limit_cost(choice: Choice, name: str) -> int:
    """Give what one node takes of a NodePool's limit; the limit `nodes` counts nodes."""
    return 1 if name == "nodes" else choice.type.capacity.of(name)


def purses(tier: Sequence[Template]) -> dict[int, Vector]:
    """Give what each template's limits still allow, by its place in the tier."""
    return {
        index: tuple(template.remaining[name] for name in sorted(template.remaining))
        for index, template in enumerate(tier)
        if template.remaining
    }


def _needed(items: Sequence[Item], plain: Iterable[Bin], exotic: Sequence[Bin]) -> tuple[Bin, ...]:
    """Bare metal and accelerators are only bought for what fits nothing else."""
    if not exotic:
        return ()
    unserved = (1 << len(items)) - 1
    for candidate in sorted(plain, key=lambda b: (-b.room[0], b.key)):
        for index, item in enumerate(items):
            if candidate.admits & unserved >> index & 1 and all(map(le, item.size, candidate.room)):
                unserved &= ~(1 << index)
        if not unserved:
            break
    return tuple(b for b in exotic if b.admits & unserved)


def _is_exotic(choice: Choice) -> bool:
    return "metal" in choice.type.name or any(choice.type.capacity.of(r) for r in _EXOTIC_RESOURCES)


def _dimensions(demands: Sequence[Demand]) -> tuple[str, ...]:
    named = {name for d in demands for name, amount in d.shape.requests.items() if amount}
    return (CPU, MEMORY, *sorted(named - {CPU, MEMORY}))


def _vector(resources: Resources, dimensions: Sequence[str]) -> Vector:
    return tuple(max(0, resources.of(name)) for name in dimensions)
