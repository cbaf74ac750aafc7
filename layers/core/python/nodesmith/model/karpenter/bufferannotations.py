"""Annotations of nodesmith on CapacityBuffers: when room is kept, how history sizes it, and what it may cost.

A value that cannot be read is fatal to the buffer, because room that nobody asked for costs money.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from nodesmith.model.apimachinery.problems import Report, at, report_unknown_annotations, shown
from nodesmith.model.apimachinery.times import duration_seconds, schedule_fault
from nodesmith.model.karpenter.disruption import Window, timezone_fault

WARM_CAPACITY = "nodesmith.dev/warm-capacity"
"""The strategy of instances that are prepared, stopped, and started when pods come."""
WARM_EXPIRE_AFTER = "nodesmith.dev/warm-expire-after"
"""On a buffer of stopped instances: how old they become before they are replaced."""
WARM_STATE = "nodesmith.dev/warm-state"
"""On a buffer of stopped instances: the state they are kept in. `stopped` is the only one."""
SCHEDULE = "nodesmith.dev/buffer-schedule"
"""On a buffer: when its window begins, as five cron fields or a macro. Outside its windows it keeps no room."""
DURATION = "nodesmith.dev/buffer-duration"
"""On a buffer with a schedule: how long its window lasts."""
TIMEZONE = "nodesmith.dev/buffer-timezone"
"""On a buffer with a schedule: the time zone of the schedule, UTC by default."""
QUANTILE = "nodesmith.dev/buffer-quantile"
"""On a buffer: the quantile of its workload's growth in the past for which it keeps room."""
WINDOW_DAYS = "nodesmith.dev/buffer-window-days"
"""On a buffer with a quantile: how many days of the past count, 28 by default."""
HORIZON = "nodesmith.dev/buffer-horizon"
"""On a buffer with a quantile: within which time the workload's growth counts, 10m by default."""
LIMIT_USD = "nodesmith.dev/buffer-limit-usd-per-hour"
"""On a buffer: the most that nodes with room of this buffer cost an hour if only buffers keep them."""
_KNOWN = frozenset(
    {
        WARM_EXPIRE_AFTER,
        WARM_STATE,
        SCHEDULE,
        DURATION,
        TIMEZONE,
        QUANTILE,
        WINDOW_DAYS,
        HORIZON,
        LIMIT_USD,
    }
)
STOPPED = "stopped"
EXPIRE_AFTER = timedelta(days=7)
LEAST_EXPIRE_AFTER = timedelta(hours=1)
"""A shorter time would replace instances again and again: each replacement runs for some minutes."""
_MOST_DAYS = 28
_LONGEST_HORIZON = 3600
_SHORTEST_HORIZON = 300
_MINUTES = re.compile("[0-9]{1,4}m|1h", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)
_DURATION = re.compile("([0-9]+(h|m)|[0-9]+h[0-9]+m)(0s)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Quantile:
    """Room for the quantile `value` of a workload's growth within the horizon, in the last days."""

    value: float
    window_days: int = _MOST_DAYS
    horizon_seconds: int = 600


def report_unknown(annotations: Mapping[str, str], report: Report) -> None:
    """Report annotations of nodesmith that no buffer has: a schedule or limit that is misspelt costs money."""
    report_unknown_annotations(annotations, _KNOWN, "CapacityBuffers", report)


def read_window(annotations: Mapping[str, str], report: Report) -> Window | None:
    """Read the schedule of a buffer. A buffer whose schedule cannot be read keeps no room, because room costs money."""
    schedule, duration = annotations.get(SCHEDULE), annotations.get(DURATION)
    zone = annotations.get(TIMEZONE, "")
    if schedule is None and duration is None:
        if zone:
            _refuse(report, TIMEZONE, zone, f"has no effect without {SCHEDULE}", fatal=False)
        return None
    if schedule is None or duration is None:
        missing, present = (SCHEDULE, DURATION) if schedule is None else (DURATION, SCHEDULE)
        _refuse(report, missing, None, f"must be set together with {present}")
        return None
    seconds = _seconds(duration, report)
    if fault := schedule_fault(schedule):
        _refuse(report, SCHEDULE, schedule, fault)
    if fault := timezone_fault(zone):
        _refuse(report, TIMEZONE, zone, fault)
    return Window(schedule, seconds, zone)


def read_expire_after(annotations: Mapping[str, str], report: Report, *, is_warm: bool) -> timedelta:
    """Read when stopped instances are replaced. If a value cannot be read, no room is kept, as for schedules."""
    text, state = annotations.get(WARM_EXPIRE_AFTER), annotations.get(WARM_STATE)
    if state not in (None, STOPPED):
        remedy = f"must be {STOPPED}, which is also the default: hibernated nodes are not supported"
        _refuse(report, WARM_STATE, state, remedy)
    if not is_warm:
        for name in (WARM_EXPIRE_AFTER, WARM_STATE):
            if name in annotations:
                remedy = f"has no effect without provisioningStrategy: {WARM_CAPACITY}"
                _refuse(report, name, annotations[name], remedy, fatal=False)
        return EXPIRE_AFTER
    if text is None:
        return EXPIRE_AFTER
    seconds = duration_seconds(text) if _DURATION.fullmatch(text) else None
    if not seconds or timedelta(seconds=seconds) < LEAST_EXPIRE_AFTER:
        _refuse(report, WARM_EXPIRE_AFTER, text, "must be a duration of at least an hour, such as 168h")
    return timedelta(seconds=seconds or 0)


def read_quantile(annotations: Mapping[str, str], report: Report, *, scales: bool) -> Quantile | None:
    """Read how history sizes a buffer. Values that cannot be read are fatal: a size nobody asked for costs money."""
    value = read_number(annotations, QUANTILE, report, "greater than 0 and less than 1, such as 0.95")
    if QUANTILE not in annotations:
        for key in sorted({WINDOW_DAYS, HORIZON} & annotations.keys()):
            _refuse(report, key, annotations[key], f"has no effect without {QUANTILE}", fatal=False)
        return None
    if value is None:
        return None
    if not 0 < value < 1:
        _refuse(
            report, QUANTILE, annotations[QUANTILE], "must be greater than 0 and less than 1, such as 0.95"
        )
    days, horizon = annotations.get(WINDOW_DAYS, str(_MOST_DAYS)), annotations.get(HORIZON, "10m")
    if not days.isascii() or not days.isdigit() or not 1 <= int(days[:9]) <= _MOST_DAYS:
        _refuse(report, WINDOW_DAYS, days, f"must be a number of days from 1 to {_MOST_DAYS}")
        return None
    seconds = (duration_seconds(horizon) or 0) if _MINUTES.fullmatch(horizon) else 0
    if not _SHORTEST_HORIZON <= seconds <= _LONGEST_HORIZON:
        _refuse(report, HORIZON, horizon, "must be from 5m to 60m")
    if not scales:
        _refuse(report, QUANTILE, annotations[QUANTILE], "needs a scalableRef, whose history it reads")
    return Quantile(value, int(days), seconds)


def read_number(annotations: Mapping[str, str], key: str, report: Report, right: str) -> float | None:
    """Return a number that is not negative, None without one."""
    text = annotations.get(key)
    if text is None:
        return None
    if not _DECIMAL.fullmatch(text):
        _refuse(report, key, text, f"must be {right}")
        return None
    return float(text)


def _seconds(duration: str, report: Report) -> int:
    seconds = duration_seconds(duration) if _DURATION.fullmatch(duration) else None
    if not seconds:
        _refuse(report, DURATION, duration, "must be a duration such as 9h or 8h30m")
    return seconds or 0


def _refuse(report: Report, key: str, found: str | None, remedy: str, *, fatal: bool = True) -> None:
    path = at("metadata.annotations", key)
    report.add(path, "missing" if found is None else shown(found), remedy, fatal=fatal)
