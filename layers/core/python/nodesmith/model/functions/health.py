"""What functions and forwarders record of a cluster: health, heartbeats, and when it last changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from nodesmith.model.apimachinery.times import format_time, parse_time

SAID_LENGTH = 500
SYMPTOMS: Mapping[str, timedelta] = {
    "Rejected": timedelta(minutes=10),
    "SnapshotsWritten": timedelta(minutes=10),
    "NodePoolsUnhealthy": timedelta(minutes=5),
    "NodesBoughtInVain": timedelta(0),
    "PodsKilledWithoutGrace": timedelta(0),
}
"""Count of a run that indicates a problem → how long it must recur before it is a finding.

Retries and the next run compensate for a single occurrence.
"""
GOES_ON = timedelta(minutes=11)
"""Maximum time between two runs with a symptom that count as one occurrence.

It is twice the longest interval at which dispatch wakes a concern that is due.
"""
AT_ONCE = datetime(1970, 1, 1, tzinfo=UTC)
"""Overdue: for a run that does not report when its concern is due again."""


@dataclass(frozen=True, slots=True)
class Symptom:
    """A recurring count: since when, when it was last seen, and its message (at most 500 characters)."""

    since: datetime
    seen_at: datetime
    said: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """The last state of a concern for one cluster. `cluster` is empty for a concern of the region.

    `succeeded_at` is the end of the last successful run. The keys of `symptoms` are names in `SYMPTOMS`. From `due` on,
    the concern must run again even if nothing changes; None if it need not run without a change. After a run that
    failed or had a symptom, it is due immediately.
    """

    cluster: str
    concern: str
    succeeded_at: datetime | None = None
    symptoms: Mapping[str, Symptom] = field(default_factory=dict)
    due: datetime | None = None

    def is_due(self, now: datetime) -> bool:
        """Return whether the concern must run again."""
        return self.due is not None and self.due <= now

    def after(
        self, succeeded: bool, seen: Mapping[str, str], now: datetime, due: datetime | None = AT_ONCE
    ) -> Record:
        """Return the record after a run. `seen` are its symptoms with their messages.

        `due` is when the concern must run again. While runs fail, the value from the first failure is kept.
        """
        symptoms = {
            name: symptom for name, symptom in self.symptoms.items() if now - symptom.seen_at <= GOES_ON
        }
        for name, said in seen.items():
            known = symptoms.get(name)
            symptoms[name] = Symptom(known.since if known else now, now, said[:SAID_LENGTH])
        succeeded_at = now if succeeded else self.succeeded_at
        return Record(
            self.cluster, self.concern, succeeded_at, symptoms, self._due(succeeded, seen, now, due)
        )

    def _due(
        self, succeeded: bool, seen: Mapping[str, str], now: datetime, due: datetime | None
    ) -> datetime | None:
        if not succeeded:
            return min(self.due or now, now)
        if seen:
            return now
        return None if due is None else max(due, now)

    def to_document(self) -> dict[str, Any]:
        """Write the record as JSON data, without cluster and concern."""
        symptoms = {
            name: {"since": format_time(each.since), "seen": format_time(each.seen_at), "said": each.said}
            for name, each in sorted(self.symptoms.items())
        }
        times = {"succeeded": self.succeeded_at, "due": self.due}
        written = {name: format_time(moment) for name, moment in times.items() if moment is not None}
        return {**written, **({"symptoms": symptoms} if symptoms else {})}

    @classmethod
    def from_document(cls, cluster: str, concern: str, document: Mapping[str, Any]) -> Record:
        """Read what `to_document` wrote. Raises KeyError, ValueError."""
        said, due = document.get("succeeded"), document.get("due")
        symptoms = {
            name: Symptom(parse_time(each["since"]), parse_time(each["seen"]), str(each.get("said", "")))
            for name, each in document.get("symptoms", {}).items()
        }
        succeeded_at = parse_time(said) if said else None
        return cls(cluster, concern, succeeded_at, symptoms, parse_time(due) if due else None)


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A problem that retries have not fixed. `cluster` is empty for a problem of the whole region."""

    cluster: str
    concern: str
    kind: str
    said: str = field(default="", compare=False)


CLOCK_SKEW = timedelta(minutes=1)
"""How far a forwarder's clock may be ahead: a heartbeat from far in the future must not count as fresh."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The forwarder's heartbeat: at `at`, the cluster was in the state of the snapshot.

    `changed` is when the last snapshot was taken that the forwarder wrote because of a change.
    """

    at: datetime
    changed: datetime

    def is_fresh(self, now: datetime, stale_after: timedelta) -> bool:
        """Return whether the heartbeat is recent enough for the forwarder to count as alive."""
        return now - stale_after < self.at <= now + CLOCK_SKEW


@dataclass(frozen=True, slots=True)
class Marks:
    """When a cluster's snapshot and ledger last changed, None if unknown."""

    heartbeat: Heartbeat | None = None
    ledger_changed: datetime | None = None
