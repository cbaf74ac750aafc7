"""How many volumes new nodes attach, by what nodes that are there state: of drivers other than EBS none else knows."""

from __future__ import annotations

from dataclasses import dataclass

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.resources import Resources
from nodesmith.model.ec2.attachablevolumes import ATTACHABLE

_AT_LEAST = 1
"""Of a type that nobody has seen: else no node of it would be bought, and nobody would ever see one."""


@dataclass(frozen=True, slots=True)
class AttachLimits:
    """By driver and instance type, the fewest volumes that a node states; empty for the type of a node without one."""

    stated: FrozenMap[FrozenMap[int]]

    def on(self, instance_type: str) -> Resources:
        """Return a new node's places; of a type that no node has, as many as the node that states fewest of any."""
        return Resources(
            {
                ATTACHABLE + driver: known.get(instance_type, max(_AT_LEAST, min(known.values())))
                for driver, known in self.stated.items()
            }
        )


NO_LIMITS = AttachLimits(FrozenMap())
