"""What NodePools may buy of EC2's offerings, and what each of their requirements removes.

Metrics report the former; the command line explains the latter.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from nodesmith.decisions.provisioning.nodepools.tiers import (
    Pools,
    health_of,
    parsed_nodeclasses,
    pools,
    template_of,
    tenancies,
)
from nodesmith.decisions.provisioning.plan import Inputs
from nodesmith.decisions.readiness.launchconditions import launch_fault
from nodesmith.decisions.scheduling.compatibility import (
    OFFERING_KEYS,
    allows_offering,
    matching_types,
    type_refusal,
)
from nodesmith.decisions.scheduling.offerings.overlays import Overlays, overlays_of
from nodesmith.decisions.scheduling.offerings.quotas import sentences
from nodesmith.decisions.scheduling.offerings.templates import Template, template_labels
from nodesmith.model.apimachinery.quantities import CPU, MEMORY
from nodesmith.model.apimachinery.requirements import Requirement, Requirements
from nodesmith.model.ec2.catalog import InstanceFacts, Offering, StatedFacts
from nodesmith.model.ec2.instancetypes import InstanceType, instance_types, needs_dedicated
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.karpenter.nodepools import (
    OBJECTIVE,
    NodePool,
    Objective,
    parse_nodepools,
    parsed_nodepools,
)
from nodesmith.model.kubernetes.podannotations import surcharge_of
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.metrics.objects import OfferingOnSale, OnSale, TypeOnSale
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass, NodeConfiguration
from nodesmith.model.nodeclasses.status import NodeClassStatus
from nodesmith.model.policies import NODE_SURCHARGE

_MILLI, _MIB = 1000, 2**20


def on_sale(inputs: Inputs) -> OnSale:
    """Return the types and offerings, including those short of capacity. Capacity reservations are left out."""
    ledger, now = inputs.ledger, inputs.now
    closed = {key for key, backoff in ledger.unavailable.items() if backoff.holds(now)}
    by_type: dict[str, dict[tuple[str, str], OfferingOnSale]] = {}
    for template in _templates(inputs):
        exhausted = ledger.exhausted(template.types.types, now)
        for name, offering in _allowed(template, ledger.nodeclasses[template.status.name]):
            key = offering.capacity_type, offering.zone
            is_open = offering.zone in {s.zone for s in template.status.subnets}
            pool = OfferingKey(offering.capacity_type, name, offering.zone)
            is_available = is_open and pool not in closed and pool not in exhausted
            offering_on_sale = OfferingOnSale(*key, offering.paid_hourly_usd, is_available)
            by_type.setdefault(name, {})[key] = offering_on_sale
    return {
        name: TypeOnSale(*_room(inputs.catalog.facts[name]), tuple(of[key] for key in sorted(of)))
        for name, of in sorted(by_type.items())
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
    requirements = {key: template.requirements[key] for key in OFFERING_KEYS if key in template.requirements}
    dedicated = needs_dedicated(template.requirements)
    for kind in matching_types(template.types, template.requirements).types:
        for offering in kind.offerings:
            if not offering.has_tenancy(dedicated=dedicated):
                continue  # for pods that ask for it: a series has one price, that of the NodePool's other nodes
            if offering.zone in zones and allows_offering(requirements, offering):
                yield kind.name, offering


def _room(facts: InstanceFacts | StatedFacts) -> tuple[int, int]:
    """Return cores and bytes as EC2 states them."""
    if isinstance(facts, InstanceFacts):
        return facts.vcpus, facts.memory_mib * _MIB
    return facts.capacity.of(CPU) // _MILLI, facts.capacity.of(MEMORY)


@dataclass(frozen=True, slots=True)
class Removal:
    """One condition, how many of all types it removes, and how many only it removes."""

    condition: str
    types: int
    alone: int


@dataclass(frozen=True, slots=True)
class Considered:
    """A NodePool's types: `all` in the catalogue, `left` after every condition; `removals`, most types first.

    `obstacle` is why it buys nothing now, empty if it may buy. `nodeclass_fault` is why launches from its EC2NodeClass
    fail, empty unless they have failed often.
    """

    nodepool: str
    all: int
    left: int
    removals: tuple[Removal, ...]
    obstacle: str = ""
    nodeclass_fault: str = ""
    overlays: tuple[str, ...] = ()
    """the NodeOverlays that apply to its types, and those that do not although they exist, each in a sentence"""
    limits: tuple[str, ...] = ()
    """The quotas that its nodes may count against, each with its use, in a sentence."""
    costs: tuple[str, ...] = ()
    """What decides about its nodes apart from prices: surcharges and the objective, each in a sentence."""


def considered(inputs: Inputs, only: Container[str] | None = None) -> list[Considered]:
    """Count for every valid NodePool, or for those with the names `only`, in order of name."""
    by_name = parsed_nodeclasses(inputs.snapshot)
    parsed = [result.value for result in parse_nodepools(inputs.snapshot.nodepools)]
    offers = pools(inputs.snapshot, inputs.ledger, inputs.catalog, inputs.settings, inputs.now)
    obstacles = offers.obstacles
    limits = {template.name: tuple(sentences(template)) for template in offers.templates}
    pools_by_name = sorted((p for p in parsed if p is not None), key=lambda p: p.name)
    counted = [pool for pool in pools_by_name if only is None or pool.name in only]
    results = [
        _considered(pool, by_name.get(pool.nodeclass.name), inputs, obstacles.get(pool.name, ""))
        for pool in counted
    ]
    overlays = overlays_of(inputs.snapshot, inputs.catalog, inputs.settings)
    return [
        replace(
            result,
            nodeclass_fault=_fault(pool, pools_by_name, inputs.ledger),
            overlays=tuple(_overlaid(pool, overlays)),
            limits=limits.get(pool.name, ()),
            costs=tuple(_costs(pool, offers)),
        )
        for result, pool in zip(results, counted, strict=True)
    ]


def _costs(pool: NodePool, offers: Pools) -> Iterator[str]:
    """Yield the surcharges on nodes of a NodePool, and its objective if that is not the price."""
    template = next((candidate for candidate in offers.templates if candidate.name == pool.name), None)
    if pool.node_surcharge_hourly_usd:
        yield f"each node costs ${pool.node_surcharge_hourly_usd:.4f}/hour besides ({NODE_SURCHARGE})"
    for daemon, types in template.daemons if template else ():
        if surcharge := surcharge_of(daemon):
            name = f"{daemon.namespace}/{daemon.owner.removeprefix('DaemonSet/')}"
            scope = f"each node of {len(types):,} types"
            yield f"DaemonSet {name} adds ${surcharge:.4f}/hour to {scope} ({NODE_SURCHARGE})"
    if template and template.least_nodes:
        names = [t.name for t in offers.templates if t.pool.options.objective is Objective.LEAST_NODES]
        is_own = pool.options.objective is Objective.LEAST_NODES
        of = "" if is_own else f" of NodePool {names[0]}, which has the same weight"
        yield f"plans have as few nodes as possible ({OBJECTIVE}{of})"


def _overlaid(pool: NodePool, overlays: Overlays) -> Iterator[str]:
    """Yield what NodeOverlays change for a NodePool, the heaviest first, and why the others change nothing."""
    for overlay in overlays.applied:
        types = overlays.reach(overlay).get(pool.name, 0)
        if types:
            example = overlays.example(pool, overlay)
            such_as = f", such as {_both_prices(*example)}" if example else ""
            yield f"{overlay.name} (weight {overlay.weight}): {overlay.change} for {types:,} types{such_as}"
    for name, fault in sorted(overlays.contradicting.items()):
        yield f"{name}: left out, because it {fault}"
    for problem in overlays.problems:
        if problem.fatal:
            yield f"{problem.object.partition('/')[2]}: left out: {problem.field} is {problem.found}: {problem.remedy}"


def _both_prices(kind: str, offering: Offering) -> str:
    subject = f"{kind} ({offering.capacity_type}, {offering.zone})"
    return (
        f"{subject} at ${offering.price_hourly_usd:.4f}, which AWS sells at ${offering.listed_hourly_usd:.4f}"
    )


def _fault(pool: NodePool, all_pools: Sequence[NodePool], ledger: Ledger) -> str:
    health = {other.name: current for other in all_pools if (current := health_of(other, ledger)) is not None}
    fault = launch_fault(pool.nodeclass.name, all_pools, health)
    return f"EC2NodeClass {pool.nodeclass.name}: {fault.reason}: {fault.message}" if fault else ""


def _considered(pool: NodePool, nodeclass: EC2NodeClass | None, inputs: Inputs, obstacle: str) -> Considered:
    if nodeclass is None:
        return Considered(pool.name, 0, 0, (), obstacle)
    configuration = NodeConfiguration.of(nodeclass, tenancies(pool, inputs.snapshot))
    types = instance_types(inputs.catalog, configuration, inputs.settings)
    removed = {
        condition: names
        for condition, names in _removed(pool, types, inputs, nodeclass.name).items()
        if names
    }
    removals = [
        Removal(condition, len(names), len(names - _removed_by_others(removed, condition)))
        for condition, names in removed.items()
    ]
    removals.sort(key=lambda r: (-r.types, r.condition))
    remaining = len(types) - len(frozenset().union(*removed.values()))
    return Considered(pool.name, len(types), remaining, tuple(removals), obstacle)


def _removed_by_others(removed: dict[str, frozenset[str]], condition: str) -> frozenset[str]:
    return frozenset().union(*(names for other, names in removed.items() if other != condition))


def _removed(
    pool: NodePool, types: Sequence[InstanceType], inputs: Inputs, nodeclass: str
) -> dict[str, frozenset[str]]:
    """Return the names of the types that each condition removes."""
    requirements = pool.requirements.union(Requirements.from_labels(template_labels(pool)))
    removed = {
        str(requirement): frozenset(_refused(requirement, types))
        for key, requirement in sorted(requirements.items())
    }
    status = inputs.ledger.nodeclasses.get(nodeclass)
    if status is None:
        return removed
    away = inputs.ledger.shifted(inputs.now)
    zones = frozenset(subnet.zone for subnet in status.subnets if subnet.zone not in away)
    images = [image.requirements for image in status.images]
    closed = {
        (key.capacity_type, key.instance_type, key.zone)
        for key, backoff in inputs.ledger.unavailable.items()
        if backoff.holds(inputs.now) and not key.group
    }
    exhausted = inputs.ledger.exhausted(types, inputs.now)
    closed |= {(key.capacity_type, key.instance_type, key.zone) for key in exhausted}
    removed["its EC2NodeClass has no image that boots it"] = frozenset(
        t.name for t in types if all(type_refusal(image, t) is not None for image in images)
    )
    shifted = f", except {', '.join(sorted(away))}, which the cluster is shifted away from" if away else ""
    removed[f"not sold in a zone of its EC2NodeClass's subnets{shifted}"] = frozenset(
        t.name for t in types if not any(o.zone in zones for o in t.offerings)
    )
    removed["EC2 lately refused it, for lack of capacity, quota or permission"] = frozenset(
        t.name
        for t in types
        if t.offerings and all((o.capacity_type, t.name, o.zone) in closed for o in t.offerings)
    )
    return removed


def _refused(requirement: Requirement, types: Iterable[InstanceType]) -> Iterator[str]:
    """Yield the names of the types that a requirement rules out."""
    alone = Requirements.of(requirement)
    if requirement.key in OFFERING_KEYS:
        yield from (t.name for t in types if not any(allows_offering(alone, o) for o in t.offerings))
    else:
        yield from (t.name for t in types if type_refusal(alone, t) is not None)
