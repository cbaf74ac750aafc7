"""Disruption budgets: how many nodes of a NodePool may be disrupted at once, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodesmith.model.durations import duration_seconds


@dataclass(frozen=True, slots=True)
class Budget:
    """One budget. `nodes` is a count (`5`) or a percentage (`10%`) of the pool's nodes."""

    nodes: str = "10%"
    reasons: tuple[str, ...] | None = None
    """Underutilized, Empty, Drifted; None for all of them, an empty tuple for none."""
    schedule: str | None = None
    """Five-field cron or a macro, in UTC; None for always."""
    duration_seconds: int | None = None


DEFAULT_BUDGETS = (Budget(),)


def read_budget(item: Mapping[str, Any]) -> Budget:
    """Read a budget that has passed its schema."""
    reasons = tuple(item["reasons"]) if "reasons" in item else None
    return Budget(item["nodes"], reasons, item.get("schedule"), duration_seconds(item.get("duration")))


def write_budget(budget: Budget) -> dict[str, Any]:
    """Write a budget so that `read_budget` reads it."""
    item: dict[str, Any] = {"nodes": budget.nodes}
    if budget.reasons is not None:
        item["reasons"] = list(budget.reasons)
    if budget.schedule is not None:
        item["schedule"] = budget.schedule
    if budget.duration_seconds is not None:
        item["duration"] = f"{budget.duration_seconds}s"
    return item
