"""The state of an observed cluster's shadows, and what they and the cluster came to, hour by hour and day by day.

A shadow is a fleet that exists only in this state: it lives through the events of a real cluster.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from nodesmith.errors import Rejected
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.ledger.items import claim_from_item, claim_to_item

FORMAT = 1
NODESMITH, KARPENTER, ACTUAL = "nodesmith", "karpenter", "actual"
"""The two shadows, and the cluster itself."""
MOST_HOURS, MOST_DAYS = 24 * 35, 400
"""How many hours and days are kept."""
MOST_FAULTS, LONGEST_FAULT = 50, 300
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What is assumed where the cluster cannot show it."""

    boot_seconds: float = 45.0
    """From the purchase of a node until pods run on it, until the cluster's own nodes have shown it."""
    latency_seconds: float = 2.0
    """From the creation of a pod until nodes are bought for it."""
    drain_seconds: float = 60.0
    """From the decision that a node ends, once its replacements are ready, until it is paid for no more."""
    interruptions_a_month: float = 0.05
    """The share of spot nodes that EC2 interrupts in a month of 730 hours."""


@dataclass(frozen=True, slots=True)
class Tally:
    """The totals of a fleet in a span of time. All fields add up.

    `starting_usd` is the part of `usd` that was paid for nodes before pods could run on them, or while their
    replacements already ran; `interrupted` is the part of `evictions` that interruptions caused. `bound_usd` is a lower
    bound on the cost of any plan for the same pods, counted for `bound_seconds` of the time.
    """

    usd: float = 0.0
    spot_usd: float = 0.0
    starting_usd: float = 0.0
    node_seconds: float = 0.0
    pending_seconds: float = 0.0
    evictions: int = 0
    interrupted: int = 0
    launches: int = 0
    bound_usd: float = 0.0
    bound_seconds: float = 0.0
    spot_seconds: float = 0.0
    """The part of `node_seconds` on spot."""
    pod_seconds: float = 0.0
    """Seconds for which pods had a node."""
    unplaced_seconds: float = 0.0
    """Pod-seconds for which no node could be bought; not part of `pending_seconds`."""

    def __add__(self, other: Tally) -> Tally:
        """Return the sum."""
        return Tally(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Tally)})


@dataclass(frozen=True, slots=True)
class Span:
    """An hour or a day: for how many seconds of it the cluster was observed, and what each fleet came to by its name.

    `unpriced_seconds` are the node-seconds of nodes without a known price, which no fleet counts.
    """

    at: datetime
    seconds: float = 0.0
    tallies: Mapping[str, Tally] = field(default_factory=dict)
    unpriced_seconds: float = 0.0

    def adding(self, other: Span) -> Span:
        """Return this span with what another one has."""
        names = sorted({*self.tallies, *other.tallies})
        sums = {name: self.tallies.get(name, Tally()) + other.tallies.get(name, Tally()) for name in names}
        return Span(
            self.at, self.seconds + other.seconds, sums, self.unpriced_seconds + other.unpriced_seconds
        )


@dataclass(frozen=True, slots=True)
class PodLocation:
    """Where a pod is in a shadow: the node's name, or empty while it waits for one since `since`.

    `workload` is its namespace and owner.
    """

    workload: str
    node: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Leaving:
    """A node that pods have left, and that is paid for until `until`."""

    hourly_usd: float
    until: datetime
    is_spot: bool = False


@dataclass(frozen=True, slots=True)
class Fleet:
    """One shadow at one moment. Nodes are NodeClaims, those that still boot in the phase Launched.

    `ready_at` is when those can run pods, `touched` when pods last came to a node or left it, both by the node's name.
    `searched_at` is when cheaper nodes were last searched for, `rested_at` when that found none and nothing has changed
    since.
    """

    at: datetime
    claims: tuple[NodeClaim, ...] = ()
    locations: Mapping[str, PodLocation] = field(default_factory=dict)
    leaving: tuple[Leaving, ...] = ()
    ready_at: Mapping[str, datetime] = field(default_factory=dict)
    touched: Mapping[str, datetime] = field(default_factory=dict)
    rested_at: datetime | None = None
    bound_hourly_usd: float = 0.0
    bounded_at: datetime | None = None
    searched_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Shadow:
    """All that is kept of an observed cluster. `at` is the time of the last look, `boot_seconds` what nodes have shown.

    `waiting` are the pods that had no node in the cluster itself at that time, `closing` those on nodes that were about
    to end. `faults` are objects that could not be used, each in a sentence.
    """

    cluster: str
    started_at: datetime
    at: datetime
    fleets: Mapping[str, Fleet] = field(default_factory=dict)
    hours: tuple[Span, ...] = ()
    days: tuple[Span, ...] = ()
    waiting: frozenset[str] = frozenset()
    closing: frozenset[str] = frozenset()
    boot_seconds: float = 0.0
    faults: tuple[str, ...] = ()

    def adding(self, seconds: float, tallies: Mapping[str, Tally], unpriced_seconds: float) -> Shadow:
        """Return the shadow with what the time until `at` came to, booked on the hour and the day of `at`."""
        hour = self.at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        grown = Span(hour, seconds, tallies, unpriced_seconds)
        day = replace(grown, at=hour.replace(hour=0))
        return replace(
            self,
            hours=_booked(self.hours, grown)[-MOST_HOURS:],
            days=_booked(self.days, day)[-MOST_DAYS:],
        )


def _booked(spans: tuple[Span, ...], grown: Span) -> tuple[Span, ...]:
    if spans and spans[-1].at == grown.at:
        return (*spans[:-1], spans[-1].adding(grown))
    return (*spans, grown)


def shortened_faults(faults: Iterable[str]) -> tuple[str, ...]:
    """Return the sentences on one line each and cut to `LONGEST_FAULT` characters, at most `MOST_FAULTS` of them."""
    shortened = [" ".join(fault.split())[:LONGEST_FAULT] for fault in dict.fromkeys(faults)]
    if len(shortened) <= MOST_FAULTS:
        return tuple(shortened)
    return (*shortened[: MOST_FAULTS - 1], f"and {len(shortened) - MOST_FAULTS + 1} more")


def write_shadow(shadow: Shadow) -> bytes:
    """Write a shadow as compressed JSON."""
    raw = {
        "format": FORMAT,
        "cluster": shadow.cluster,
        "startedAt": shadow.started_at.isoformat(),
        "at": shadow.at.isoformat(),
        "fleets": {name: _fleet_item(fleet) for name, fleet in sorted(shadow.fleets.items())},
        "hours": [_span_item(span) for span in shadow.hours],
        "days": [_span_item(span) for span in shadow.days],
        "waiting": sorted(shadow.waiting),
        "closing": sorted(shadow.closing),
        "bootSeconds": shadow.boot_seconds,
        "faults": list(shadow.faults),
    }
    return gzip.compress(json.dumps(raw, separators=(",", ":")).encode(), 6, mtime=0)


def read_shadow(data: bytes, source: str) -> Shadow:
    """Read what `write_shadow` wrote. Raises Rejected if it cannot be read; `source` names the object."""
    try:
        raw = json.loads(gzip.decompress(data))
        if raw["format"] != FORMAT:
            raise ValueError(f"format {raw['format']!r}, expected {FORMAT}: it is of a later release")
        return Shadow(
            cluster=raw["cluster"],
            started_at=_time(raw["startedAt"]),
            at=_time(raw["at"]),
            fleets={name: _read_fleet(item) for name, item in raw["fleets"].items()},
            hours=tuple(map(_read_span, raw["hours"])),
            days=tuple(map(_read_span, raw["days"])),
            waiting=frozenset(raw["waiting"]),
            closing=frozenset(raw["closing"]),
            boot_seconds=float(raw["bootSeconds"]),
            faults=tuple(raw["faults"]),
        )
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Rejected(f"{source} cannot be read: {error!r}; delete it to start again") from None


_time = datetime.fromisoformat


def _times(times: Mapping[str, datetime]) -> dict[str, str]:
    return {name: at.isoformat() for name, at in sorted(times.items())}


def _fleet_item(fleet: Fleet) -> dict[str, Any]:
    """Write a fleet; pods are grouped by workload, whose name is long."""
    locations: dict[str, dict[str, list[str]]] = {}
    for key, location in sorted(fleet.locations.items()):
        since = [location.since.isoformat()] if location.since else []
        locations.setdefault(location.workload, {})[key] = [location.node, *since]
    return {
        "at": fleet.at.isoformat(),
        "claims": [claim_to_item(claim) for claim in fleet.claims],
        "locations": locations,
        "leaving": [
            [departure.hourly_usd, departure.until.isoformat(), departure.is_spot]
            for departure in fleet.leaving
        ],
        "readyAt": _times(fleet.ready_at),
        "touched": _times(fleet.touched),
        "restedAt": fleet.rested_at and fleet.rested_at.isoformat(),
        "searchedAt": fleet.searched_at and fleet.searched_at.isoformat(),
        "boundHourlyUsd": fleet.bound_hourly_usd,
        "boundedAt": fleet.bounded_at and fleet.bounded_at.isoformat(),
    }


def _read_fleet(item: Mapping[str, Any]) -> Fleet:
    locations = {
        key: PodLocation(workload, node, _time(since[0]) if since else None)
        for workload, pods in item["locations"].items()
        for key, (node, *since) in pods.items()
    }
    return Fleet(
        at=_time(item["at"]),
        claims=tuple(map(claim_from_item, item["claims"])),
        locations=locations,
        leaving=tuple(Leaving(usd, _time(until), spot) for usd, until, spot in item["leaving"]),
        ready_at={name: _time(at) for name, at in item["readyAt"].items()},
        touched={name: _time(at) for name, at in item["touched"].items()},
        rested_at=item["restedAt"] and _time(item["restedAt"]),
        bound_hourly_usd=item["boundHourlyUsd"],
        bounded_at=item["boundedAt"] and _time(item["boundedAt"]),
        searched_at=_time(item["searchedAt"]) if item.get("searchedAt") else None,
    )


def _span_item(span: Span) -> list[Any]:
    tallies = {
        name: {f.name: round(value, 6) for f in fields(Tally) if (value := getattr(tally, f.name))}
        for name, tally in sorted(span.tallies.items())
    }
    return [span.at.isoformat(), round(span.seconds, 3), tallies, round(span.unpriced_seconds, 3)]


def _read_span(item: list[Any]) -> Span:
    at, seconds, tallies, unpriced, *_ = item
    names = {f.name for f in fields(Tally)}
    read = {
        name: Tally(**{key: value for key, value in tally.items() if key in names})
        for name, tally in tallies.items()
    }
    return Span(_time(at), seconds, read, unpriced)
