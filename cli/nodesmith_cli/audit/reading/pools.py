"""NodePools as an audit reads them, with the images and capacity reservations in the status of their EC2NodeClass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from nodesmith.model.apimachinery.quantities import Resources, whole_units
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ec2.instancetypes import InstanceType, instance_types
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration, parse_nodeclass
from nodesmith.model.policies import NodeSettings
from nodesmith_cli.audit.reading.cluster import Cluster
from nodesmith_cli.audit.reading.fields import Amounts, Manifest, amounts, dig, node_labels, today
from nodesmith_cli.audit.reading.places import NODEPOOL
from nodesmith_cli.audit.reading.selectors import holds

RESERVED = "reserved"
_RESERVATION = "karpenter.k8s.aws/capacity-reservation"
RESERVATION_ID = f"{_RESERVATION}-id"
FIXED = "it has a fixed number of nodes (spec.replicas)"
_TENANCY = "karpenter.k8s.aws/instance-tenancy"
_GPU, _GPU_PARTS = "nvidia.com/gpu", "nodesmith.dev/gpu-resources"


@dataclass(frozen=True, slots=True)
class Reservation:
    """A capacity reservation of one type in one zone, with the number of `free` instances."""

    instance_type: str
    zone: str
    free: int
    labels: Mapping[str, str]


def read_reservations(nodeclass: Manifest | None) -> dict[str, Reservation]:
    """Return the usable reservations by id. Assumes one free instance if the number is unknown."""
    reservations: dict[str, Reservation] = {}
    for reservation in dig(nodeclass, "status", "capacityReservations") or ():
        if reservation.get("state") != "expiring":
            labels = {
                RESERVATION_ID: reservation["id"],
                f"{_RESERVATION}-type": reservation.get("reservationType") or "default",
                f"{_RESERVATION}-interruptible": "true" if reservation.get("interruptible") else "false",
            }
            free = int(reservation.get("availableInstanceCount", 1))
            reservations[reservation["id"]] = Reservation(
                reservation["instanceType"], reservation["availabilityZone"], free, labels
            )
    return reservations


def read_images(nodeclass: Manifest | None) -> Sequence[Sequence[Manifest]] | None:
    """Return the requirements of each image, or None if the EC2NodeClass does not show its images."""
    images = dig(nodeclass, "status", "amis")
    return [image.get("requirements") or () for image in images] if images else None


def boots(instance_type: InstanceType, images: Sequence[Sequence[Manifest]]) -> bool:
    """Return whether one of the images supports a type."""
    return any(all(_meets(instance_type, requirement) for requirement in image) for image in images)


def _meets(instance_type: InstanceType, requirement: Manifest) -> bool:
    key, operator, values = (
        today(requirement["key"]),
        requirement["operator"],
        requirement.get("values") or (),
    )
    label = node_labels(instance_type.labels).get(key)
    open_ = instance_type.requirements.get(key)
    if label is None and open_ is not None and open_.values and not open_.complement:
        return any(holds(operator, values, value) for value in open_.values)
    return holds(operator, values, label)


@dataclass(frozen=True, slots=True)
class Pool:
    """A NodePool. `closed` is why it may launch nothing, or empty. `zones` is None if no subnets are known."""

    name: str
    weight: int
    labels: Mapping[str, str]
    taints: Sequence[Manifest]
    requirements: Sequence[Manifest]
    limits: Amounts
    closed: str
    zones: frozenset[str] | None
    types: Mapping[str, InstanceType]
    images: Sequence[Sequence[Manifest]] | None = None
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    replicas: int | None = None
    """The fixed number of nodes of a static NodePool, or None."""


def read_pool(manifest: Manifest, cluster: Cluster, catalog: Catalog, settings: NodeSettings) -> Pool:
    """Parse a NodePool, with all types of the catalogue resolved for its EC2NodeClass.

    Raises the exceptions in `reading.UNREADABLE`.
    """
    spec, about = manifest["spec"], manifest["metadata"]
    template = spec["template"]
    reference = template["spec"]["nodeClassRef"]
    nodeclass = cluster.nodeclasses.get(reference["name"])
    parsed = parse_nodeclass(nodeclass).value if nodeclass else None
    requirements = template["spec"].get("requirements") or ()
    tenancies = _tenancies(requirements)
    configuration = (
        NodeConfiguration.of(parsed, tenancies) if parsed else NodeConfiguration(tenancies=tenancies)
    )
    key = f"{reference['group']}/{str(reference['kind']).lower()}"
    own = {NODEPOOL: about["name"], key: reference["name"]}
    was = dig(about, "annotations", "nodesmith.dev/provisioner")
    own |= {"karpenter.sh/provisioner-name": was} if was else {}
    limits = dict(spec.get("limits") or {})
    nodes = {"nodes": whole_units(limits.pop("nodes"))} if "nodes" in limits else {}
    subnets = dig(nodeclass, "status", "subnets")
    for requirement in requirements:
        holds(requirement["operator"], requirement.get("values") or (), today(requirement["key"]))
    return Pool(
        about["name"],
        int(spec.get("weight") or 0),
        {**node_labels(dig(template, "metadata", "labels")), **own},
        template["spec"].get("taints") or (),
        requirements,
        {**amounts(limits), **nodes},
        _closed(manifest, nodeclass, bool(cluster.nodeclasses)),
        frozenset(subnet["zone"] for subnet in subnets) if subnets else None,
        {t.name: _divided(t, about) for t in instance_types(catalog, configuration, settings)},
        read_images(nodeclass),
        read_reservations(nodeclass),
        None if spec.get("replicas") is None else int(spec["replicas"]),
    )


def _divided(kind: InstanceType, nodeclass: Manifest) -> InstanceType:
    """Return a type with what the device plugin of its nodes offers in place of whole GPUs, as its NodePool says."""
    stated = dig(nodeclass, "annotations", _GPU_PARTS)
    gpus = kind.capacity.of(_GPU)
    pairs = [part.strip().partition("=") for part in stated.split(",")] if stated and gpus else []
    if not pairs or not all(number.isdecimal() for _, _, number in pairs):
        return kind
    parts = {name: int(number) * gpus for name, _, number in pairs}

    def offered(resources: Resources) -> Resources:
        return Resources({**{name: n for name, n in resources.items() if name != _GPU}, **parts})

    return replace(kind, capacity=offered(kind.capacity), allocatable=offered(kind.allocatable))


def _tenancies(requirements: Sequence[Manifest]) -> tuple[str, ...]:
    tenancy_requirements = [r for r in requirements if r["key"] == _TENANCY]
    return tuple(
        tenancy
        for tenancy in ("default", "dedicated")
        if all(holds(r["operator"], r.get("values") or (), tenancy) for r in tenancy_requirements)
    )


def _closed(pool: Manifest, nodeclass: Manifest | None, stated: bool) -> str:
    if "deletionTimestamp" in pool["metadata"]:
        return "it is being deleted"
    if pool["spec"].get("replicas") is not None:
        return FIXED
    if stated and nodeclass is None:
        return "its EC2NodeClass does not exist"
    if nodeclass and "deletionTimestamp" in nodeclass["metadata"]:
        return "its EC2NodeClass is being deleted"
    return ""


def allows(pool: Pool, key: str, value: str | None) -> bool:
    """Return whether the NodePool's requirements allow a label to have a value (None: to be absent)."""
    return all(
        holds(r["operator"], r.get("values") or (), value)
        for r in pool.requirements
        if today(r["key"]) == key
    )
