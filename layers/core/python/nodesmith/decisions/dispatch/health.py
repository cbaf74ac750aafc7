"""What is wrong with a deployment, according to what its functions have recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from nodesmith.decisions.dispatch.ticks import QUIET_TICK_MINUTES
from nodesmith.model.functions.health import GOES_ON, SYMPTOMS, Finding, Record
from nodesmith.model.functions.hints import REGION_TICK_MINUTES, TICK_MINUTES, Concern
from nodesmith.registration import Registration

REGION_MINUTES = {c: minutes for c, minutes in REGION_TICK_MINUTES.items() if c != Concern.DISPATCH}
"""The region's concerns that are checked, with their intervals. Dispatch does the checks, and alarms watch dispatch."""
LEAST = timedelta(minutes=15)
"""How long any concern may go without a successful run, whatever its interval: outages of AWS are shorter."""
MISSED = 3
_LATE_MINUTES = 60
"""The extra time for a concern that runs every few hours: Lambda repeats a failed run within minutes."""
KINDS: Mapping[str, str] = {
    "Rejected": "receives input that it cannot use",
    "SnapshotsWritten": "the forwarder sends no snapshots",
    "NodePoolsUnhealthy": "nodes of a NodePool do not join the cluster",
    "PodsKilledWithoutGrace": "pods lost their node before their grace period was over",
    "NoSuccess": "has had no successful run lately",
    "Unreadable": "the cluster's registration cannot be read",
    "TrialEnded": "a release on trial failed, and the previous one serves all clusters again",
    "GivenUp": "messages failed on every attempt and were given up",
}
"""The meaning of each kind of finding."""


def findings(
    records: Iterable[Record],
    registrations: Iterable[tuple[Registration, datetime]],
    since: datetime,
    now: datetime,
) -> list[Finding]:
    """Return the findings, in a total order.

    Each of `registrations` comes with the time at which it was first seen; `since` is when this deployment began to
    check. A concern is expected to succeed only after its allowed time has passed.
    """
    known = {(each.cluster, each.concern): each for each in records}
    found = [finding for record in known.values() for finding in _symptoms(record, now)]
    expected: list[tuple[str, Concern, int, datetime]] = [
        ("", concern, minutes, since) for concern, minutes in REGION_MINUTES.items()
    ]
    for registration, first_seen in registrations:
        expected += [
            (registration.cluster, concern, minutes, max(since, first_seen))
            for concern, minutes in TICK_MINUTES.items()
        ]
    for cluster, concern, minutes, begun in expected:
        record = known.get((cluster, concern), Record(cluster, concern))
        found += _silence(record, begun, allowed(minutes), now)
    return sorted(found)


def awaited_since(record: Record, begun: datetime) -> datetime:
    """Return the time since when a successful run has been expected, not before `begun`.

    A cluster's concern is woken when it is due, and after `QUIET_TICK_MINUTES` in any case; a failed run makes it due.
    A concern of the region, or one that has never succeeded, is woken by each tick.
    """
    if record.succeeded_at is None or record.succeeded_at < begun or not record.cluster:
        return max(record.succeeded_at or begun, begun)
    looks_at = record.succeeded_at + timedelta(minutes=QUIET_TICK_MINUTES)
    return looks_at if record.due is None else min(max(record.due, record.succeeded_at), looks_at)


def allowed(minutes: int) -> timedelta:
    """Return how long a concern that runs every so many `minutes` may go without a successful run."""
    return max(LEAST, timedelta(minutes=min(MISSED * minutes, minutes + _LATE_MINUTES)))


def _silence(record: Record, begun: datetime, patience: timedelta, now: datetime) -> Iterator[Finding]:
    succeeded_at = record.succeeded_at
    if now - awaited_since(record, begun) <= patience:
        return
    ago = f"the last one ended at {succeeded_at:%Y-%m-%d %H:%M} UTC" if succeeded_at else "there was none yet"
    yield Finding(record.cluster, record.concern, "NoSuccess", ago)


def _symptoms(record: Record, now: datetime) -> Iterator[Finding]:
    for name, symptom in record.symptoms.items():
        lasts = symptom.seen_at - symptom.since >= SYMPTOMS.get(name, timedelta(0))
        if lasts and now - symptom.seen_at <= GOES_ON:
            yield Finding(record.cluster, record.concern, name, symptom.said)
