"""NodePools as an audit reads them, and the machines that each may buy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nodesmith.model.catalog import Catalog
from nodesmith.model.instancetypes import InstanceType, NodeConfiguration, NodeSettings, instance_types
from nodesmith.model.nodeclasses import parse_nodeclass
from nodesmith.model.quantities import whole_units
from nodesmith_cli.audit.cluster import Cluster
from nodesmith_cli.audit.places import NODEPOOL
from nodesmith_cli.audit.reading import ZONE, Amounts, Manifest, amounts, dig, node_labels, today
from nodesmith_cli.audit.selectors import holds
from nodesmith_cli.audit.violations import Kind

CAPACITY_TYPE = "karpenter.sh/capacity-type"
ZONE_ID = "topology.k8s.aws/zone-id"
_READY = {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}


@dataclass(frozen=True, slots=True)
class Pool:
    """A NodePool. `closed` says why it may buy nothing; `zones` is None where its EC2NodeClass does not tell them."""

    name: str
    weight: int
    labels: Mapping[str, str]
    taints: Sequence[Manifest]
    requirements: Sequence[Manifest]
    limits: Amounts
    closed: str
    zones: frozenset[str] | None
    types: Mapping[str, InstanceType]


@dataclass(frozen=True, slots=True)
class Machine:
    """A type bought one way. `labels` are certain; `open` are labels that will have one of some values."""

    type: InstanceType
    price_hourly_usd: float
    labels: Mapping[str, str]
    open: Mapping[str, Sequence[str]]


class Refusal(NamedTuple):
    """Why a NodePool may not buy a type this way."""

    kind: Kind
    why: str


def read_pool(manifest: Manifest, cluster: Cluster, catalog: Catalog, settings: NodeSettings) -> Pool:
    """Read a NodePool with all types of the catalogue, resolved for its EC2NodeClass.

    Raises as `reading.UNREADABLE` lists.
    """
    spec, about = manifest["spec"], manifest["metadata"]
    template = spec["template"]
    reference = template["spec"]["nodeClassRef"]
    nodeclass = cluster.nodeclasses.get(reference["name"])
    parsed = parse_nodeclass(nodeclass).value if nodeclass else None
    configuration = NodeConfiguration.of(parsed) if parsed else NodeConfiguration()
    key = f"{reference['group']}/{str(reference['kind']).lower()}"
    own = {NODEPOOL: about["name"], key: reference["name"]}
    limits = dict(spec.get("limits") or {})
    nodes = {"nodes": whole_units(limits.pop("nodes"))} if "nodes" in limits else {}
    subnets = dig(nodeclass, "status", "subnets")
    requirements = template["spec"].get("requirements") or ()
    for each in requirements:
        holds(each["operator"], each.get("values") or (), today(each["key"]))
    return Pool(
        about["name"],
        int(spec.get("weight") or 0),
        {**node_labels(dig(template, "metadata", "labels")), **own},
        template["spec"].get("taints") or (),
        requirements,
        {**amounts(limits), **nodes},
        _closed(manifest, nodeclass, bool(cluster.nodeclasses)),
        frozenset(subnet["zone"] for subnet in subnets) if subnets else None,
        {t.name: t for t in instance_types(catalog, configuration, settings)},
    )


def _closed(pool: Manifest, nodeclass: Manifest | None, told: bool) -> str:
    if "deletionTimestamp" in pool["metadata"]:
        return "it is being deleted"
    if pool["spec"].get("replicas") is not None:
        return "it has a fixed number of nodes (spec.replicas)"
    if told and nodeclass is None:
        return "its EC2NodeClass does not exist"
    if nodeclass and "deletionTimestamp" in nodeclass["metadata"]:
        return "its EC2NodeClass is being deleted"
    return ""


def machine(pool: Pool, type_name: str, zone: str, capacity_type: str) -> Machine | Refusal:
    """Give the machine that a NodePool may buy this way, or why it may not."""
    found = pool.types.get(type_name)
    if found is None:
        return Refusal(Kind.INSTANCE_TYPE, "the catalogue has no such instance type")
    offerings = [
        o for o in found.offerings if (o.zone, o.capacity_type) == (zone, capacity_type) and o.available
    ]
    if not offerings:
        return Refusal(Kind.OFFERING, f"there is no offering of it in {zone} as {capacity_type}")
    if pool.zones is not None and zone not in pool.zones:
        return Refusal(Kind.OFFERING, f"its EC2NodeClass has no subnet in {zone}")
    offering = min(offerings, key=lambda o: o.price_hourly_usd)
    labels = {**node_labels(found.labels), ZONE: zone, CAPACITY_TYPE: capacity_type, **_READY}
    if offering.zone_id:
        labels[ZONE_ID] = offering.zone_id
    clash = next((k for k, v in pool.labels.items() if labels.get(k, v) != v), None)
    if clash:
        why = f"the NodePool's label {clash}={pool.labels[clash]} is not this type's"
        return Refusal(Kind.REQUIREMENTS, why)
    return _allowed(pool, found, offering.price_hourly_usd, {**pool.labels, **labels})


def _allowed(pool: Pool, found: InstanceType, price: float, labels: dict[str, str]) -> Machine | Refusal:
    choices: dict[str, Sequence[str]] = {
        key: sorted(one.values)
        for key, one in found.requirements.items()
        if key not in labels and one.values and not one.complement
    }
    for requirement in pool.requirements:
        key, operator = today(requirement["key"]), requirement["operator"]
        values = requirement.get("values") or ()
        if key in choices:
            choices[key] = [value for value in choices[key] if holds(operator, values, value)]
            if choices[key]:
                continue
        elif key not in labels and key not in found.requirements:
            continue  # the NodePool itself gives its nodes this label
        elif holds(operator, values, labels.get(key)):
            continue
        why = f"the NodePool's requirement {key} {operator} {list(values)} allows no {labels.get(key)!r}"
        return Refusal(Kind.REQUIREMENTS, why)
    return Machine(found, price, labels, choices)


def own_keys(pool: Pool, machines: Sequence[Machine]) -> list[str]:
    """Name the labels that only the NodePool's requirements define, each node having one of the values allowed."""
    settled = {key for each in machines for key in (*each.labels, *each.type.requirements)}
    return sorted({today(r["key"]) for r in pool.requirements} - settled)


def allows(pool: Pool, key: str, value: str | None) -> bool:
    """Tell whether the NodePool's requirements allow a label to have a value (None: to be absent)."""
    return all(
        holds(r["operator"], r.get("values") or (), value)
        for r in pool.requirements
        if today(r["key"]) == key
    )


def capacity_of(found: InstanceType, name: str) -> int:
    """Give what a node of a type takes of a limit."""
    return 1 if name == "nodes" else found.capacity.of(name)
