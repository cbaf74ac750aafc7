"""The machines that a NodePool may launch: an instance type with a zone and a capacity type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith_cli.audit.reading.fields import ZONE, node_labels, today
from nodesmith_cli.audit.reading.pools import RESERVED, Pool, boots
from nodesmith_cli.audit.reading.selectors import holds
from nodesmith_cli.audit.violations import Kind

CAPACITY_TYPE = "karpenter.sh/capacity-type"
ZONE_ID = "topology.k8s.aws/zone-id"
_READY = {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}


@dataclass(frozen=True, slots=True)
class Machine:
    """An offering of a type. `labels` are certain; `open` are labels that will have one of several values."""

    type: InstanceType
    price_hourly_usd: float
    labels: Mapping[str, str]
    open: Mapping[str, Sequence[str]]


class Refusal(NamedTuple):
    """The reason why a NodePool may not launch an offering."""

    kind: Kind
    reason: str


def machine(
    pool: Pool, type_name: str, zone: str, capacity_type: str, reservation: str = ""
) -> Machine | Refusal:
    """Return the machine for an offering, in a reservation if one is named, or the reason why it is not allowed."""
    instance_type = pool.types.get(type_name)
    if instance_type is None:
        return Refusal(Kind.INSTANCE_TYPE, "the catalogue has no such instance type")
    if pool.images is not None and not boots(instance_type, pool.images):
        return Refusal(Kind.IMAGE, "no image of its EC2NodeClass supports it")
    if pool.zones is not None and zone not in pool.zones:
        return Refusal(Kind.OFFERING, f"its EC2NodeClass has no subnet in {zone}")
    sold = _sold(pool, instance_type, zone, capacity_type, reservation)
    if sold is None:
        where = f"in {zone} as {capacity_type}" + (f" of {reservation}" if reservation else "")
        return Refusal(Kind.OFFERING, f"it is not offered {where}")
    price, more = sold
    labels = {**node_labels(instance_type.labels), ZONE: zone, **_sold_as(capacity_type), **more, **_READY}
    clash = next((k for k, v in pool.labels.items() if labels.get(k, v) != v), None)
    if clash:
        reason = f"the NodePool's label {clash}={pool.labels[clash]} does not match this type"
        return Refusal(Kind.REQUIREMENTS, reason)
    return _allowed(pool, instance_type, price, {**pool.labels, **labels})


def _sold_as(capacity_type: str) -> Mapping[str, str]:
    """Return the capacity type as the labels of Karpenter and of EKS node groups."""
    eks = "SPOT" if capacity_type == "spot" else "ON_DEMAND"
    return {CAPACITY_TYPE: capacity_type, "eks.amazonaws.com/capacityType": eks}


def _sold(
    pool: Pool, instance_type: InstanceType, zone: str, capacity_type: str, reservation: str
) -> tuple[float, Mapping[str, str]] | None:
    """Return the price in USD an hour, and the labels of the offering, or None if it does not exist.

    A reservation has the price 0.
    """
    offered = [o for o in instance_type.offerings if o.zone == zone and o.available]
    zone_id = max((o.zone_id for o in offered), default="")
    ids = {ZONE_ID: zone_id} if zone_id else {}
    if reservation:
        held = pool.reservations.get(reservation)
        suits = held and (held.instance_type, held.zone, RESERVED) == (
            instance_type.name,
            zone,
            capacity_type,
        )
        return (0.0, {**ids, **held.labels}) if held and suits else None
    prices = [o.price_hourly_usd for o in offered if o.capacity_type == capacity_type]
    return (min(prices), ids) if prices else None


def _allowed(
    pool: Pool, instance_type: InstanceType, price: float, labels: dict[str, str]
) -> Machine | Refusal:
    choices: dict[str, Sequence[str]] = {
        key: sorted(allowed.values)
        for key, allowed in instance_type.requirements.items()
        if key not in labels and allowed.values and not allowed.complement
    }
    for requirement in pool.requirements:
        key, operator = today(requirement["key"]), requirement["operator"]
        values = requirement.get("values") or ()
        if key in choices:
            choices[key] = [value for value in choices[key] if holds(operator, values, value)]
            if choices[key]:
                continue
        elif key not in labels and key not in instance_type.requirements:
            continue  # the NodePool itself sets this label on its nodes
        elif holds(operator, values, labels.get(key)):
            continue
        reason = (
            f"the NodePool's requirement {key} {operator} {list(values)} does not allow {labels.get(key)!r}"
        )
        return Refusal(Kind.REQUIREMENTS, reason)
    return Machine(instance_type, price, labels, choices)


def own_keys(pool: Pool, machines: Sequence[Machine]) -> list[str]:
    """Return the labels that only the NodePool's requirements define. Each node has one of the allowed values."""
    settled = {key for other in machines for key in (*other.labels, *other.type.requirements)}
    return sorted({today(r["key"]) for r in pool.requirements} - settled)


def capacity_of(instance_type: InstanceType, name: str) -> int:
    """Return how much of a limit a node of a type uses."""
    return 1 if name == "nodes" else instance_type.capacity.of(name)
