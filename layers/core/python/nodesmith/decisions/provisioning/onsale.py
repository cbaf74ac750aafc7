"""What the NodePools of a cluster may buy: the part of EC2's offerings that their requirements and subnets allow."""

from __future__ import annotations

from collections.abc import Iterator

from nodesmith.decisions.provisioning.decide import Inputs
from nodesmith.decisions.provisioning.nodepooltiers import parsed_nodeclasses, template_of
from nodesmith.decisions.scheduling.compatibility import OFFERING_KEYS, allows_offering, matching_types
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.resources import CPU, MEMORY
from nodesmith.model.ec2.catalog import InstanceFacts, Offering, StatedFacts
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.metrics.onsale import OfferingOnSale, OnSale, TypeOnSale
from nodesmith.model.nodeclasses.status import NodeClassStatus

_MILLI, _MIB = 1000, 2**20


def on_sale(inputs: Inputs) -> OnSale:
    """Return the types and offerings, including those short of capacity. Capacity reservations are left out."""
    ledger, now = inputs.ledger, inputs.now
    closed = {key for key, backoff in ledger.unavailable.items() if backoff.holds(now)}
    found: dict[str, dict[tuple[str, str], OfferingOnSale]] = {}
    for template in _templates(inputs):
        for name, offering in _allowed(template, ledger.nodeclasses[template.status.name]):
            key = offering.capacity_type, offering.zone
            is_open = offering.zone in {subnet.zone for subnet in template.status.subnets}
            is_available = is_open and OfferingKey(offering.capacity_type, name, offering.zone) not in closed
            one = OfferingOnSale(*key, offering.price_hourly_usd, is_available)
            found.setdefault(name, {})[key] = one
    return {
        name: TypeOnSale(*_room(inputs.catalog.facts[name]), tuple(of[key] for key in sorted(of)))
        for name, of in sorted(found.items())
    }


def _templates(inputs: Inputs) -> Iterator[Template]:
    """Yield each NodePool's template, whether or not it may buy now."""
    snapshot, ledger = inputs.snapshot, inputs.ledger
    nodeclasses = parsed_nodeclasses(snapshot)
    for _, pool in sorted(parsed_nodepools(snapshot.nodepools).items()):
        name = pool.nodeclass.name
        if name in nodeclasses and name in ledger.nodeclasses:
            yield template_of(
                pool, nodeclasses[name], snapshot, ledger, inputs.catalog, inputs.settings, inputs.now
            )


def _allowed(template: Template, status: NodeClassStatus) -> Iterator[tuple[str, Offering]]:
    zones = {subnet.zone for subnet in status.subnets}
    wanted = {key: template.requirements[key] for key in OFFERING_KEYS if key in template.requirements}
    for kind in matching_types(template.types, template.requirements).types:
        for offering in kind.offerings:
            if offering.zone in zones and allows_offering(wanted, offering):
                yield kind.name, offering


def _room(facts: InstanceFacts | StatedFacts) -> tuple[int, int]:
    """Return cores and bytes as EC2 states them."""
    if isinstance(facts, InstanceFacts):
        return facts.vcpus, facts.memory_mib * _MIB
    return facts.capacity.of(CPU) // _MILLI, facts.capacity.of(MEMORY)
