"""Whether a release on trial fails, so that the previous release serves its clusters again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from nodesmith.model.functions.health import Record
from nodesmith.registration import Trial

PATIENCE = timedelta(minutes=10)
"""How long a concern may go without a successful run after it has become due.

A process whose runs succeed records that every five minutes.
"""


def judge(trial: Trial, records: Iterable[Record], now: datetime) -> Trial:
    """Return the trial unchanged, or ended with the reason. `records` are those of its clusters."""
    failing = sorted((each.cluster, each.concern) for each in records if fails(each, now))
    if not failing:
        return trial
    said = ", ".join(f"{concern} of {cluster}" for cluster, concern in failing)
    minutes = PATIENCE // timedelta(minutes=1)
    ended = f"release {trial.release} failed for {minutes} minutes: {said}"
    return replace(trial, clusters=frozenset(), ended=ended[:500])


def fails(record: Record, now: datetime) -> bool:
    """Return whether a concern has been due for `PATIENCE` without a successful run."""
    if record.due is None or now - record.due < PATIENCE:
        return False
    return record.succeeded_at is None or record.succeeded_at < record.due
