"""Validation of NodePools with their EC2NodeClass, instance types, limits and each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nodesmith.decisions.provisioning import Inputs
from nodesmith.decisions.provisioning.nodepools.onsale import Considered, considered
from nodesmith.decisions.provisioning.nodepools.tiers import pools
from nodesmith.decisions.scheduling.offerings.overlays import overlays_of
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.labels import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    ON_DEMAND,
    SPOT,
    TYPE_KEYS,
    Effect,
    Taint,
    normalised,
)
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith.model.apimachinery.quantities import NOTHING, Resources, format_resources
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.ec2.instancetypes import instance_types
from nodesmith.model.karpenter.nodepools import (
    LIMIT_USD_PER_HOUR,
    LIMIT_USD_PER_MONTH,
    NODES,
    OBJECTIVE,
    NodePool,
    Objective,
    parse_nodepool,
)
from nodesmith.model.limits.quotas import amount_in_words
from nodesmith.model.nodeclasses.instancesettings import WINDOWS_FAMILIES
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.model.policies import USD_PER_HOUR, USD_PER_MONTH
from nodesmith.model.schema.nodepools import NODE_OVERLAY
from nodesmith_cli.manifests.validating.findings import Finding, warning
from nodesmith_formats import wording
from nodesmith_formats.manifests.manifests import Document, Fault

_SHOWN = 3
MONTH_SECONDS = 31 * 24 * 3600
"""The seconds of the longest month."""
_OPEN_WINDOWS = (
    "lets kube-scheduler place Linux pods on Windows nodes, since it does not compare operating systems: add a taint "
    "such as os=windows:NoSchedule, and a toleration to Windows pods"
)
_OBJECTIVES = (
    f"is that of a NodePool with {OBJECTIVE}: LeastNodes, so plans have as few nodes as possible for both: give it "
    "the same annotation or another weight"
)
_RESERVED_ALONE = (
    "can only be checked in the cluster: its capacity reservations are in the status of the EC2NodeClass"
)
_OF_TYPES = ("cpu", "memory")
_TYPED = TYPE_KEYS | {INSTANCE_TYPE}
"""Labels whose values only instance types determine."""


def pool_findings(inputs: Inputs, pools_there: Mapping[str, Document]) -> Iterator[Finding]:
    """Yield findings about NodePools that can launch no nodes, and about pairs that accept the same pods."""
    offers = pools(inputs.snapshot, inputs.ledger, inputs.catalog, inputs.settings, inputs.now)
    templates = [template for template in offers.templates if template.name in pools_there]
    yield from _misspelt(inputs, pools_there)
    without = {
        name: nodepool for name, nodepool in pools_there.items() if name not in {t.name for t in templates}
    }
    awaiting = {name for name, nodepool in without.items() if _awaits_reservations(inputs, nodepool)}
    for name in sorted(awaiting):
        yield warning(pools_there[name].fault(_RESERVED_ALONE, "spec.template.spec.requirements"))
    if without.keys() > awaiting:  # counting the types that each condition rules out is half of the work
        yield from _nothing_left(
            inputs, {name: nodepool for name, nodepool in without.items() if name not in awaiting}
        )
    for template in templates:
        yield from _limit_findings(template, pools_there[template.name])
        if template.least_nodes and template.pool.options.objective is not Objective.LEAST_NODES:
            yield warning(pools_there[template.name].fault(_OBJECTIVES, "spec.weight"))
        if _is_open_windows(template):
            yield warning(pools_there[template.name].fault(_OPEN_WINDOWS, "spec.template.spec.taints"))
    for number, template in enumerate(templates):
        first = next((earlier for earlier in templates[:number] if _same_pods(earlier, template)), None)
        if first is not None:
            yield warning(_alike(first, template, pools_there))


def overlay_findings(inputs: Inputs, documents: Sequence[Document]) -> Iterator[Finding]:
    """Yield findings about NodeOverlays that contradict another one, or that change nothing of these NodePools."""
    yield from contradictions(inputs, documents)
    nodepool_documents = _overlays(documents)
    evaluated = overlays_of(inputs.snapshot, inputs.catalog, inputs.settings)
    for overlay in evaluated.applied:
        if overlay.name in nodepool_documents and not any(evaluated.reach(overlay).values()):
            reason = "match no instance type of any NodePool here"
            yield warning(nodepool_documents[overlay.name].fault(reason, "spec.requirements"))


def contradictions(inputs: Inputs, documents: Sequence[Document]) -> Iterator[Finding]:
    """Yield a finding for each NodeOverlay that contradicts another one, which it names."""
    nodepool_documents = _overlays(documents)
    evaluated = overlays_of(inputs.snapshot, inputs.catalog, inputs.settings)
    for name, reason in sorted(evaluated.contradicting.items()):
        if name in nodepool_documents:
            yield Finding(nodepool_documents[name].fault(str(reason), "spec.weight"))


def _overlays(documents: Sequence[Document]) -> dict[str, Document]:
    overlay_documents = (document for document in documents if document.manifest["kind"] == NODE_OVERLAY.name)
    return {str(document.manifest["metadata"].get("name")): document for document in overlay_documents}


def _nothing_left(inputs: Inputs, pools_there: Mapping[str, Document]) -> Iterator[Finding]:
    for counted in considered(inputs, pools_there):
        if counted.all and not counted.left:
            document = pools_there[counted.nodepool]
            yield Finding(document.fault(_no_type(counted), "spec.template.spec.requirements"))


def _misspelt(inputs: Inputs, pools_there: Mapping[str, Document]) -> Iterator[Finding]:
    """Yield a finding for each value that no instance type has, but that resembles one that some has."""
    types = instance_types(inputs.catalog, NodeConfiguration(), inputs.settings)
    for name in sorted(pools_there):
        document = pools_there[name]
        template = (document.manifest.get("spec") or {}).get("template") or {}
        for number, asked in enumerate((template.get("spec") or {}).get("requirements") or ()):
            if not isinstance(asked, Mapping) or asked.get("operator") != "In":
                continue
            key = normalised(str(asked.get("key")))
            known = {kind.labels[key] for kind in types if key in kind.labels} if key in _TYPED else set()
            for value in map(str, asked.get("values") or () if known else ()):
                hint = "" if value in known or value.isdecimal() else did_you_mean(value, known)
                if hint:
                    field = f"spec.template.spec.requirements[{number}].values"
                    said = f"has {value!r}, which no instance type of {inputs.catalog.region} has{hint}"
                    yield warning(document.fault(said, field))


def _awaits_reservations(inputs: Inputs, document: Document) -> bool:
    """Return whether a NodePool buys from reservations alone, which its EC2NodeClass selects but does not show yet."""
    pool = parse_nodepool(document.manifest).value
    if pool is None or CAPACITY_TYPE not in pool.requirements:
        return False
    if any(pool.requirements[CAPACITY_TYPE].allows(capacity_type) for capacity_type in (ON_DEMAND, SPOT)):
        return False
    classes = {str(nodeclass["metadata"]["name"]): nodeclass for nodeclass in inputs.snapshot.nodeclasses}
    spec = classes.get(pool.nodeclass.name, {}).get("spec") or {}
    status = inputs.ledger.nodeclasses.get(pool.nodeclass.name)
    selects = bool(spec.get("capacityReservationSelectorTerms"))
    return selects and status is not None and not status.capacity_reservations


def _no_type(counted: Considered) -> str:
    removals = [f"{removal.condition} rules out {removal.types:,}" for removal in counted.removals[:_SHOWN]]
    rest = len(counted.removals) - len(removals)
    more = f" and {wording.counted(rest, 'more condition')}" if rest else ""
    return f"leaves none of {counted.all:,} instance types: {', '.join(removals)}{more}"


def _is_open_windows(template: Template) -> bool:
    """Return whether nodes run Windows and no taint keeps Linux pods off."""
    return _is_windows(template) and all(t.effect == Effect.PREFER_NO_SCHEDULE for t in template.pool.taints)


def _is_windows(template: Template) -> bool:
    return template.nodeclass.ami_family in WINDOWS_FAMILIES


def _limit_findings(template: Template, document: Document) -> Iterator[Finding]:
    """Yield a finding for each limit that is smaller than the smallest instance type of the NodePool."""
    pool = parse_nodepool(document.manifest).value
    limits = pool.limits if pool else NOTHING
    if pool is not None:
        yield from _dollar_findings(pool, document)
    for name in sorted(limits):
        if name == NODES and limits[name] < 1:
            yield warning(document.fault("allows no node", f"spec.limits.{name}"))
        if name not in _OF_TYPES:
            continue
        smallest = min(template.choices, key=lambda choice: (choice.type.capacity.of(name), choice.type.name))
        if limits[name] < smallest.type.capacity.of(name):
            least = format_resources(Resources({name: smallest.type.capacity.of(name)}))[name]
            kind = f"its smallest instance type, {smallest.type.name}, has {least}"
            yield Finding(document.fault(f"allows no node: {kind}", f"spec.limits.{name}"))


def _dollar_findings(pool: NodePool, document: Document) -> Iterator[Finding]:
    """Yield a warning for a limit of no dollars, and for one of a month that ends before the one of an hour binds."""
    limits = pool.options.limits_usd
    keys = {USD_PER_HOUR: LIMIT_USD_PER_HOUR, USD_PER_MONTH: LIMIT_USD_PER_MONTH}
    for resource, key in keys.items():
        if limits.get(resource) == 0 and not pool.options.limit_fault[0]:
            yield warning(document.fault("allows no node", f"metadata.annotations[{key}]"))
    hour, month = limits.get(USD_PER_HOUR), limits.get(USD_PER_MONTH)
    if hour is not None and month and month < hour * MONTH_SECONDS:
        runs = amount_in_words(USD_PER_MONTH, hour * MONTH_SECONDS).partition(" ")[0]
        reason = (
            f"is less than the limit an hour allows in a month of 31 days, {runs} USD: it is used up earlier"
        )
        yield warning(document.fault(reason, f"metadata.annotations[{LIMIT_USD_PER_MONTH}]"))


def _same_pods(first: Template, second: Template) -> bool:
    """Return whether two NodePools of the same weight accept the same pods on the same instance types."""
    if first.pool.weight != second.pool.weight or _repelling_taints(first) != _repelling_taints(second):
        return False
    if _is_windows(first) != _is_windows(second):
        return False
    some, others = _asked(first), _asked(second)
    if not all(some[key].intersects(others[key]) for key in some.keys() & others.keys()):
        return False
    return bool({c.type.name for c in first.choices} & {c.type.name for c in second.choices})


def _asked(template: Template) -> Requirements:
    return template.pool.requirements.union(Requirements.from_labels(template.pool.labels))


def _repelling_taints(template: Template) -> frozenset[Taint]:
    return frozenset(taint for taint in template.pool.taints if taint.effect != Effect.PREFER_NO_SCHEDULE)


def _alike(first: Template, second: Template, pools_there: Mapping[str, Document]) -> Fault:
    later = pools_there[second.name]
    weight = f"of weight {first.pool.weight}" if first.pool.weight else "without a weight"
    message = (
        f"accepts the same pods as NodePool/{first.name}, both {weight}: the price decides. "
        "If that is not intended, give one of them a weight, a taint or a label"
    )
    return later.fault(message, "spec.weight" if second.pool.weight else "metadata.name")
