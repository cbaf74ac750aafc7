"""What a region's functions say of their own work, and what is wrong with it."""

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
    "PodsKilledWithoutGrace": timedelta(0),
}
"""Counts of a run that somebody should look at, by name, and for how long they have to recur until they are a finding.

Retries and the next run make up for what happens once.
"""
GOES_ON = timedelta(minutes=11)
"""Between two runs that have the same symptom, for it to be the same occurrence: two of the longest intervals in which
dispatch wakes what has to look again.
"""
AT_ONCE = datetime(1970, 1, 1, tzinfo=UTC)
"""Due long since: for a run that cannot say when its concern has to look again."""


@dataclass(frozen=True, slots=True)
class Symptom:
    """A count that recurs: since when, when it was last seen, and what was said of it (at most 500 characters)."""

    since: datetime
    seen_at: datetime
    said: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """What the functions of one concern last said for one cluster (for none: a concern of the region).

    `succeeded_at` is the end of the last run that did not fail, `symptoms` are by the names of `SYMPTOMS`. From `due`
    on the concern has to look again, although nothing changes; None where time alone changes nothing. After a run
    that failed or had a symptom it is due at once.
    """

    cluster: str
    concern: str
    succeeded_at: datetime | None = None
    symptoms: Mapping[str, Symptom] = field(default_factory=dict)
    due: datetime | None = None

    def is_due(self, now: datetime) -> bool:
        """Return whether the concern has to look again."""
        return self.due is not None and self.due <= now

    def after(
        self, succeeded: bool, seen: Mapping[str, str], now: datetime, due: datetime | None = AT_ONCE
    ) -> Record:
        """Return the record after a run; `seen` are the symptoms that it had, each with what it said.

        `due` is when the concern has to look again. While runs fail it stays what it was when the first of them failed.
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
        """Write it as JSON, without its names."""
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
    """Something that is wrong and that no retry has mended. `cluster` is empty for what the region shares."""

    cluster: str
    concern: str
    kind: str
    said: str = field(default="", compare=False)
