"""The result of a run for one cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(slots=True)
class Report:
    """The result of a run for one cluster.

    `rejected` lists errors in the input that no retry fixes. `again` requests another run within seconds, because part
    of the work failed. `due` is the earliest moment at which the concern must look again even if nothing changes; None
    if time alone changes nothing.
    """

    counts: Counter[str] = field(default_factory=Counter)
    rejected: list[str] = field(default_factory=list)
    again: bool = False
    due: datetime | None = None
