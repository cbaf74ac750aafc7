from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from nodesmith.model.costs.allocations import HOURS, allocations_key, booked_key
from nodesmith.model.functions import Heartbeat
from nodesmith_formats.decisions.records import Folder
from nodesmith_local.runs.decisions import Decisions
from nodesmith_local.runs.quiet import FOR_GOOD
from nodesmith_local.runs.timeline import Timeline


class Objects:
    """A bucket."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.data.get(key)

    def keys(self, prefix: str) -> Iterator[str]:
        return iter([key for key in self.data if key.startswith(prefix)])

    def decide(self, minute: int, **plan: Any) -> str:
        empty: dict[str, Any] = {"nodes": [], "placed": {}, "waiting": {}, "unplaced": [], "ignored": []}
        decision = f"20261121T08{minute:02}00Z-aaaaaaaa"
        record: dict[str, Any] = {
            "format": "nodesmith-decision",
            "version": 1,
            "id": decision,
            "at": f"2026-11-21T08:{minute:02}:00+00:00",
            "inputs": {"snapshot": {"takenAt": f"2026-11-21T07:{minute:02}:00+00:00"}},
        }
        record["plan"] = {**empty, "problems": [], "priceHourlyUsd": 0.0, **plan}
        self.data[f"clusters/shop/decisions/{decision}.json.gz"] = gzip.compress(json.dumps(record).encode())
        return decision


def unplaced(pod: str, reason: str) -> list[dict[str, Any]]:
    return [{"pods": [pod], "reason": reason}]


def test_each_decision_appears_once() -> None:
    objects, timeline = Objects(), Timeline()
    decisions = Decisions(objects, "shop", timeline)
    first = objects.decide(0, unplaced=unplaced("default/a", "too big"))

    decisions.collect()
    decisions.collect()

    assert [(e.what, e.object, e.detail) for e in timeline.entries] == [
        ("decided", f"Decision/{first}", "1 not placed")
    ]


def test_the_last_decision_about_a_pod_counts() -> None:
    objects = Objects()
    decisions = Decisions(objects, "shop", Timeline())
    objects.decide(
        0, unplaced=unplaced("default/a", "no NodePool"), ignored=unplaced("default/b", "opted out")
    )
    decisions.collect()
    seen = datetime(2026, 11, 21, 7, 0, tzinfo=UTC)
    assert decisions.refused(None) == {"default/a": seen, "default/b": FOR_GOOD}

    objects.decide(1, waiting={"default/a": "default-x1"})
    decisions.collect()

    assert decisions.refused(None) == {"default/b": FOR_GOOD}
    assert decisions.reasons() == {"default/a": "waits for NodeClaim default-x1", "default/b": "opted out"}


@pytest.mark.parametrize(
    ("beat", "changed", "known"),
    [
        ("07:40", "07:00", "07:40"),  # nothing has changed until then
        ("08:30", "07:00", "08:00"),  # the decision was made earlier
        ("07:40", "07:20", "07:00"),  # there is a newer snapshot
    ],
)
def test_a_heartbeat_extends_the_time_of_a_refusals_snapshot(beat: str, changed: str, known: str) -> None:
    def at(time: str) -> datetime:
        return datetime.fromisoformat(f"2026-11-21T{time}:00+00:00")

    objects = Objects()
    decisions = Decisions(objects, "shop", Timeline())
    objects.decide(0, unplaced=unplaced("default/a", "no NodePool"))
    decisions.collect()

    assert decisions.refused(Heartbeat(at(beat), at(changed))) == {"default/a": at(known)}


def test_a_record_is_kept_with_its_snapshot(tmp_path: Any) -> None:
    objects = Objects()
    decision = objects.decide(0)
    objects.data[f"clusters/shop/decisions/{decision}.snapshot.json.gz"] = b"snapshot"

    Decisions(objects, "shop", Timeline(), Folder(tmp_path)).collect()

    kept = {path.name for path in (tmp_path / "clusters" / "shop" / "decisions").iterdir()}
    assert kept == {f"{decision}.json.gz", f"{decision}.snapshot.json.gz"}


def test_booked_hours_are_kept_when_the_state_of_cost_allocation_changes(tmp_path: Any) -> None:
    objects, keep = Objects(), Folder(tmp_path)
    decisions = Decisions(objects, "shop", Timeline(), keep)
    first, second = (allocations_key(HOURS, "shop", f"2026-11-21/{hour}") for hour in ("08", "09"))
    objects.data |= {first: b"8", booked_key("shop"): b"state 1"}
    decisions.collect()
    assert keep.get(first) == b"8"
    objects.data[second] = b"9"
    decisions.collect()
    assert keep.get(second) is None
    objects.data[booked_key("shop")] = b"state 2"
    decisions.collect()
    assert keep.get(second) == b"9"


def test_a_decision_to_buy_appears_once_it_is_carried_out() -> None:
    objects, timeline = Objects(), Timeline()
    decisions = Decisions(objects, "shop", timeline)
    buying = objects.decide(0, nodes=[{"claim": {"name": "a"}, "estimated": False}], boundHourlyUsd=0.0)

    decisions.collect()
    told_before = list(timeline.entries)
    objects.data[f"clusters/shop/decisions/{buying}.snapshot.json.gz"] = b"kept"
    decisions.collect()

    assert told_before == []
    assert [e.object for e in timeline.entries] == [f"Decision/{buying}"]


def test_a_superseded_decision_does_not_appear() -> None:
    objects, timeline = Objects(), Timeline()
    decisions = Decisions(objects, "shop", timeline)
    lost = objects.decide(0, unplaced=unplaced("default/a", "too big"))
    key = f"clusters/shop/decisions/{lost}.json.gz"
    record = json.loads(gzip.decompress(objects.data[key]))
    objects.data[key] = gzip.compress(json.dumps(record | {"superseded": True}).encode())

    decisions.collect()

    assert timeline.entries == ()
    assert decisions.all == ()
