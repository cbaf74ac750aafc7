"""Times, durations and cron schedules, as Kubernetes' and Karpenter's manifests write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple


def parse_time(text: str) -> datetime:
    """Return an RFC 3339 time in UTC. A time without a zone is taken as UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    try:
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:
        raise ValueError(f"{text!r} is out of range in UTC") from None


def is_time(text: str) -> bool:
    """Return whether a text is a time with a zone."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def format_time(moment: datetime) -> str:
    """Write a time in Kubernetes' format: `2026-11-21T07:28:05Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_UNIT_SECONDS = {"h": 3600, "m": 60, "s": 1}
_PART = re.compile(r"([0-9]+)([smh])", re.ASCII)


def first_after(now: datetime, moments: Iterable[datetime | None]) -> datetime | None:
    """Return the first of these moments that is after `now`; None, which means never, if there is none."""
    return min((moment for moment in moments if moment is not None and moment > now), default=None)


def first(moments: Iterable[datetime | None]) -> datetime | None:
    """Return the first of these moments; None, which means never, if there is none."""
    return min((moment for moment in moments if moment is not None), default=None)


NEVER = "Never"
LONGEST_SECONDS = (2**63 - 1) // 10**9
"""The longest duration that Kubernetes can represent in nanoseconds: 292 years. Longer ones are cut to it."""
_MOST_DIGITS = 10
_GO_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_GO_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6} | {
    unit: seconds * 10**9 for unit, seconds in _UNIT_SECONDS.items()
}
_MOST_NANOSECONDS = 2**63 - 1
_MOST_GO_DIGITS = 19
_GO_DURATION = re.compile(r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+", re.ASCII)


def duration_seconds(text: str | None) -> int | None:
    """Return the length of `text` in seconds; None for `Never` and for None.

    Expects text that has passed its field's pattern. Anything between the parts is ignored.
    """
    if text is None or text == NEVER:
        return None
    parts = ((number.lstrip("0") or "0", _UNIT_SECONDS[unit]) for number, unit in _PART.findall(text))
    seconds = (int(n) * unit if len(n) <= _MOST_DIGITS else LONGEST_SECONDS for n, unit in parts)
    return min(sum(seconds), LONGEST_SECONDS)


def go_duration(text: str) -> timedelta | None:
    """Return a duration as Go's time.ParseDuration reads it, in whole microseconds; None for a text of another form.

    `0` without a unit, which Go reads as well, is of another form.
    """
    if not _GO_DURATION.fullmatch(text):
        return None
    length = timedelta(microseconds=nanoseconds(text) // 1000)
    return -length if text.startswith("-") else length


def nanoseconds(text: str) -> int:
    """Return the length of a Go duration in nanoseconds, rounded as in Go's time.ParseDuration; 0 for `Never`.

    Expects text that has passed its field's pattern.
    """
    total = 0
    for digits, fraction, unit in _GO_PART.findall(text):
        number = digits.lstrip("0") or "0"
        whole = int(number) if len(number) <= _MOST_GO_DIGITS else _MOST_NANOSECONDS
        total += whole * _GO_UNITS[unit] + _part_of(fraction, _GO_UNITS[unit])
    return min(total, _MOST_NANOSECONDS)


def _part_of(digits: str, unit: int) -> int:
    """Return a decimal fraction of a unit. Like Go, calculate in float64 and use only the digits that fit an int64."""
    number, scale = 0, 1.0
    for digit in digits:
        if number > _MOST_NANOSECONDS // 10:
            break
        number, scale = number * 10 + int(digit), scale * 10
    return int(number * (unit / scale))


_MONTHS = {
    name: number for number, name in enumerate("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split(), 1)
}
_WEEKDAYS = {name: number for number, name in enumerate("SUN MON TUE WED THU FRI SAT".split())}
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 6, _WEEKDAYS),
)
_LENGTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
"""days of each month in a leap year"""
_ANY = frozenset({"*", "?", "*/1", "?/1"})
_LONGEST_STEP, _HOURS_A_DAY = 999, 24
LONGEST_GAP = timedelta(days=8 * 366)
"""No interval between two moments is longer, not even that from 29 February 2096 to the next one."""
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class CronError(ValueError):
    """A text that is not a schedule. The message names the wrong field and what the field may contain."""


class Cron(NamedTuple):
    """A parsed schedule. If both the days of the month and the weekdays are restricted, a match of either is enough."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    """The day of the month was written `*` or `?`, without a step; `any_weekday` likewise."""
    any_weekday: bool
    repeats: bool
    """The hours are all 24, or were written `*` or `?`, perhaps with a step: every so many hours, as time passes."""


def parse_cron(text: str) -> Cron:
    """Read a schedule; Sunday is 0. Raises CronError."""
    parts = MACROS.get(text, text).split()
    if len(parts) != len(_FIELDS):
        raise CronError(f"must have five fields (or be one of {', '.join(MACROS)}), this has {len(parts)}")
    minutes, hours, days, months, weekdays = (
        _parse_field(part, *field) for part, field in zip(parts, _FIELDS, strict=True)
    )
    any_day, any_weekday = (not _ANY.isdisjoint(parts[place].split(",")) for place in (2, 4))
    if any_weekday and min(days) > max(_LENGTHS[month - 1] for month in months):
        raise CronError(f"never matches: none of its months has a day {min(days)}")
    repeats = len(hours) == _HOURS_A_DAY or any(part[0] in "*?" for part in parts[1].split(","))
    return Cron(minutes, hours, days, months, weekdays, any_day, any_weekday, repeats)


@lru_cache(maxsize=256)
def schedule_fault(text: str) -> str:
    """Return which field of a schedule is wrong and what it may contain; empty if there is none."""
    try:
        parse_cron(text)
    except CronError as error:
        return str(error)
    return ""


def is_schedule(text: str) -> bool:
    """Return whether a text is a valid schedule."""
    return not schedule_fault(text)


def last_hit(schedule: Cron, after: datetime, until: datetime, zone: tzinfo = UTC) -> datetime | None:
    """Return the newest moment of a schedule that is later than `after` and not later than `until`, in UTC.

    The schedule uses the local time of `zone`. A local time that occurs twice when daylight saving time ends means its
    first occurrence, or both if the schedule repeats through the day: windows without a gap then have none, as in cron.
    One that is skipped when daylight saving time begins shifts by as much as the clock is advanced.
    The search goes back at most eight years: the longest interval between two 29ths of February.
    """
    after = max(after, until - LONGEST_GAP)
    day, last = until.astimezone(zone).date(), after.astimezone(zone).date()
    while day >= last:
        newest = _newest(schedule, day, until, zone) if _falls_on(schedule, day) else None
        if newest is not None:
            return newest if newest > after else None
        day -= timedelta(days=1)
    return None


def next_hit(schedule: Cron, after: datetime, zone: tzinfo = UTC) -> datetime | None:
    """Return the first moment of a schedule that is later than `after`, in UTC; None if there is none in eight years.

    The schedule uses the local time of `zone` as in `last_hit`.
    """
    day, last = after.astimezone(zone).date(), (after + LONGEST_GAP).astimezone(zone).date()
    while day <= last:
        later = (moment for moment in _moments(schedule, day, zone) if moment > after)
        first = min(later, default=None) if _falls_on(schedule, day) else None
        if first is not None:
            return first
        day += timedelta(days=1)
    return None


def _newest(schedule: Cron, day: date, until: datetime, zone: tzinfo) -> datetime | None:
    past = (moment for moment in _moments(schedule, day, zone) if moment <= until)
    return next(past, None) if zone is UTC else max(past, default=None)


def _moments(schedule: Cron, day: date, zone: tzinfo) -> Iterator[datetime]:
    """Yield the moments of a day on which a schedule falls, in UTC: the last one first if the zone is UTC itself."""
    for hour in sorted(schedule.hours, reverse=True):
        for minute in sorted(schedule.minutes, reverse=True):
            clock = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
            moment = clock.astimezone(UTC)
            yield moment
            if schedule.repeats and zone is not UTC:
                again = clock.replace(fold=1).astimezone(UTC)
                if again > moment:
                    yield again


def _falls_on(schedule: Cron, day: date) -> bool:
    if day.month not in schedule.months:
        return False
    on_day, on_weekday = day.day in schedule.days, day.isoweekday() % 7 in schedule.weekdays
    if schedule.any_day or schedule.any_weekday:
        return on_day and on_weekday
    return on_day or on_weekday


def _parse_field(text: str, name: str, low: int, high: int, names: dict[str, int]) -> frozenset[int]:
    values: set[int] = set()
    for item in text.split(","):
        span, slash, step_text = item.partition("/")
        step = _number(step_text, f"step of the {name}", 1, _LONGEST_STEP, {}) if slash else 1
        if span in ("*", "?"):
            first, last = low, high
        else:
            start, dash, end = span.partition("-")
            first = _number(start, name, low, high, names)
            last = _number(end, name, low, high, names) if dash else (high if slash else first)
        if first > last:
            raise CronError(f"the {name} range {span} runs backwards")
        values.update(range(first, last + 1, step))
    return frozenset(values)


def _number(text: str, name: str, low: int, high: int, names: dict[str, int]) -> int:
    named = names.get(text.upper())
    if named is not None:
        return named
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else -1
    if not low <= number <= high:
        words = f" or {next(iter(names))} to {list(names)[-1]}" if names else ""
        raise CronError(f"the {name} {text[:20]!r} must be a number from {low} to {high}{words}")
    return number
