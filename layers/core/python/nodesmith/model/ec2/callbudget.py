"""How many CreateFleet calls each cluster of a region may make when several need many.

EC2 counts these calls for the whole account and region: its token bucket holds 50 and gains 5 a second (Amazon EC2
Developer Guide, "Request throttling"). Clusters that need many calls share a token bucket that is smaller than EC2's.
The rest is left to clusters that need a few.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

CAPACITY = 32
CALLS_PER_SECOND = 4.0
ACTIVE_FOR = timedelta(seconds=30)
"""How long a cluster counts as one that shares the budget after it has asked for calls."""
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class CallBudget:
    """A token bucket of calls, and when each cluster last asked for some. A new one is full."""

    calls: float = CAPACITY
    at: datetime = _NEVER
    asked_at: Mapping[str, datetime] = field(default_factory=dict)

    def take(self, cluster: str, wanted: int, now: datetime) -> tuple[int, CallBudget]:
        """Return how many of `wanted` calls a cluster may make now, and the budget afterwards.

        Clusters that have asked within `ACTIVE_FOR` share what the bucket gains: each may make its share of the calls
        gained since it last asked. A cluster that has not asked may make its share of what the bucket holds.
        """
        seconds = max(0.0, (now - self.at).total_seconds())  # the clocks of functions differ slightly
        held = min(float(CAPACITY), self.calls + seconds * CALLS_PER_SECOND)
        others = {
            name: asked
            for name, asked in self.asked_at.items()
            if name != cluster and now - asked < ACTIVE_FOR
        }
        last = self.asked_at.get(cluster, _NEVER)
        gained = held if now - last >= ACTIVE_FOR else (now - last).total_seconds() * CALLS_PER_SECOND
        share = min(float(CAPACITY), gained) / (1 + len(others))
        granted = max(0, min(wanted, int(held), int(share)))
        return granted, CallBudget(held - granted, max(now, self.at), {**others, cluster: max(now, last)})

    def to_item(self) -> dict[str, Any]:
        """Return the JSON document that `from_item` reads."""
        asked = {cluster: at.isoformat() for cluster, at in sorted(self.asked_at.items())}
        return {"calls": self.calls, "at": self.at.isoformat(), "askedAt": asked}

    @classmethod
    def from_item(cls, item: Mapping[str, Any]) -> CallBudget:
        """Read what `to_item` writes; an empty document is a full budget."""
        if not item:
            return cls()
        asked = {cluster: datetime.fromisoformat(at) for cluster, at in item["askedAt"].items()}
        return cls(float(item["calls"]), datetime.fromisoformat(item["at"]), asked)
