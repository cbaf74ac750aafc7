"""Which concerns of a cluster a tick wakes, and what is wrong with a deployment by what its functions have recorded.

A tick wakes all concerns while the cluster changes, otherwise those that are due. Hints wake the concerns that have
something to do, and each function reports when time alone gives it something to do: not later than at that moment,
while an earlier one only costs a run. Ticks only make up for lost messages, which are next to none in a cluster that
does not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from zlib import crc32

from nodesmith.model.functions import (
    GOES_ON,
    OBSERVED_TICK_MINUTES,
    REGION_TICK_MINUTES,
    SYMPTOMS,
    TICK_MINUTES,
    Concern,
    Finding,
    Heartbeat,
    Marks,
    Record,
)
from nodesmith.model.ledger.region import Region
from nodesmith.model.limits.quotas import amount_in_words
from nodesmith.registration import Registration, Trial

QUIET_AFTER = timedelta(minutes=10)
"""How long nothing must have changed until only due concerns are woken.

This is twice the longest interval at which a process records when its concern must look again, so that the records come
from runs that have seen the last change. The ten ticks until then make up for a lost hint.
"""
QUIET_TICK_MINUTES = 30
"""How often each concern looks even if it is not due: the longest delay of anything that was not foreseen."""
SHADOW_QUIET_MINUTES = 10
"""How often the shadows of a cluster look that has not changed for a while."""
LOOK_MINUTES = 5
"""Clusters look in the first five of every thirty minutes, each in one of them.

The looks are not all at once, and not spread evenly either: a function's process rarely lives for half an hour, and
starting one costs several times as much as a look. The first cluster's look starts it, and the others reuse it.
"""
_MINUTE_SECONDS = 60
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
    "NodesBoughtInVain": "nodes of a NodePool were bought in vain, so its launches or replacements are paused",
    "PodsKilledWithoutGrace": "pods lost their node before their grace period was over",
    "NoSuccess": "has had no successful run lately",
    "Unreadable": "the cluster's registration cannot be read",
    "TrialEnded": "a release on trial failed, and the previous one serves all clusters again",
    "LimitUnreadable": "a SpendingLimit cannot be read, so nothing is bought that it may select",
    "LimitNearlyReached": "at least 80 % of a SpendingLimit is used",
    "LimitReached": "a SpendingLimit is used up, and no more nodes are bought against it",
    "GivenUp": "messages failed on every attempt and were given up",
}
"""The meaning of each kind of finding."""
OF_LIMITS = frozenset({"LimitUnreadable", "LimitNearlyReached", "LimitReached"})
"""The kinds of what `limit_findings` yields."""
PATIENCE = timedelta(minutes=10)
"""How long a concern may go without a successful run after it has become due.

A process whose runs succeed records that every five minutes.
"""


def due_concerns(
    cluster: str,
    marks: Marks | None,
    records: Sequence[Record] | None,
    stale_after: timedelta,
    at: datetime,
) -> list[Concern]:
    """Return the concerns of a cluster that a tick wakes in the minute of `at`.

    `marks` and `records` are None if they could not be read; the cluster then counts as changing. A heartbeat older
    than `stale_after` means that the forwarder is away, so observation must run; otherwise changes do not wake it.
    """
    minute = int(at.timestamp()) // _MINUTE_SECONDS
    if minute % QUIET_TICK_MINUTES == own_minute(cluster):
        return list(TICK_MINUTES)
    ticked = [concern for concern, every in TICK_MINUTES.items() if minute % every == 0]
    if marks is None or records is None or is_away(marks.heartbeat, stale_after, at):
        return ticked
    by_concern = {record.concern: record for record in records}
    waiting = {concern for concern in ticked if concern not in by_concern or by_concern[concern].is_due(at)}
    active = set() if is_quiet(marks, at) else set(ticked) - {Concern.OBSERVATION}
    return [concern for concern in ticked if concern in waiting | active]


def due_observers(
    cluster: str, heartbeat: Heartbeat | None, stale_after: timedelta, at: datetime
) -> list[Concern]:
    """Return the concerns of an observed cluster that a tick wakes in the minute of `at`.

    Its shadows look every minute while it changes, and else often enough for nodes to become removable.
    """
    minute = int(at.timestamp()) // _MINUTE_SECONDS
    away = is_away(heartbeat, stale_after, at)
    changed = heartbeat.changed if heartbeat else at
    looks = away or at - changed <= QUIET_AFTER or minute % SHADOW_QUIET_MINUTES == own_minute(cluster)
    observes = away or minute % QUIET_TICK_MINUTES == own_minute(cluster)
    return [*([Concern.SHADOW] if looks else []), *([Concern.OBSERVATION] if observes else [])]


def is_quiet(marks: Marks, at: datetime) -> bool:
    """Return whether neither a cluster's snapshot nor its ledger has changed lately.

    A ledger without a mark has not been written to since marks were introduced.
    """
    moments = [marks.heartbeat.changed if marks.heartbeat else at, marks.ledger_changed]
    return all(at - moment > QUIET_AFTER for moment in moments if moment is not None)


def is_away(heartbeat: Heartbeat | None, stale_after: timedelta, at: datetime) -> bool:
    """Return whether the forwarder sends no heartbeats, so that the observation function must replace it."""
    return heartbeat is None or not heartbeat.is_fresh(at, stale_after)


def own_minute(cluster: str) -> int:
    """Return the minute of thirty in which all of a cluster's concerns look, derived from the cluster's name."""
    return crc32(cluster.encode()) % LOOK_MINUTES


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
    by_concern = {(r.cluster, r.concern): r for r in records}
    symptoms = [finding for record in by_concern.values() for finding in _symptoms(record, now)]
    expected: list[tuple[str, Concern, int, datetime]] = [
        ("", concern, minutes, since) for concern, minutes in REGION_MINUTES.items()
    ]
    for registration, first_seen in registrations:
        expected += [
            (registration.cluster, concern, minutes, max(since, first_seen))
            for concern, minutes in (OBSERVED_TICK_MINUTES if registration.observed else TICK_MINUTES).items()
        ]
    for cluster, concern, minutes, begun in expected:
        record = by_concern.get((cluster, concern), Record(cluster, concern))
        symptoms += _silence(record, begun, allowed(minutes), now)
    return sorted(symptoms)


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
            yield Finding(record.cluster, record.concern, name, symptom.message)


def judge_trial(trial: Trial, records: Iterable[Record], now: datetime) -> Trial:
    """Return the trial unchanged, or ended with the reason. `records` are those of its clusters."""
    failing = sorted((record.cluster, record.concern) for record in records if fails(record, now))
    if not failing:
        return trial
    failures = ", ".join(f"{concern} of {cluster}" for cluster, concern in failing)
    minutes = PATIENCE // timedelta(minutes=1)
    message = f"release {trial.release} failed for {minutes} minutes: {failures}"
    return replace(trial, clusters=frozenset(), ended=message[:500])


def fails(record: Record, now: datetime) -> bool:
    """Return whether a concern has been due for `PATIENCE` without a successful run."""
    if record.due is None or now - record.due < PATIENCE:
        return False
    return record.succeeded_at is None or record.succeeded_at < record.due


_NEARLY_PERCENT, _WHOLE_PERCENT = 80, 100


def limit_findings(region: Region, now: datetime) -> Iterator[Finding]:
    """Yield a finding for each SpendingLimit that cannot be read or is nearly used by all of its clusters together.

    The sentences do not name amounts, so that they change only when a threshold is passed. A limit of 0, with which
    purchases are closed, is a finding only while something is spent.
    """
    for limit in region.limits:
        quota = limit.quota
        if quota.fault:
            yield Finding("", "", "LimitUnreadable", f"{quota.fault}: {quota.remedy}")
            continue
        used = region.reported_use(limit, now)
        for name, maximum in sorted(quota.limits.items()):
            percent = used[name] * 100 // maximum if maximum else _WHOLE_PERCENT * bool(used[name])
            kind = "LimitReached" if percent >= _WHOLE_PERCENT else "LimitNearlyReached"
            if percent >= _NEARLY_PERCENT:
                yield Finding("", "", kind, f"{quota.owner}: {amount_in_words(name, maximum)}")
