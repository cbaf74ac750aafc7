"""Whole HTML reports: valid, one file, below 1 MB with 500 nodes, and with hostile names shown as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from justhtml import JustHTML

from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.kubernetes.pods import Shape
from nodesmith_cli.planning.alternatives import Alternative, Alternatives
from nodesmith_cli.planning.page import moves_page
from nodesmith_cli.simulator.localcommands.page import demo_sections, run_page
from nodesmith_cli.views.explaining.decisionpage import decision_picture
from nodesmith_cli.views.explaining.page import decision_page, decisions_page, lines_page, nodepools_page
from nodesmith_formats.prices import Price
from nodesmith_local.runs.interrupting import Interrupted, NodeSpan
from nodesmith_local.runs.latency import Latency
from nodesmith_local.runs.report import NodeReport, PendingPod, Report
from nodesmith_local.runs.running import Outcome
from nodesmith_local.runs.shrinking import ScaleDown
from nodesmith_local.runs.timeline import LAUNCHED, READY, Entry

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ('"><script>alert(1)</script>', "א" * 10_000, "\u202egnp", "W" * 10_000, "ip-10-0-0-1")
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")


def name(n: int) -> str:
    return f"{n}-{NAMES[n % len(NAMES)]}"


def record(nodes: int, concern: str = "provisioning", **plan: Any) -> dict[str, Any]:
    """Return a decision that launches so many nodes, all of different NodePools, for three pods each."""
    return {
        "id": "20260101T000000Z-0000",
        "concern": concern,
        "cluster": name(0),
        "at": NOW.isoformat(),
        "inputsHash": "0" * 64,
        "inputs": {
            "snapshot": {"takenAt": NOW.isoformat()},
            "ledger": {"version": 1},
            "catalog": {"ref": "r", "region": "us-east-1"},
        },
        "durationsMs": {"decide": 12.0},
        "plan": {
            "nodes": [planned(n) for n in range(nodes)],
            "placed": {"there": ["default/there-0"]},
            "waiting": {"default/waits-0": "claim"},
            "unplaced": [{"pods": [name(n)], "reason": name(n), "fix": name(n)} for n in range(nodes // 5)],
            "ignored": [],
            "obstacles": {name(1): name(1)},
            "problems": [name(2)],
            "priceHourlyUsd": 0.1 * nodes,
            "boundHourlyUsd": 0.09 * nodes,
            "steps": 5,
            **plan,
        },
    }


def planned(n: int) -> dict[str, Any]:
    offered = [["t", f"m{each}.large", zone, "s", 0.1 + each / 100] for each in range(60) for zone in ZONES]
    return {
        "claim": {
            "name": name(n),
            "nodepool": name(n),
            "nominated": [f"default/{name(n)}-{i}" for i in range(3)],
        },
        "launch": {"capacityType": ("spot", "on-demand")[n % 2], "overrides": offered},
        "priceHourlyUsd": 0.1,
        "estimated": True,
    }


def report(nodes: int) -> Report:
    room = parse_resources({"cpu": "4", "memory": "16Gi", "pods": "58"})
    found = (
        NodeReport(
            name(n), name(n), "m5.large", ZONES[n % 3], "spot", Price(0.1, True), room, room, (name(n),), True
        )
        for n in range(nodes)
    )
    entries = (
        entry
        for n in range(nodes)
        for entry in (
            Entry(NOW, LAUNCHED, f"NodeClaim/{name(n)}"),
            Entry(NOW.replace(second=40), READY, f"NodeClaim/{name(n)}"),
        )
    )
    pending = tuple(PendingPod(name(n), name(n)) for n in range(nodes // 5))
    return Report(tuple(found), pending, tuple(entries), (name(3),), nodes)


def others() -> Alternatives:
    choices = (Alternative("on-demand capacity only", 20.0),)
    relaxed = tuple(Alternative("zone spread", 9.0 - n / 10, n % 2, name(n)) for n in range(12))
    return Alternatives(choices, relaxed, 12, 40)


def move(n: int) -> dict[str, Any]:
    node = {
        "node": name(n),
        "nodeClaim": name(n),
        "instanceType": name(n),
        "capacityType": "spot",
        "zone": name(n),
    }
    return {
        "reason": "Underutilized",
        "sources": [node, node],
        "replacements": [node],
        "destinations": {name(n): name(n)},
        "savingEstimated": True,
        "savingHourly": 0.1,
        "evictionCost": 1.0,
        "message": name(n),
    }


def moves(nodes: int) -> dict[str, Any]:
    kept = [
        {"node": name(n), "nodeClaim": name(n), "rule": name(n), "object": name(n), "message": name(n)}
        for n in range(nodes)
    ]
    figures = {
        "priceHourly": 50.0,
        "savingHourly": 10.0,
        "savingYearly": 87_600.0,
        "priceEstimated": False,
        "savingEstimated": True,
        "evictionCost": 3.0,
        "nodes": nodes,
    }
    return {"moves": [move(n) for n in range(nodes // 5)], "kept": kept, **figures}


def demo(nodes: int) -> str:
    before = report(nodes)
    outcome = Outcome(before, (Latency("bound", 30.0, 40.0, nodes),), ())
    moved = {**record(0, moves=[{"message": name(1)}]), "again": []}
    further = demo_sections(
        [ScaleDown(before, report(nodes // 2), (moved,))],
        [
            Interrupted(
                tuple(NodeSpan(name(n), name(n), leaving=40, until=50) for n in range(nodes)),
                (0.4,),
                "",
                2,
                nodes,
            )
        ],
    )
    return run_page(outcome, [(record(nodes), {})], name(0), further)


PAGES: dict[str, Callable[[int], str]] = {
    "decision": lambda nodes: decision_page(record(nodes), None, others()),
    "moved": lambda nodes: decision_page(
        record(
            0,
            "disruption",
            moves=[
                {
                    "reason": "Empty",
                    "sources": [name(n)],
                    "replacements": [],
                    "savingHourlyUsd": 0.1,
                    "evictionCost": 1,
                    "message": name(n),
                }
                for n in range(nodes)
            ],
        ),
        None,
        None,
    ),
    "decisions": lambda nodes: decisions_page(
        name(0), [{"id": name(n), "summary": name(n)} for n in range(nodes)]
    ),
    "lines": lambda nodes: lines_page(name(0), [name(0), *(f"  stays     {name(n)}" for n in range(nodes))]),
    "nodepools": lambda nodes: nodepools_page(
        [
            {
                "nodePool": name(n),
                "types": 1_000,
                "left": 10,
                "removals": [{"by": name(n), "types": 900, "onlyByIt": 5}],
                "obstacle": name(n),
                "nodeClassFault": None,
                "overlays": [],
                "limits": [],
            }
            for n in range(nodes)
        ]
    ),
    "moves": lambda nodes: moves_page(moves(nodes), NOW),
    "demo": demo,
}


@pytest.mark.parametrize("kind", PAGES)
def test_a_report_of_500_nodes_is_one_valid_file_below_one_megabyte_that_asks_for_nothing(kind: str) -> None:
    written = PAGES[kind](500)

    assert len(written.encode()) < 1_000_000
    assert JustHTML(written, collect_errors=True, sanitize=False).errors == []
    assert not re.search(r"\s(src|href|style|on\w+)=|url\(|@import|https?://", written)


@pytest.mark.parametrize("kind", PAGES)
def test_hostile_names_are_text_in_a_report(kind: str) -> None:
    written = PAGES[kind](10)

    elements = {node.name for node in JustHTML(written, sanitize=False).query("*")}
    assert "script" not in elements
    assert "&lt;script&gt;" in written
    assert "\u202e" not in written
    assert "W" * 2_001 not in written
    assert "א" * 2_001 not in written


def test_a_decision_leads_pods_to_shapes_and_nodes() -> None:
    shapes = {
        key: Shape(
            "default", {}, owner="Deployment/web", requests=parse_resources({"cpu": "500m", "memory": "1Gi"})
        )
        for node in record(2)["plan"]["nodes"]
        for key in node["claim"]["nominated"]
    }

    drawn = decision_picture(record(2)["plan"], shapes)

    assert ">default/web<" in drawn
    assert ">0.5 CPU, 1Gi<" in drawn
    assert ">1 × m0.large<" in drawn
    assert "existing node" in drawn


@pytest.mark.parametrize(("saving", "said"), [(0.25, ">Saved<"), (-0.25, ">Added<")])
def test_the_page_of_moves_shows_what_they_save_or_add(saving: float, said: str) -> None:
    move = {"reason": "Drifted", "sources": [name(1)], "replacements": [], "message": ""}
    amounts = {"savingHourlyUsd": saving, "evictionCost": 1.0, "destinations": {}, "worthUsd": 0.0}

    written = decision_page(record(0, "disruption", moves=[{**move, **amounts}]), None, None)

    assert said in written
    assert "$0.2500" in written
    assert "$-" not in written


def test_each_constraint_shows_its_price_or_the_pods_that_it_keeps_pending() -> None:
    written = decision_page(record(2), None, others())

    assert "What each constraint costs" in written
    assert "12 of 40 examined" in written
    assert "1 more pod would get a node" in written
    assert "on-demand capacity only" in written
