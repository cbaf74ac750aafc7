"""What bounds disruption beside budgets, that somebody has paused it, and which nodes have ended of late."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.ec2.notices import Fate
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase

PAUSED = "DisruptionPaused"
"""The condition of NodePools while disruption is paused."""
RATE_WINDOW = timedelta(hours=1)
REPEATED_WINDOW = timedelta(hours=2)
"""How long the end of a node is kept that was bought in vain before: more than the longest wait for the next."""
_TAKEN = frozenset(Fate) - {Fate.TERMINATED, Fate.STOPPED}
"""Causes of ends that are EC2's own doing."""


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
    """A NodeClaim that is forgotten, and when its end had begun: kept for as long as a rate looks back.

    The rest is what the claim said of the pods that it was bought for, where that counts.
    """

    claim: str
    nodepool: str
    at: datetime
    bought_at: datetime | None = None
    initialized_at: datetime | None = None
    attempts: Mapping[str, int] = FrozenMap()
    served: tuple[str, ...] = ()

    @property
    def kept_until(self) -> datetime:
        """Until when somebody looks back at it."""
        is_repeated = any(attempt > 1 for attempt in self.attempts.values())
        return self.at + (REPEATED_WINDOW if is_repeated else RATE_WINDOW)


def departure_of(claim: NodeClaim) -> Departure | None:
    """Return what is kept of a claim that is forgotten, None where its end was not decided."""
    if claim.terminating_at is None:
        return None
    departure = Departure(claim.name, claim.nodepool, claim.terminating_at)
    if not (claim.attempts and counts_as_attempt(claim)):
        return departure
    return replace(
        departure,
        bought_at=claim.created_at,
        initialized_at=claim.initialized_at,
        attempts=claim.attempts,
        served=claim.served,
    )


def counts_as_attempt(claim: NodeClaim) -> bool:
    """Whether a claim says if pods come to run: it is or was a node, or would be, and EC2 has not taken it."""
    return claim.phase is not Phase.GIVEN_UP and not (claim.is_ending and claim.cause in _TAKEN)


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
    written: dict[str, Any] = {
        "claim": departure.claim,
        "nodepool": departure.nodepool,
        "at": departure.at.isoformat(),
    }
    if departure.bought_at is not None:
        written |= {"boughtAt": departure.bought_at.isoformat(), "attempts": dict(departure.attempts)}
    if departure.initialized_at is not None:
        written["initializedAt"] = departure.initialized_at.isoformat()
    return written | ({"served": list(departure.served)} if departure.served else {})


def read_departure(item: Mapping[str, Any]) -> Departure:
    """Read what `departure_item` wrote."""
    moments = (item.get(name) for name in ("at", "boughtAt", "initializedAt"))
    at, bought_at, initialized_at = (datetime.fromisoformat(each) if each else None for each in moments)
    assert at is not None  # noqa: S101
    attempts, served = FrozenMap[int](item.get("attempts")), tuple(item.get("served", ()))
    return Departure(item["claim"], item["nodepool"], at, bought_at, initialized_at, attempts, served)
