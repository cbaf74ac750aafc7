"""Why a NodeClass cannot be launched from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a NodeClass cannot be launched from: a condition's reason, and a message that explains what to do.

    `field` is the field to change, empty if the cause is not in the NodeClass.
    """

    reason: str
    message: str
    field: str = ""
