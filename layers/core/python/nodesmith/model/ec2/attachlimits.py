"""The number of volumes that new nodes can attach, learned from existing nodes: the only source for non-EBS drivers."""

from __future__ import annotations

from dataclasses import dataclass

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.resources import Resources
from nodesmith.model.ec2.attachablevolumes import ATTACHABLE

_AT_LEAST = 1
"""The least for an unseen type: with 0, no node of that type would be bought, and its limit would never be learned."""


@dataclass(frozen=True, slots=True)
class AttachLimits:
    """`stated` is driver → instance type → the lowest limit that a node of that type reports.

    The instance type is empty for nodes without one.
    """

    stated: FrozenMap[FrozenMap[int]]

    def on(self, instance_type: str) -> Resources:
        """Return the attachments of a new node. For a type without nodes, they are the lowest limit of any node."""
        return Resources(
            {
                ATTACHABLE + driver: known.get(instance_type, max(_AT_LEAST, min(known.values())))
                for driver, known in self.stated.items()
            }
        )


NO_LIMITS = AttachLimits(FrozenMap())
