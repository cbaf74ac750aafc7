"""The reason why an EC2NodeClass cannot be launched from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a NodeClass cannot be launched from: a condition's reason, and a message that explains what to do.

    `field` is the field to change, empty if the cause is not in the NodeClass. `line` is a line of the field's text,
    counted from 1; 0 if it is not a text, or no single line is wrong.
    """

    reason: str
    message: str
    field: str = ""
    line: int = 0
