"""The other offerings a planned node may be: the more pools of capacity EC2 may choose from, the surer it launches.

All of them hold the node's pods and satisfy their constraints. The list is cut where prices leave what the node was
chosen for, but not before it has enough types for EC2 to choose well (AWS asks for at least ten to fifteen on spot).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nodesmith.decisions.provisioning.market import Admission, limit_cost
from nodesmith.decisions.scheduling.templates import Choice, Template
from nodesmith.model.catalog import Offering
from nodesmith.model.labels import ON_DEMAND, SPOT
from nodesmith.model.requirements import Requirement, Requirements
from nodesmith.model.resources import Resources

MAX_OVERRIDES = 60
_ENOUGH_TYPES = 15
_USUAL_TOLERANCE, _WIDEST_TOLERANCE = 1.25, 2.0

Option = tuple[Choice, Offering]


@dataclass(frozen=True, slots=True)
class Options:
    """Offerings for one node, cheapest first; `refusal` is why there are none that satisfy minValues."""

    options: tuple[Option, ...]
    refusal: str = ""


def options(
    template: Template, admission: Admission, demands: int, requests: Resources, chosen: Option, exotic: bool
) -> Options:
    """Give what one node may be. `demands` are the bits of its demands, `requests` the sum of its pods' requests."""
    capacity_type = chosen[1].capacity_type
    limits = {name: limit_cost(chosen[0], name) for name in template.remaining}
    fitting = [
        (choice, offering)
        for choice in template.choices
        if requests.fits_in(choice.room)
        and all(limit_cost(choice, name) <= most for name, most in limits.items())
        for offering in choice.offerings
        if not admission.mask(choice, offering) & demands ^ demands
    ]
    fitting.sort(key=lambda o: (o[1].price_hourly_usd, o[0].type.name, o[1].zone))
    same = [o for o in fitting if o[1].capacity_type == capacity_type]
    if capacity_type == SPOT:
        same = _below_on_demand(same, fitting)
    return _cut(same, template.requirements, chosen[1].price_hourly_usd, exotic)


def _below_on_demand(same: list[Option], fitting: Iterable[Option]) -> list[Option]:
    """Leave out spot that costs more than buying on demand would."""
    on_demand = next((o for o in fitting if o[1].capacity_type == ON_DEMAND), None)
    if on_demand is None:
        return same
    return [o for o in same if o[1].price_hourly_usd <= on_demand[1].price_hourly_usd]


def _cut(same: Sequence[Option], requirements: Requirements, price: float, exotic: bool) -> Options:
    flexible = [requirements[key] for key in sorted(requirements) if requirements[key].min_values]
    kept: list[Option] = []
    types: set[str] = set()
    for option in same:
        choice, offering = option
        enough = len(types) >= _ENOUGH_TYPES
        dear = offering.price_hourly_usd > price * (_USUAL_TOLERANCE if enough else _WIDEST_TOLERANCE)
        needed = [r for r in flexible if len(_values(r, kept)) < (r.min_values or 0)]
        if dear and not needed:
            break
        if not exotic and "metal" in choice.type.name:
            continue
        if len(kept) == MAX_OVERRIDES or dear:
            kept = _making_room(kept, option, needed)
        else:
            kept.append(option)
        types.add(choice.type.name)
        if len(kept) == MAX_OVERRIDES and not needed:
            break
    missing = [r for r in flexible if len(_values(r, kept)) < (r.min_values or 0)]
    if missing:
        short = ", ".join(f"{r.key} {len(_values(r, kept))} of {r.min_values}" for r in missing)
        return Options((), f"minValues requirement is not met for label(s) {short}")
    return Options(tuple(kept))


def _making_room(kept: list[Option], option: Option, needed: Iterable[Requirement]) -> list[Option]:
    """Take an option that brings a value some minValues still lacks; the dearest doubled one gives way."""
    if not any(_value(r, option) not in _values(r, kept) for r in needed):
        return kept
    if len(kept) < MAX_OVERRIDES:
        return [*kept, option]
    names = [choice.type.name for choice, _ in kept]
    spare = next((i for i in reversed(range(len(kept))) if names.count(names[i]) > 1), None)
    return kept if spare is None else [*kept[:spare], *kept[spare + 1 :], option]


def _values(requirement: Requirement, kept: Iterable[Option]) -> set[str]:
    return {value for option in kept if (value := _value(requirement, option)) is not None}


def _value(requirement: Requirement, option: Option) -> str | None:
    choice, offering = option
    own = {
        "topology.kubernetes.io/zone": offering.zone,
        "karpenter.sh/capacity-type": offering.capacity_type,
    }
    return own.get(requirement.key) or choice.type.labels.get(requirement.key)
