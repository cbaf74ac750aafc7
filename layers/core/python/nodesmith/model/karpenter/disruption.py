"""How nodes of a NodePool may be taken away while they work: `spec.disruption`, and three annotations of our own.

What cannot be read here is no reason to buy nothing. But it was meant to protect, so until it is mended none of the
NodePool's nodes is disrupted (Karpenter's rule for schedules; `fault` says what it is).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodesmith.model.apimachinery.cron import is_schedule
from nodesmith.model.apimachinery.durations import NEVER, duration_seconds
from nodesmith.model.apimachinery.spelling import did_you_mean
from nodesmith.model.karpenter.budgets import DEFAULT_BUDGETS, Budget, read_budget
from nodesmith.model.schema.reports import Report, at, shown

BUDGET_TIMEZONE = "nodesmith.dev/budget-timezone"
MOST_AN_HOUR = "nodesmith.dev/max-disruptions-per-hour"
REBALANCE_ZONES = "nodesmith.dev/rebalance-zones"
WHEN_EMPTY = "WhenEmpty"
"""The consolidationPolicy that moves no pods."""
BALANCED = "Balanced"
"""The consolidationPolicy that weighs what a move saves against the share of the NodePool's pods that it disrupts."""
_ON, _OFF = "On", "Off"
UNTIL_MENDED = "until then none of its nodes is disrupted"
_PATH, _BUDGETS = "spec.disruption", "spec.disruption.budgets"
_NUMBER = re.compile(r"[0-9]{1,6}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Disruption:
    """When a pool's nodes may be consolidated, and how many of them at once, and in an hour."""

    consolidate_after: str = "0s"
    consolidation_policy: str = "WhenEmptyOrUnderutilized"
    budgets: tuple[Budget, ...] = DEFAULT_BUDGETS
    most_an_hour: int | None = None
    """Of all that end, whatever for; None for as many as the budgets allow."""
    rebalances_zones: bool = False
    """Whether nodes are disrupted whose pods are too many in their zone, by the spreads that they ask for."""
    fault: str = ""
    """The field or annotation that cannot be read, and so allows nothing; empty where all can."""

    @property
    def consolidate_after_seconds(self) -> int | None:
        """None for `Never`: no consolidation at all, not even of empty nodes."""
        return duration_seconds(self.consolidate_after)


USUAL_DISRUPTION = Disruption()


def read_disruption(
    spec: Mapping[str, Any], annotations: Mapping[str, str], report: Report, *, of_old: bool = False
) -> Disruption:
    """Read a `spec.disruption` that has passed its schema, and the annotations that belong to it.

    `of_old` objects are converted ones, whose author has said less than is written there now.
    """
    faults: list[str] = []
    zone = _timezone(annotations, report, faults)
    budgets = tuple(read_budget(item, zone) for item in spec["budgets"])
    faults += [
        f"{_BUDGETS}[{index}].schedule"
        for index, one in enumerate(budgets)
        if one.schedule is not None and not is_schedule(one.schedule)
    ]
    most = _most_an_hour(annotations, report, faults)
    rebalances = _rebalances_zones(annotations, spec, report)
    if not of_old:
        _doubt(spec, budgets, report)
    first = next(iter(faults), "")
    return Disruption(spec["consolidateAfter"], spec["consolidationPolicy"], budgets, most, rebalances, first)


def _timezone(annotations: Mapping[str, str], report: Report, faults: list[str]) -> str:
    name = annotations.get(BUDGET_TIMEZONE, "")
    if not name or _is_timezone(name):
        return name
    from zoneinfo import available_timezones

    hint = did_you_mean(name, available_timezones())
    remedy = f"must be a time zone's name, such as Europe/Berlin{hint}; {UNTIL_MENDED}"
    _refuse(BUDGET_TIMEZONE, name, remedy, report, faults)
    return ""


def _is_timezone(name: str) -> bool:
    from zoneinfo import ZoneInfo  # few name one, and every cold start would wait for it

    try:
        return bool(ZoneInfo(name))
    except (ValueError, OSError, KeyError):  # no name at all, a folder of them, one that nobody knows
        return False


def _most_an_hour(annotations: Mapping[str, str], report: Report, faults: list[str]) -> int | None:
    text = annotations.get(MOST_AN_HOUR)
    if text is None:
        return None
    if _NUMBER.fullmatch(text):
        return int(text)
    remedy = f"must be a number of nodes, such as 10, 0 for none at all; {UNTIL_MENDED}"
    _refuse(MOST_AN_HOUR, text, remedy, report, faults)
    return None


def _rebalances_zones(annotations: Mapping[str, str], spec: Mapping[str, Any], report: Report) -> bool:
    text, where = annotations.get(REBALANCE_ZONES, _OFF), at("metadata.annotations", REBALANCE_ZONES)
    if text not in {_ON, _OFF}:
        hint = did_you_mean(text, frozenset({_ON, _OFF}))
        report.add(where, shown(text), f"must be Off or On{hint}; taken as Off", fatal=False)
        return False
    for field, value in (("consolidationPolicy", WHEN_EMPTY), ("consolidateAfter", NEVER)):
        if text == _ON and spec[field] == value:
            remedy = f"does nothing beside {_PATH}.{field} {shown(value)}: no pods are moved; leave out one of them"
            report.add(where, shown(text), remedy, fatal=False)
    return text == _ON


def _refuse(key: str, text: str, remedy: str, report: Report, faults: list[str]) -> None:
    where = at("metadata.annotations", key)
    report.add(where, shown(text), remedy, fatal=False)
    faults.append(where)


def _doubt(spec: Mapping[str, Any], budgets: tuple[Budget, ...], report: Report) -> None:
    """Say what holds as it is written, and can hardly be meant."""
    none = next((index for index, one in enumerate(budgets) if one.allows_nothing), None)
    for index, one in enumerate(budgets):
        where = f"{_BUDGETS}[{index}]"
        if one.reasons == ():
            report.add(f"{where}.reasons", "[]", "limits nothing, leave it out for all reasons", fatal=False)
        elif none is not None and one.nodes not in ("0", "0%"):
            remedy = (
                f"never matters beside {_BUDGETS}[{none}], which allows none at any time; keep one of them"
            )
            report.add(f"{where}.nodes", shown(one.nodes), remedy, fatal=False)
    if (spec["consolidateAfter"], spec["consolidationPolicy"]) == (NEVER, WHEN_EMPTY):
        remedy = "keeps even empty nodes for ever; give a duration, or leave consolidationPolicy out"
        report.add(f"{_PATH}.consolidateAfter", shown(NEVER), remedy, fatal=False)
