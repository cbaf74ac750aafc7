"""Which pods a NodePool's types and offerings admit, regardless of size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodesmith.decisions.scheduling.compatibility import (
    OFFERING_KEYS,
    agreeing_terms,
    allows_offering,
    types_for_pods,
)
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.decisions.scheduling.offerings.options import PurchaseOption, TypeOption, TypeOptions
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.decisions.scheduling.operatingsystems import is_for_linux
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS, Requirement, Requirements
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.nodeclasses.devices import WINDOWS_FAMILIES

_Wanted = tuple[Requirements, tuple[Shape, ...]]
"""What some demands ask of a node, and the DaemonSets that they cannot share it with."""


class Admission:
    """Which demands a template's types and offerings admit, as bit masks: bit i for demand i.

    `port_holders` names, by demand, a DaemonSet that keeps it off some types.
    """

    def __init__(self, template: Template, demands: Sequence[Demand]) -> None:
        self.port_holders: dict[int, Shape] = {}
        self._template = template
        self._bits: dict[_Wanted, int] = {}
        alike: dict[tuple[object, ...], list[int]] = {}
        for index, demand in enumerate(demands):
            asked = demand.shape
            key = asked.terms, asked.tolerations, asked.shuns_soft_taints, demand.pins, demand.apart
            alike.setdefault(key, []).append(index)
        for indices in alike.values():
            self._note(indices, demands[indices[0]])
        self._wanted = list(self._bits)
        self._types = self._type_masks()
        self._offerings: dict[tuple[str, str, str], int] = {}
        self._demands: dict[int, int] = {}

    def _note(self, indices: Sequence[int], demand: Demand) -> None:
        """Record what the demands with these indices ask of a node; all ask the same as `demand`."""
        bits = sum(1 << index for index in indices)
        for term in _terms(self._template, demand.shape, demand.pins):
            wanted = term, demand.apart
            self._bits[wanted] = self._bits.get(wanted, 0) | bits
        for daemon, _ in self._template.daemons if demand.apart else ():
            if daemon in demand.apart:
                self.port_holders |= dict.fromkeys(indices, daemon)

    def _type_masks(self) -> dict[str, int]:
        """Return, by type, which of the different requirements in `_wanted` it meets: bit j for the j-th."""
        alike: dict[_Wanted, int] = {}
        for bit, (term, apart) in enumerate(self._wanted):
            key = _without_offering_keys(term), apart
            alike[key] = alike.get(key, 0) | 1 << bit
        masks = dict.fromkeys(self._template.types.names, alike.pop((NO_REQUIREMENTS, ()), 0))
        for (term, apart), bits in alike.items():
            taken: set[str] = set().union(
                *(names for daemon, names in self._template.daemons if daemon in apart)
            )
            given = frozenset(self._template.pool.labels)
            for name in types_for_pods(self._template.types, term, given).names:
                if name not in taken:
                    masks[name] |= bits
        return masks

    def mask(self, type_option: TypeOption, offering: Offering) -> int:
        """Return the demands (bit i for demand i) whose pods may run on this type with this offering."""
        return self._asking(self._types[type_option.type.name] & self._offering_mask(offering))

    def alike(
        self, type_options: TypeOptions
    ) -> Iterator[tuple[int, frozenset[str], frozenset[PurchaseOption]]]:
        """Yield the demands (bits) that a set of types and purchase options admits together, where there are any."""
        types: dict[int, list[str]] = {}
        for name in type_options.by_type:
            types.setdefault(self._types[name], []).append(name)
        for met, names in types.items():
            purchase_options: dict[int, list[PurchaseOption]] = {}
            for purchase_option, example in type_options.purchase_options.items():
                purchase_options.setdefault(self._asking(met & self._offering_mask(example)), []).append(
                    purchase_option
                )
            for demands, same in purchase_options.items():
                if demands:
                    yield (
                        demands,
                        type_options.names if len(types) == 1 else frozenset(names),
                        frozenset(same),
                    )

    def _asking(self, met: int) -> int:
        """Return the demands that ask for one of the requirements in `met`."""
        if met not in self._demands:
            found = 0
            for bit, wanted in enumerate(self._wanted):
                if met >> bit & 1:
                    found |= self._bits[wanted]
            self._demands[met] = found
        return self._demands[met]

    def _offering_mask(self, offering: Offering) -> int:
        key = offering.zone, offering.zone_id, offering.capacity_type
        if key not in self._offerings:
            self._offerings[key] = sum(
                1 << bit for bit, (term, _) in enumerate(self._wanted) if allows_offering(term, offering)
            )
        return self._offerings[key]


def keeps_off(template: Template, shape: Shape) -> bool:
    """Return whether the NodePool has Windows nodes, and nothing says that these pods, which it admits, run there."""
    pool = template.pool
    return template.nodeclass.ami_family in WINDOWS_FAMILIES and is_for_linux(
        shape, template.requirements, pool.taints
    )


def _terms(template: Template, shape: Shape, pins: FrozenMap[str]) -> tuple[Requirements, ...]:
    """Return the alternatives of what pods ask of the template's nodes, pins included."""
    if shape.untolerated(template.pool.taints) or keeps_off(template, shape):
        return ()
    terms = agreeing_terms(template.requirements, shape)
    if not pins or not terms:
        return terms
    asked = [Requirement(key, frozenset((value,)) if value else frozenset()) for key, value in pins.items()]
    pinned = (term.adding(*asked) for term in terms)
    return tuple(term for term in pinned if template.requirements.conflict(term) is None)


def _without_offering_keys(term: Requirements) -> Requirements:
    if OFFERING_KEYS.isdisjoint(term):
        return term
    return Requirements({key: r for key, r in term.items() if key not in OFFERING_KEYS})
