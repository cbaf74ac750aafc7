"""What became of a run for one cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(slots=True)
class Report:
    """What became of a run for one cluster.

    `rejected` says what was wrong with the input and will stay wrong. `again` asks for another run within seconds,
    since a part failed. `due` is the earliest moment at which the concern has to look again although nothing changes;
    None where time alone changes nothing.
    """

    counts: Counter[str] = field(default_factory=Counter)
    rejected: list[str] = field(default_factory=list)
    again: bool = False
    due: datetime | None = None
