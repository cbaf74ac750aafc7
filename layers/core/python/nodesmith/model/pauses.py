"""What bounds disruption beside budgets: that somebody has paused it, and which nodes have ended of late."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from nodesmith.model.times import parse_time

PAUSED = "DisruptionPaused"
"""The condition of NodePools while disruption is paused."""
RATE_WINDOW = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Pause:
    """Since when no node of a cluster is disrupted that could as well go on, and why, as far as that was said."""

    since: datetime
    why: str = ""

    def __str__(self) -> str:
        return f"disruption is paused since {self.since:%Y-%m-%d %H:%M} UTC" + (
            f": {self.why}" if self.why else ""
        )


@dataclass(frozen=True, slots=True)
class Departure:
    """A NodeClaim that is forgotten, and when its end had begun: kept for as long as a rate looks back."""

    claim: str
    nodepool: str
    at: datetime


def shown_pause(nodepools: Iterable[Mapping[str, Any]]) -> Pause | None:
    """Read from NodePool objects that disruption is paused; None where none of them says so."""
    for manifest in nodepools:
        for condition in (manifest.get("status") or {}).get("conditions") or ():
            if condition.get("type") == PAUSED and condition.get("status") == "True":
                said = str(condition.get("message") or "")
                since = parse_time(str(condition["lastTransitionTime"]))
                return Pause(since, said.removeprefix(str(Pause(since))).removeprefix(": "))
    return None


def pause_item(pause: Pause) -> dict[str, Any]:
    """Write a pause as JSON-able data."""
    return {"since": pause.since.isoformat(), "why": pause.why}


def read_pause(item: Mapping[str, Any]) -> Pause:
    """Read what `pause_item` wrote."""
    return Pause(datetime.fromisoformat(item["since"]), item["why"])


def departure_item(departure: Departure) -> dict[str, Any]:
    """Write a departure as JSON-able data."""
    return {"claim": departure.claim, "nodepool": departure.nodepool, "at": departure.at.isoformat()}


def read_departure(item: Mapping[str, Any]) -> Departure:
    """Read what `departure_item` wrote."""
    return Departure(item["claim"], item["nodepool"], datetime.fromisoformat(item["at"]))
