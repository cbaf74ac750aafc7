"""What a region's functions say of their own work, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from nodesmith.model.times import format_time, parse_time

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
"""Between two runs that have the same symptom, for it to be the same occurrence: two of the longest intervals."""


@dataclass(frozen=True, slots=True)
class Symptom:
    """A count that recurs: since when, when it was last seen, and what was said of it (at most 500 characters)."""

    since: datetime
    seen_at: datetime
    said: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """What the functions of one concern last said for one cluster (for none: a concern of the region).

    `succeeded_at` is the end of the last run that did not fail, `symptoms` are by the names of `SYMPTOMS`.
    """

    cluster: str
    concern: str
    succeeded_at: datetime | None = None
    symptoms: Mapping[str, Symptom] = field(default_factory=dict)

    def after(self, succeeded: bool, seen: Mapping[str, str], now: datetime) -> Record:
        """Return the record after a run; `seen` are the symptoms that it had, each with what it said."""
        symptoms = {
            name: symptom for name, symptom in self.symptoms.items() if now - symptom.seen_at <= GOES_ON
        }
        for name, said in seen.items():
            known = symptoms.get(name)
            symptoms[name] = Symptom(known.since if known else now, now, said[:SAID_LENGTH])
        return Record(self.cluster, self.concern, now if succeeded else self.succeeded_at, symptoms)

    def to_document(self) -> dict[str, Any]:
        """Write it as JSON, without its names."""
        symptoms = {
            name: {"since": format_time(each.since), "seen": format_time(each.seen_at), "said": each.said}
            for name, each in sorted(self.symptoms.items())
        }
        succeeded = {"succeeded": format_time(self.succeeded_at)} if self.succeeded_at else {}
        return {**succeeded, **({"symptoms": symptoms} if symptoms else {})}

    @classmethod
    def from_document(cls, cluster: str, concern: str, document: Mapping[str, Any]) -> Record:
        """Read what `to_document` wrote. Raises KeyError, ValueError."""
        said = document.get("succeeded")
        symptoms = {
            name: Symptom(parse_time(each["since"]), parse_time(each["seen"]), str(each.get("said", "")))
            for name, each in document.get("symptoms", {}).items()
        }
        return cls(cluster, concern, parse_time(said) if said else None, symptoms)


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """Something that is wrong and that no retry has mended. `cluster` is empty for what the region shares."""

    cluster: str
    concern: str
    kind: str
    said: str = field(default="", compare=False)
