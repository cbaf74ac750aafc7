"""The images and capacity reservations in the status of an EC2NodeClass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith_cli.audit.reading import Manifest, dig, node_labels, today
from nodesmith_cli.audit.selectors import holds

RESERVED = "reserved"
_RESERVATION = "karpenter.k8s.aws/capacity-reservation"
RESERVATION_ID = f"{_RESERVATION}-id"


@dataclass(frozen=True, slots=True)
class Reservation:
    """A capacity reservation of one type in one zone, with the number of `free` instances."""

    instance_type: str
    zone: str
    free: int
    labels: Mapping[str, str]


def read_reservations(nodeclass: Manifest | None) -> dict[str, Reservation]:
    """Return the usable reservations by id. Assumes one free instance if the number is unknown."""
    found: dict[str, Reservation] = {}
    for each in dig(nodeclass, "status", "capacityReservations") or ():
        if each.get("state") != "expiring":
            labels = {
                RESERVATION_ID: each["id"],
                f"{_RESERVATION}-type": each.get("reservationType") or "default",
                f"{_RESERVATION}-interruptible": "true" if each.get("interruptible") else "false",
            }
            free = int(each.get("availableInstanceCount", 1))
            found[each["id"]] = Reservation(each["instanceType"], each["availabilityZone"], free, labels)
    return found


def read_images(nodeclass: Manifest | None) -> Sequence[Sequence[Manifest]] | None:
    """Return the requirements of each image, or None if the EC2NodeClass does not show its images."""
    images = dig(nodeclass, "status", "amis")
    return [image.get("requirements") or () for image in images] if images else None


def boots(found: InstanceType, images: Sequence[Sequence[Manifest]]) -> bool:
    """Return whether one of the images supports a type."""
    return any(all(_meets(found, requirement) for requirement in image) for image in images)


def _meets(found: InstanceType, requirement: Manifest) -> bool:
    key, operator, values = (
        today(requirement["key"]),
        requirement["operator"],
        requirement.get("values") or (),
    )
    label = node_labels(found.labels).get(key)
    open_ = found.requirements.get(key)
    if label is None and open_ is not None and open_.values and not open_.complement:
        return any(holds(operator, values, value) for value in open_.values)
    return holds(operator, values, label)
