"""How a NodePool's nodes may be disrupted: `spec.disruption` with its budgets, and three annotations of nodesmith.

An unreadable setting here does not stop the NodePool from launching nodes. But since such a setting protects nodes,
none of the NodePool's nodes is disrupted until it is fixed. This is Karpenter's rule for schedules. `fault` names the
setting.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nodesmith.model.apimachinery.problems import Report, at, did_you_mean, shown
from nodesmith.model.apimachinery.times import NEVER, duration_seconds, is_schedule, schedule_fault


@dataclass(frozen=True, slots=True)
class Budget:
    """One budget. `nodes` is a count (`5`) or a percentage (`10%`) of the pool's nodes."""

    nodes: str = "10%"
    reasons: tuple[str, ...] | None = None
    """Underutilized, Empty, Drifted; None for all of them, an empty tuple for none."""
    schedule: str | None = None
    """Five-field cron or a macro; None for always."""
    duration_seconds: int | None = None
    timezone: str = ""
    """Time zone of the schedule, such as `Europe/Berlin`; empty for UTC."""

    @property
    def allows_nothing(self) -> bool:
        """True if the budget always applies, to every reason, and allows no disruption."""
        return self.nodes in ("0", "0%") and self.reasons is None and self.schedule is None


DEFAULT_BUDGETS = (Budget(),)


def read_budget(item: Mapping[str, Any], timezone: str = "") -> Budget:
    """Read a budget that has passed its schema. `timezone` is its NodePool's, used if the budget names none."""
    reasons = tuple(item["reasons"]) if "reasons" in item else None
    seconds = duration_seconds(item.get("duration"))
    return Budget(item["nodes"], reasons, item.get("schedule"), seconds, item.get("timezone", timezone))


def write_budget(budget: Budget) -> dict[str, Any]:
    """Write a budget so that `read_budget` reads it."""
    item: dict[str, Any] = {"nodes": budget.nodes}
    if budget.reasons is not None:
        item["reasons"] = list(budget.reasons)
    if budget.schedule is not None:
        item["schedule"] = budget.schedule
    if budget.duration_seconds is not None:
        item["duration"] = f"{budget.duration_seconds}s"
    if budget.timezone:
        item["timezone"] = budget.timezone
    return item


@dataclass(frozen=True, slots=True)
class Window:
    """A window of the schedule of a NodePool or CapacityBuffer: it is open for the duration after each moment."""

    schedule: str
    duration_seconds: int
    timezone: str = ""
    """Time zone of the cron schedule, such as `Europe/Berlin`; empty for UTC."""


SCHEDULE = "nodesmith.dev/schedule"
"""The windows in which a NodePool has nodes, as a JSON list."""
_SCHEDULE_KEYS = frozenset({"schedule", "duration", "timeZone"})
_MOST_WINDOWS, _LONGEST_SCHEDULE = 20, 4096
_SPAN = re.compile(r"([0-9]{1,4}[hm]){1,2}", re.ASCII)
_ANY_ZONE = "must be the name of a time zone, such as Europe/Berlin"
_EXAMPLE = '[{"schedule": "0 7 * * mon-fri", "duration": "13h", "timeZone": "Europe/Berlin"}]'


def read_windows(annotations: Mapping[str, str], report: Report) -> tuple[Window, ...] | None:
    """Return the windows of a NodePool's schedule, None without a schedule or if a part of it cannot be read."""
    text = annotations.get(SCHEDULE)
    if text is None:
        return None
    windows: list[Window] = []
    faults = list(_schedule_faults(text, windows))
    for place, value, remedy in faults:
        path = at("metadata.annotations", SCHEDULE) + place
        detail = f"{remedy}; until this is fixed, the NodePool is used at all times"
        report.add(path, shown(value), detail, fatal=False)
    return None if faults else tuple(windows)


def _schedule_faults(text: str, windows: list[Window]) -> Iterator[tuple[str, object, str]]:
    """Yield the place, value and remedy of each fault, and add the windows without one to `windows`."""
    try:
        items = json.loads(text) if len(text) <= _LONGEST_SCHEDULE else None
    except (ValueError, RecursionError):
        items = None
    if not isinstance(items, list) or not 0 < len(items) <= _MOST_WINDOWS:
        yield "", text, f"must be a JSON list of 1 to {_MOST_WINDOWS} windows, such as {_EXAMPLE}"
        return
    for index, item in enumerate(items):
        faults = list(_window_faults(item))
        yield from ((f"[{index}]{place}", value, remedy) for place, value, remedy in faults)
        if not faults:
            windows.append(Window(item["schedule"], _seconds(item["duration"]), item.get("timeZone", "")))


def _window_faults(item: object) -> Iterator[tuple[str, object, str]]:
    if not isinstance(item, dict):
        yield "", item, "must be an object with schedule and duration"
        return
    for key in sorted(item.keys() - _SCHEDULE_KEYS):
        hint = did_you_mean(key, _SCHEDULE_KEYS)
        yield (
            f".{shown(key)[1:-1]}",
            item[key],
            f"is unknown{hint or ', use schedule, duration and timeZone'}",
        )
    cron, span, zone = item.get("schedule"), item.get("duration"), item.get("timeZone", "")
    if not isinstance(cron, str):
        yield ".schedule", cron, "must be a cron schedule of five fields, such as 0 7 * * mon-fri"
    elif fault := schedule_fault(cron):
        yield ".schedule", cron, fault
    if not isinstance(span, str) or not _SPAN.fullmatch(span) or not _seconds(span):
        yield ".duration", span, "must be hours and minutes, such as 13h or 8h30m"
    if fault := timezone_fault(zone) if isinstance(zone, str) else _ANY_ZONE:
        yield ".timeZone", zone, fault


def _seconds(span: str) -> int:
    return duration_seconds(span) or 0


BUDGET_TIMEZONE = "nodesmith.dev/budget-timezone"
"""On a NodePool: the time zone of its budgets' schedules, UTC by default."""
MOST_AN_HOUR = "nodesmith.dev/max-disruptions-per-hour"
"""On a NodePool: how many of its nodes may be disrupted within an hour."""
REBALANCE_ZONES = "nodesmith.dev/rebalance-zones"
"""On a NodePool: `On` to move nodes so that pods are spread over zones again."""
WHEN_EMPTY = "WhenEmpty"
"""The consolidationPolicy that moves no pods."""
BALANCED = "Balanced"
"""The consolidationPolicy that weighs a move's savings against the share of the NodePool's pods that it disrupts."""
_ON, _OFF = "On", "Off"
UNTIL_MENDED = "until this is fixed, none of its nodes is disrupted"
_PATH, _BUDGETS = "spec.disruption", "spec.disruption.budgets"
_NUMBER = re.compile(r"[0-9]{1,6}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Disruption:
    """When a NodePool's nodes may be consolidated, how many at once, and how many an hour."""

    consolidate_after: str = "0s"
    consolidation_policy: str = "WhenEmptyOrUnderutilized"
    budgets: tuple[Budget, ...] = DEFAULT_BUDGETS
    most_an_hour: int | None = None
    """Maximum number of nodes that may end in an hour for any reason; None for as many as the budgets allow."""
    rebalances_zones: bool = False
    """Whether nodes are disrupted if their zone has too many of their pods by the pods' topology spread constraints."""
    fault: str = ""
    """The field or annotation that cannot be read, which stops disruption; empty if all can be read."""

    @property
    def consolidate_after_seconds(self) -> int | None:
        """`consolidate_after` in seconds; None for `Never`: no consolidation at all, not even of empty nodes."""
        return duration_seconds(self.consolidate_after)


USUAL_DISRUPTION = Disruption()


def read_disruption(
    spec: Mapping[str, Any], annotations: Mapping[str, str], report: Report, *, of_old: bool = False
) -> Disruption:
    """Read a `spec.disruption` that has passed its schema, and the annotations that belong to it.

    `of_old` is True for a converted object, which contains settings that its author did not write. Doubtful settings
    are then not reported.
    """
    faults: list[str] = []
    zone = _timezone(annotations, report, faults)
    budgets = tuple(read_budget(item, zone) for item in spec["budgets"])
    faults += [
        f"{_BUDGETS}[{index}].schedule"
        for index, budget in enumerate(budgets)
        if budget.schedule is not None and not is_schedule(budget.schedule)
    ]
    hourly_limit = _most_an_hour(annotations, report, faults)
    rebalances = _rebalances_zones(annotations, spec, report)
    if not of_old:
        _warn_of_mistakes(spec, budgets, report)
    fault = next(iter(faults), "")
    return Disruption(
        spec["consolidateAfter"], spec["consolidationPolicy"], budgets, hourly_limit, rebalances, fault
    )


def _timezone(annotations: Mapping[str, str], report: Report, faults: list[str]) -> str:
    name = annotations.get(BUDGET_TIMEZONE, "")
    fault = timezone_fault(name)
    if not fault:
        return name
    _refuse(BUDGET_TIMEZONE, name, f"{fault}; {UNTIL_MENDED}", report, faults)
    return ""


def timezone_fault(name: str) -> str:
    """Return what the name of a time zone must be, empty if there is such a zone, or no name at all."""
    if not name:
        return ""
    from zoneinfo import (  # few objects name one, and the import slows every cold start
        ZoneInfo,
        available_timezones,
    )

    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # an invalid name, a folder of zones, an unknown zone
        return _ANY_ZONE + did_you_mean(name, available_timezones())
    return ""


def _most_an_hour(annotations: Mapping[str, str], report: Report, faults: list[str]) -> int | None:
    text = annotations.get(MOST_AN_HOUR)
    if text is None:
        return None
    if _NUMBER.fullmatch(text):
        return int(text)
    remedy = f"must be a number of nodes, such as 10, or 0 for none at all; {UNTIL_MENDED}"
    _refuse(MOST_AN_HOUR, text, remedy, report, faults)
    return None


def _rebalances_zones(annotations: Mapping[str, str], spec: Mapping[str, Any], report: Report) -> bool:
    text, path = annotations.get(REBALANCE_ZONES, _OFF), at("metadata.annotations", REBALANCE_ZONES)
    if text not in {_ON, _OFF}:
        hint = did_you_mean(text, frozenset({_ON, _OFF}))
        report.add(path, shown(text), f"must be Off or On{hint}; treated as Off", fatal=False)
        return False
    for field, value in (("consolidationPolicy", WHEN_EMPTY), ("consolidateAfter", NEVER)):
        if text == _ON and spec[field] == value:
            remedy = f"has no effect with {_PATH}.{field} {shown(value)}, which moves no pods; leave out one of them"
            report.add(path, shown(text), remedy, fatal=False)
    return text == _ON


def _refuse(key: str, text: str, remedy: str, report: Report, faults: list[str]) -> None:
    path = at("metadata.annotations", key)
    report.add(path, shown(text), remedy, fatal=False)
    faults.append(path)


def _warn_of_mistakes(spec: Mapping[str, Any], budgets: tuple[Budget, ...], report: Report) -> None:
    """Report settings that are valid but are unlikely to be what their author meant."""
    none = next((index for index, budget in enumerate(budgets) if budget.allows_nothing), None)
    for index, budget in enumerate(budgets):
        path = f"{_BUDGETS}[{index}]"
        if budget.reasons == ():
            report.add(
                f"{path}.reasons", "[]", "limits nothing; leave it out to limit all reasons", fatal=False
            )
        elif none is not None and budget.nodes not in ("0", "0%"):
            other = f"{_BUDGETS}[{none}], which never allows any disruption"
            remedy = f"has no effect together with {other}; keep one of them"
            report.add(f"{path}.nodes", shown(budget.nodes), remedy, fatal=False)
    if (spec["consolidateAfter"], spec["consolidationPolicy"]) == (NEVER, WHEN_EMPTY):
        remedy = "keeps even empty nodes forever; set a duration, or leave out consolidationPolicy"
        report.add(f"{_PATH}.consolidateAfter", shown(NEVER), remedy, fatal=False)
