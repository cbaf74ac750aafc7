"""Disruption budgets: how many nodes of a NodePool may be disrupted at once, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodesmith.model.apimachinery.times import duration_seconds


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
