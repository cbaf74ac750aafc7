"""Functions: the concerns, messages between functions, and what functions and forwarders record of a cluster.

A hint is a message that means "look again". It carries no state, so losing or duplicating one only costs time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.times import format_time, parse_time


class Concern(StrEnum):
    """The concerns that can be woken."""

    PROVISIONING = "provisioning"
    LIFECYCLE = "lifecycle"
    READINESS = "readiness"
    TERMINATION = "termination"
    CATALOG = "catalog"
    OBSERVATION = "observation"
    GARBAGECOLLECTION = "garbagecollection"
    REPAIR = "repair"
    INTERRUPTION = "interruption"
    ROUTING = "routing"
    DISRUPTION = "disruption"
    DISPATCH = "dispatch"
    SHADOW = "shadow"


TICK_MINUTES = {
    Concern.PROVISIONING: 1,
    Concern.INTERRUPTION: 1,
    Concern.DISRUPTION: 1,
    Concern.LIFECYCLE: 1,
    Concern.TERMINATION: 1,
    Concern.READINESS: 5,
    Concern.OBSERVATION: 1,
    Concern.REPAIR: 1,
    Concern.GARBAGECOLLECTION: 2,
}
"""Concern of a cluster → the interval at which dispatch wakes it, so that lost hints do no harm."""
OBSERVED_TICK_MINUTES = {Concern.SHADOW: 1, Concern.OBSERVATION: 1}
"""The same for a cluster that is only observed: no other concern is woken for it."""
REGION_TICK_MINUTES = {Concern.DISPATCH: 1, Concern.ROUTING: 1, Concern.CATALOG: 720}
"""Concern of a region → the interval at which it is woken. Routing is kept warm for notices.

The catalogue's prices only rank what can be bought, while CreateFleet uses current prices. Karpenter also refreshes
them every twelve hours.
"""
SCHEDULED = (Concern.DISPATCH, Concern.CATALOG)
"""The concerns that a schedule invokes. Dispatch wakes routing, which costs less than a separate schedule."""
TALKING = (
    Concern.DISRUPTION,
    Concern.LIFECYCLE,
    Concern.TERMINATION,
    Concern.READINESS,
    Concern.OBSERVATION,
    Concern.REPAIR,
    Concern.GARBAGECOLLECTION,
)
"""The concerns that call the API server, whose functions may have to run in the cluster's VPC."""
INFORMED = (Concern.PROVISIONING, Concern.LIFECYCLE, Concern.READINESS, Concern.TERMINATION)
"""The concerns that are woken when observation has written a snapshot."""
WOKEN = (*INFORMED, Concern.DISRUPTION)
"""The concerns that the forwarder wakes, and that wake each other."""
MEASURED = (
    Concern.PROVISIONING,
    Concern.INTERRUPTION,
    Concern.DISRUPTION,
    Concern.LIFECYCLE,
    Concern.TERMINATION,
    Concern.READINESS,
    Concern.REPAIR,
    Concern.GARBAGECOLLECTION,
)
"""The concerns whose functions have metrics for Prometheus, each in an object of its own."""
SHARING = (Concern.PROVISIONING, Concern.INTERRUPTION, Concern.DISRUPTION, Concern.READINESS)
"""The concerns that read and write what clusters share of limits: those that buy nodes, and readiness."""


RETRY_SECONDS = (5, 5, 5, 10, 20, 40, 80, 160, 320)
"""Delays before the retries of a failed run, in order. The last delay applies to all further retries.

EC2 reclaims a spot instance after two minutes' notice, so the first retries come quickly.
"""
MOST_ATTEMPTS = 15
"""Maximum number of runs for one hint, enough to outlast an outage of half an hour."""


@dataclass(frozen=True, slots=True)
class Hint:
    """A request that a concern look at a cluster. `attempt` is the number of failed runs for it.

    `reason` is for logs.
    """

    cluster: str
    reason: str = ""
    attempt: int = 0

    def to_document(self) -> dict[str, Any]:
        """Write the hint as JSON data."""
        attempt = {"attempt": self.attempt} if self.attempt else {}
        return {"cluster": self.cluster, "reason": self.reason, **attempt}

    @classmethod
    def from_document(cls, raw: object) -> Hint:
        """Read what `to_document` wrote. Raises Rejected with what was found."""
        if not isinstance(raw, dict) or not isinstance(raw.get("cluster"), str):
            raise Rejected(f"hint: expected an object with the text field 'cluster', found {_quoted(raw)}")
        return cls(raw["cluster"], str(raw.get("reason", ""))[:200], _attempt(raw))


@dataclass(frozen=True, slots=True)
class DelayedInvocation:
    """An invocation of a function that waits in the region's queue.

    `vpc` is the name in cdk.json of the VPC in which the function runs, empty for none. `payload` is the function's
    event.
    """

    concern: Concern
    vpc: str
    payload: Mapping[str, Any]

    def to_json(self) -> str:
        """Write the message body."""
        raw = {"concern": self.concern, "vpc": self.vpc, "payload": self.payload}
        return json.dumps(raw, separators=(",", ":"))

    @classmethod
    def from_json(cls, body: str) -> DelayedInvocation:
        """Read a message body. Raises Rejected with what was found."""
        try:
            raw = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Rejected(f"message body: expected a JSON object, found {body[:80]!r} ({error})") from None
        fields = raw if isinstance(raw, dict) else {}
        concern, vpc, payload = (fields.get(name) for name in ("concern", "vpc", "payload"))
        if concern not in list(Concern) or not isinstance(vpc, str) or not isinstance(payload, dict):
            raise Rejected(
                f"message body: expected the fields 'concern', 'vpc' and 'payload', found {body[:80]!r}"
            )
        return cls(Concern(concern), vpc, payload)


def hints_payload(hints: Sequence[Hint]) -> Mapping[str, Any]:
    """Return the event that asks the function of a concern to look at clusters."""
    return {"messages": [hint.to_document() for hint in hints]}


def hints_of(event: Mapping[str, Any]) -> tuple[list[Hint], list[str]]:
    """Return the hints of an event, and the reason for each message that cannot be read."""
    messages = event.get("messages")
    if not isinstance(messages, list):
        return [], [f"event: expected a list 'messages', found {_quoted(event)}"]
    hints, faults = [], []
    for message in messages:
        try:
            hints.append(Hint.from_document(message))
        except Rejected as error:
            faults.append(str(error))
    return hints, faults


def retry_seconds(attempt: int) -> int | None:
    """Return the delay before the retry of a run that has failed `attempt` + 1 times, None for no more retries."""
    if attempt + 1 >= MOST_ATTEMPTS:
        return None
    return RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)]


def _attempt(raw: Mapping[str, Any]) -> int:
    attempt = raw.get("attempt", 0)
    return attempt if isinstance(attempt, int) and 0 <= attempt < MOST_ATTEMPTS else 0


def _quoted(raw: object) -> str:
    return repr(str(raw)[:80])


MESSAGE_LENGTH = 500
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
    message: str = ""


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
        self, succeeded: bool, errors: Mapping[str, str], now: datetime, due: datetime | None = AT_ONCE
    ) -> Record:
        """Return the record after a run. `errors` are its symptoms with their messages.

        `due` is when the concern must run again. While runs fail, the value from the first failure is kept.
        """
        symptoms = {
            name: symptom for name, symptom in self.symptoms.items() if now - symptom.seen_at <= GOES_ON
        }
        for name, text in errors.items():
            before = symptoms.get(name)
            symptoms[name] = Symptom(before.since if before else now, now, text[:MESSAGE_LENGTH])
        succeeded_at = now if succeeded else self.succeeded_at
        return Record(
            self.cluster, self.concern, succeeded_at, symptoms, self._due(succeeded, errors, now, due)
        )

    def _due(
        self, succeeded: bool, errors: Mapping[str, str], now: datetime, due: datetime | None
    ) -> datetime | None:
        if not succeeded:
            return min(self.due or now, now)
        if errors:
            return now
        return None if due is None else max(due, now)

    def to_document(self) -> dict[str, Any]:
        """Write the record as JSON data, without cluster and concern."""
        symptoms = {
            name: {
                "since": format_time(symptom.since),
                "seen": format_time(symptom.seen_at),
                "message": symptom.message,
            }
            for name, symptom in sorted(self.symptoms.items())
        }
        times = {"succeeded": self.succeeded_at, "due": self.due}
        written = {name: format_time(moment) for name, moment in times.items() if moment is not None}
        return {**written, **({"symptoms": symptoms} if symptoms else {})}

    @classmethod
    def from_document(cls, cluster: str, concern: str, document: Mapping[str, Any]) -> Record:
        """Read what `to_document` wrote. Raises KeyError, ValueError."""
        succeeded, due = document.get("succeeded"), document.get("due")
        symptoms = {
            name: Symptom(
                parse_time(symptom["since"]), parse_time(symptom["seen"]), str(symptom.get("message", ""))
            )
            for name, symptom in document.get("symptoms", {}).items()
        }
        succeeded_at = parse_time(succeeded) if succeeded else None
        return cls(cluster, concern, succeeded_at, symptoms, parse_time(due) if due else None)


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A problem that retries have not fixed. `cluster` is empty for a problem of the whole region."""

    cluster: str
    concern: str
    kind: str
    message: str = field(default="", compare=False)


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
