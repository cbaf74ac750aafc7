"""What `nodesmith plan --consolidate` and summaries of decisions say about what moves save."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from nodesmith_cli.planning.moves import show_moves
from nodesmith_cli.planning.page import moves_page
from nodesmith_formats.decisions.summaries import summary

NODE = {"instanceType": "m5.large", "capacityType": "on-demand", "zone": "us-east-1a"}


def reported(saving: float) -> dict[str, Any]:
    """Return the JSON data of one move of two nodes at $1 an hour together, by which a drifted node is replaced."""
    move = {
        "reason": "Drifted",
        "message": "replacing 1 node with 2 pods: AMIDrift",
        "sources": [NODE],
        "replacements": [NODE],
        "destinations": {"default/a": "x", "default/b": "x"},
        "evictionCost": 2.0,
        "savingHourly": saving,
        "savingEstimated": True,
    }
    return {
        "nodes": 2,
        "priceHourly": 1.0,
        "priceEstimated": True,
        "savingHourly": saving,
        "savingEstimated": True,
        "savingYearly": saving * 8760,
        "evictionCost": 2.0,
        "isFinished": True,
        "seconds": 0.1,
        "steps": 3,
        "moves": [move],
        "kept": [],
    }


@pytest.mark.parametrize(
    ("saving", "said", "shown"),
    [
        (
            0.25,
            "saves ~$0.2500/hour, ~$2,190 a year (25%), at an eviction cost of 2",
            ("25% less", "Saved", "saves ~"),
        ),
        (
            -0.25,
            "costs ~$0.2500/hour, ~$2,190 a year (25%) more, at an eviction cost of 2",
            ("25% more", "Added", "/h more"),
        ),
    ],
)
def test_moves_that_cost_more_save_no_negative_amount(
    saving: float, said: str, shown: tuple[str, ...]
) -> None:
    out = StringIO()
    show_moves(Console(file=out, width=120), reported(saving))
    assert said in out.getvalue()
    html = moves_page(reported(saving), datetime(2026, 11, 21, tzinfo=UTC))
    assert all(text in html for text in shown)


def test_summaries_say_so_too() -> None:
    plan: dict[str, Any] = {"nodes": [], "placed": {}, "waiting": {}, "unplaced": []}
    dearer, cheaper = [{"savingHourlyUsd": -0.25}], [{"savingHourlyUsd": 0.25}]
    assert summary({"plan": {**plan, "moves": dearer}}) == "1 move, costs $0.2500/hour more"
    assert summary({"plan": {**plan, "moves": cheaper}}) == "1 move, saves $0.2500/hour"
