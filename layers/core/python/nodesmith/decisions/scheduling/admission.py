"""Which pods a NodePool's types and offerings admit, whatever their size."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from nodesmith.decisions.scheduling.compatibility import (
    OFFERING_KEYS,
    agreeing_terms,
    allows_offering,
    matching_types,
    taint_refusal,
)
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.decisions.scheduling.neighbours import ports_collide
from nodesmith.decisions.scheduling.templates import Choice, Template
from nodesmith.model.catalog import Offering
from nodesmith.model.requirements import NO_REQUIREMENTS, Requirements
from nodesmith.model.shapes import Shape


class Admission:
    """Which demands a template's types and offerings admit, as bit masks: one bit per demand and affinity term."""

    def __init__(self, template: Template, demands: Sequence[Demand]) -> None:
        self._pairs: list[tuple[int, Demand, Requirements]] = []
        self.refusals: dict[int, str] = {}
        self.port_holders: dict[int, Shape] = {}
        """by demand, a DaemonSet that takes its host port on some types"""
        for index, demand in enumerate(demands):
            refusal = taint_refusal(template.pool.taints, demand.shape)
            terms, why = ((), refusal) if refusal else agreeing_terms(template.requirements, demand.shape)
            if not terms:
                self.refusals[index] = why
            self._pairs += [(index, demand, term) for term in terms]
        self._types = self._type_masks(template)
        self._offerings: dict[tuple[str, str, str], int] = {}
        self._demands: dict[int, int] = {}

    def _type_masks(self, template: Template) -> dict[str, int]:
        bits: dict[Requirements, int] = {}
        for bit, (_, _, term) in enumerate(self._pairs):
            alike = _without_offering_keys(term)
            bits[alike] = bits.get(alike, 0) | 1 << bit
        everywhere = bits.pop(NO_REQUIREMENTS, 0)
        masks = dict.fromkeys(template.types.names, everywhere)
        for term, alike_bits in bits.items():
            for name in matching_types(template.types, term).names:
                masks[name] |= alike_bits
        for bit, (index, demand, _) in enumerate(self._pairs):
            for daemon, names in template.port_holders:
                if ports_collide(demand.shape.host_ports, daemon.host_ports):
                    self.port_holders[index] = daemon
                    for name in names:
                        masks[name] &= ~(1 << bit)
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
                if demand.zone in {None, offering.zone} and allows_offering(term, offering)
            )
        return self._offerings[key]


def _without_offering_keys(term: Requirements) -> Requirements:
    if OFFERING_KEYS.isdisjoint(term):
        return term
    return Requirements({key: r for key, r in term.items() if key not in OFFERING_KEYS})
