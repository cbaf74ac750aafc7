"""What keeps one NodePool from serving pods, as data: the filter that stopped it, and the reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Filter(IntEnum):
    """What a NodePool is checked for, in this order: the later it fails, the nearer it came."""

    ABSENT = 1
    LABEL = 2
    TAINT = 3
    REQUIREMENT = 4
    NODEPOOL = 5
    OFFERING = 6
    HOST_PORT = 7
    RESOURCE = 8
    MIN_VALUES = 9
    OBSTRUCTED = 10
    LIMIT = 11
    UNFINISHED = 12


@dataclass(frozen=True, slots=True)
class Refusal:
    """The filter, the reason in a sentence, the one thing in the way, and what would help (as `Reason` has it)."""

    filter: Filter
    why: str
    blocking: str
    fix: str = ""
