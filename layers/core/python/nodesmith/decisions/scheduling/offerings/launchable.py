"""Where new nodes for pods of a shape can be launched, and what a pod costs there.

A NodePool's types and offerings admit pods or not, regardless of size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import inf
from typing import NamedTuple, Protocol

from nodesmith.decisions.scheduling.compatibility import (
    OFFERING_KEYS,
    agreeing_terms,
    allows_offering,
    is_for_linux,
    matching_types,
    offering_labels,
    types_for_pods,
)
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.decisions.scheduling.offerings.options import (
    PricedOffer,
    PurchaseOption,
    TypeOption,
    TypeOptions,
    cheapest_shares,
    is_priced,
)
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.decisions.scheduling.topologyspread import Domain
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import Effect, Toleration, first_untolerated
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS, Requirement, Requirements
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import InstanceType, needs_dedicated
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.nodeclasses.instancesettings import WINDOWS_FAMILIES


class Launching(Protocol):
    """What scheduling needs to know about the offerings."""

    def domains(self, shape: Shape, keys: tuple[str, ...]) -> Sequence[Domain]:
        """Return the values of these labels, in order, that new nodes for pods of a shape may have.

        A value is empty where a node would not have the label.
        """

    def price(self, shape: Shape, keys: tuple[str, ...], domain: Domain) -> float:
        """Return an estimate of what one pod costs in such a domain, USD an hour."""

    def softly_tainted(self, shape: Shape) -> bool:
        """Return whether some NodePool's nodes have a PreferNoSchedule taint that these pods do not tolerate."""

    def refusing(self, tolerations: tuple[Toleration, ...]) -> frozenset[str]:
        """Return the names of the NodePools whose new nodes have a taint that these tolerations do not cover."""

    @property
    def scarce_zones(self) -> frozenset[str]:
        """The zones in which EC2 recently lacked capacity for many offerings."""


_ShapeNumbers = tuple[int, int]
"""Numbers of what pods ask of a node and of how much they request: shapes with equal numbers see the same offerings."""


class _PricedRoom(NamedTuple):
    """The capacity of a node and its lowest price. Exotic types are bought only for pods that fit no other."""

    room: Resources
    price_hourly_usd: float
    is_exotic: bool


class TemplateLaunching:
    """`Launching` by NodePools as they are: types and offerings left, ignoring limits."""

    def __init__(self, templates: Sequence[Template]) -> None:
        self._templates = templates
        self._asks: dict[Shape, _ShapeNumbers] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        self._places: dict[tuple[int, tuple[str, ...]], dict[Domain, list[_PricedRoom]]] = {}
        self._domains: dict[tuple[_ShapeNumbers, tuple[str, ...]], list[Domain]] = {}
        self._prices: dict[tuple[_ShapeNumbers, tuple[str, ...], Domain], float] = {}
        self._refusing: dict[tuple[Toleration, ...], frozenset[str]] = {}
        self._soft_taints = [
            t for template in templates for t in template.pool.taints if t.effect == Effect.PREFER_NO_SCHEDULE
        ]
        scarce = [frozenset(zone for _, zone in template.scarce) for template in templates]
        self.scarce_zones = frozenset.intersection(*scarce) if scarce else frozenset()

    def domains(self, shape: Shape, keys: tuple[str, ...]) -> Sequence[Domain]:
        """See `Launching`. In order of their values."""
        key = self._ask(shape), keys
        if key not in self._domains:
            requests = shape.requests
            self._domains[key] = [
                domain
                for domain, sold in self._sold(shape, keys).items()
                if any(requests.fits_in(offer.room) for offer in sold)
            ]
        return self._domains[key]

    def price(self, shape: Shape, keys: tuple[str, ...], domain: Domain) -> float:
        """See `Launching`. The price of the cheapest offering times the share of its node that a pod takes."""
        key = self._ask(shape), keys, domain
        if key not in self._prices:
            self._prices[key] = _cheapest(shape.requests, self._sold(shape, keys).get(domain, []))
        return self._prices[key]

    def softly_tainted(self, shape: Shape) -> bool:
        """See `Launching`."""
        return first_untolerated(self._soft_taints, shape.tolerations, soft=True) is not None

    def refusing(self, tolerations: tuple[Toleration, ...]) -> frozenset[str]:
        """See `Launching`."""
        if tolerations not in self._refusing:
            self._refusing[tolerations] = frozenset(
                t.name for t in self._templates if first_untolerated(t.pool.taints, tolerations)
            )
        return self._refusing[tolerations]

    def _ask(self, shape: Shape) -> _ShapeNumbers:
        ask = self._asks.get(shape)
        if ask is None:
            kind = self._number(shape.terms, shape.tolerations, shape.shuns_soft_taints)
            ask = self._asks[shape] = kind, self._number(shape.requests)
        return ask

    def _number(self, *parts: object) -> int:
        return self._numbers.setdefault(parts, len(self._numbers))

    def _sold(self, shape: Shape, keys: tuple[str, ...]) -> Mapping[Domain, list[_PricedRoom]]:
        kind, _ = self._ask(shape)
        alike = kind, keys
        if alike not in self._places:
            by_domain: dict[Domain, list[_PricedRoom]] = {}
            for domain, offers in self._offered(shape, keys):
                by_domain.setdefault(domain, []).extend(
                    _PricedRoom(g.type_option.room, g.cost_hourly_usd, g.type_option.is_exotic)
                    for g in offers
                )
            self._places[alike] = {
                domain: sorted(by_domain[domain], key=lambda s: (-s.room.cpu_milli, s.price_hourly_usd))
                for domain in sorted(by_domain)
            }
        return self._places[alike]

    def _offered(self, shape: Shape, keys: tuple[str, ...]) -> Iterator[tuple[Domain, Sequence[PricedOffer]]]:
        """Yield the offers in each domain, except those that are never the better choice."""
        for template in self._templates:
            admission = Admission(template, (Demand(shape, ()),))
            for type_options in (template.type_options, template.reserved):
                for _, types, purchase_options in admission.by_demands(type_options):
                    for kind, names in _labelled(type_options, types, keys):
                        domains: dict[Domain, list[PurchaseOption]] = {}
                        for purchase_option in purchase_options:
                            values = (_values(key, kind, purchase_option, template, shape) for key in keys)
                            for domain in product(*values):
                                domains.setdefault(domain, []).append(purchase_option)
                        for domain, same in domains.items():
                            yield domain, cheapest_shares(type_options, names, frozenset(same))


def _labelled(
    type_options: TypeOptions, types: frozenset[str], keys: Sequence[str]
) -> Iterable[tuple[InstanceType, frozenset[str]]]:
    """Split types by their values of these labels; yield one type of each part, and the names in the part."""
    type_keys = [key for key in keys if key not in OFFERING_KEYS]
    names_by_labels: dict[tuple[str | None, ...], list[str]] = {}
    for name in sorted(types) if type_keys else ():
        labels = type_options.kind(name).labels
        names_by_labels.setdefault(tuple(labels.get(key) for key in type_keys), []).append(name)
    parts = [frozenset(names) for names in names_by_labels.values()] if type_keys else [types]
    return [(type_options.kind(min(part)), part) for part in parts]


def _values(
    key: str, kind: InstanceType, purchase_option: PurchaseOption, template: Template, shape: Shape
) -> Sequence[str]:
    """Return the values of a label that such a node may have; empty string for no label.

    Return nothing if the NodePool allows any value and the pods name none.
    """
    offered = offering_labels(purchase_option.zone, purchase_option.zone_id, purchase_option.capacity_type)
    value = offered.get(key) or kind.labels.get(key)
    if value:
        return (value,)
    allowed = template.requirements.get(key)
    if allowed is None:
        return ("",)
    preferred = [allowed.intersection(term[key]) if key in term else allowed for term in shape.terms]
    return sorted(
        {value for requirement in preferred if not requirement.complement for value in requirement.values}
    )


def _cheapest(requests: Resources, sold: Iterable[_PricedRoom]) -> float:
    """Return the lowest price of a pod's share of a node that it fits on, USD an hour; infinite where there is none."""
    priced_requests = [(name, amount, is_priced(name)) for name, amount in requests.nonzero().items()]
    lowest = {False: inf, True: inf}
    for offer in sold:
        share, offered = 0.0, offer.room.amounts
        for name, amount, priced in priced_requests:
            room = offered.get(name, 0)
            if not 0 <= amount <= room:
                break
            if priced:
                share = max(share, amount / room)
        else:
            lowest[offer.is_exotic] = min(lowest[offer.is_exotic], offer.price_hourly_usd * share)
    return lowest[False] if lowest[False] < inf else lowest[True]


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
            shape = demand.shape
            key = (
                shape.terms,
                shape.tolerations,
                shape.shuns_soft_taints,
                demand.pins,
                demand.excluding_daemonsets,
            )
            alike.setdefault(key, []).append(index)
        for indices in alike.values():
            self._note(indices, demands[indices[0]])
        self._wanted = list(self._bits)
        self._types = self._type_masks()
        self._offerings: dict[tuple[str, str, str, bool | None], int] = {}
        dedicated = needs_dedicated(template.requirements)
        self._dedicated = [dedicated or needs_dedicated(term) for term, _ in self._wanted]
        self._demands: dict[int, int] = {}

    def _note(self, indices: Sequence[int], demand: Demand) -> None:
        """Record what the demands with these indices ask of a node; all ask the same as `demand`."""
        bits = sum(1 << index for index in indices)
        for term in _terms(self._template, demand.shape, demand.pins):
            key = term, demand.excluding_daemonsets
            self._bits[key] = self._bits.get(key, 0) | bits
        for daemon, _ in self._template.daemons if demand.excluding_daemonsets else ():
            if daemon in demand.excluding_daemonsets:
                self.port_holders |= dict.fromkeys(indices, daemon)

    def _type_masks(self) -> dict[str, int]:
        """Return, by type, which of the different requirements in `_wanted` it meets: bit j for the j-th."""
        alike: dict[_Wanted, int] = {}
        for bit, (term, apart) in enumerate(self._wanted):
            key = _without_offering_keys(term), apart
            alike[key] = alike.get(key, 0) | 1 << bit
        masks = dict.fromkeys(self._template.types.names, alike.pop((NO_REQUIREMENTS, ()), 0))
        for (term, apart), bits in alike.items():
            occupied: set[str] = set().union(
                *(names for daemon, names in self._template.daemons if daemon in apart)
            )
            given = frozenset(self._template.pool.labels)
            for name in types_for_pods(self._template.types, term, given).names:
                if name not in occupied:
                    masks[name] |= bits
        return masks

    def mask(self, type_option: TypeOption, offering: Offering) -> int:
        """Return the demands (bit i for demand i) whose pods may run on this type with this offering."""
        return self._asking(self._types[type_option.type.name] & self._offering_mask(offering))

    def by_demands(
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
            bits = 0
            for bit, key in enumerate(self._wanted):
                if met >> bit & 1:
                    bits |= self._bits[key]
            self._demands[met] = bits
        return self._demands[met]

    def _offering_mask(self, offering: Offering) -> int:
        tenancy = None if offering.reservation else offering.dedicated
        key = offering.zone, offering.zone_id, offering.capacity_type, tenancy
        if key not in self._offerings:
            self._offerings[key] = sum(
                1 << bit
                for bit, (term, _) in enumerate(self._wanted)
                if offering.has_tenancy(dedicated=self._dedicated[bit]) and allows_offering(term, offering)
            )
        return self._offerings[key]


def keeps_off(template: Template, shape: Shape) -> bool:
    """Return whether the NodePool has Windows nodes, and nothing says that these pods, which it admits, run there."""
    pool = template.pool
    return template.nodeclass.ami_family in WINDOWS_FAMILIES and is_for_linux(
        shape, template.requirements, pool.taints
    )


def is_sold_out(demand: Demand, template: Template, on_sale: Collection[TypeOption]) -> bool:
    """Return whether one pod would fit on a type that the NodePool may buy and that is not on sale now.

    All types in `on_sale` are too small for it.
    """
    names_on_sale, zones = (
        {type_option.type.name for type_option in on_sale},
        {subnet.zone for subnet in template.status.subnets},
    )
    types, given = matching_types(template.types, template.requirements), frozenset(template.pool.labels)
    for term in _terms(template, demand.shape, demand.pins):
        for kind in types_for_pods(types, term, given).types:
            daemon_requests = [daemon.requests for daemon, names in template.daemons if kind.name in names]
            if kind.name in names_on_sale or not sum(daemon_requests, demand.shape.requests).fits_in(
                kind.allocatable
            ):
                continue
            allowed = (o for o in kind.offerings if o.zone in zones and allows_offering(term, o))
            if any(allows_offering(template.requirements, offering) for offering in allowed):
                return True
    return False


def _terms(template: Template, shape: Shape, pins: FrozenMap[str]) -> tuple[Requirements, ...]:
    """Return the alternatives of what pods ask of the template's nodes, pins included."""
    if shape.untolerated(template.pool.taints) or keeps_off(template, shape):
        return ()
    terms = agreeing_terms(template.requirements, shape)
    if not pins or not terms:
        return terms
    requirements = [
        Requirement(key, frozenset((value,)) if value else frozenset()) for key, value in pins.items()
    ]
    pinned = (term.adding(*requirements) for term in terms)
    return tuple(term for term in pinned if template.requirements.conflict(term) is None)


def _without_offering_keys(term: Requirements) -> Requirements:
    if OFFERING_KEYS.isdisjoint(term):
        return term
    return Requirements({key: r for key, r in term.items() if key not in OFFERING_KEYS})
