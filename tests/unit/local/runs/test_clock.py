from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nodesmith_formats.decisions.records import Folder
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.runs.system import LocalSystem, Place

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


class Monotonic:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_a_clock_at_speed_ten_passes_ten_seconds_in_one() -> None:
    life = Monotonic()
    clock = LocalClock(10, start=START, monotonic=life)

    life.seconds += 1

    assert clock.now() == START + timedelta(seconds=10)
    assert clock.now().tzinfo is UTC


def test_a_clock_waits_a_tenth_of_the_time_at_speed_ten() -> None:
    assert LocalClock(10).wall_seconds(30) == 3


def test_waiting_ends_at_once_when_the_event_is_set() -> None:
    event = threading.Event()
    event.set()

    assert LocalClock(1).wait(event, 3600) is True


def test_waiting_ends_when_the_time_has_passed_on_this_clock() -> None:
    assert LocalClock(1000).wait(threading.Event(), 1) is False


@pytest.mark.parametrize("speed", [0, -1, float("nan")])
def test_a_speed_that_is_not_positive_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        LocalClock(speed)


def test_a_clock_that_another_process_reads_tells_the_same_time() -> None:
    clock = LocalClock(1000, start=START)

    first, shared, last = clock.now(), LocalClock.from_json(clock.to_json()).now(), clock.now()

    assert first <= shared <= last


def kept(state: Path, cluster: str, *decisions: str) -> None:
    for decision in decisions:
        Folder(state).put(f"clusters/{cluster}/decisions/{decision}.json.gz", b"")


def test_a_local_system_starts_after_the_decisions_that_its_folder_holds(tmp_path: Path) -> None:
    """An earlier run was ahead of the time if its clock ran fast. Its decisions must not count as later ones."""
    ahead = datetime.now(UTC) + timedelta(hours=4)
    kept(tmp_path, "local", f"{ahead:%Y%m%dT%H%M%SZ}-cafecafe", "of another form", "zz")
    kept(tmp_path, "other", f"{ahead + timedelta(days=1):%Y%m%dT%H%M%SZ}-cafecafe")

    started = LocalSystem(Place("us-east-1", "local"), tmp_path).clock.now()
    assert timedelta() < started - ahead < timedelta(minutes=1)

    second = LocalSystem(Place("us-east-1", "other", clusters=2), tmp_path).clock.now()
    assert second > started + timedelta(hours=23)


def test_a_local_system_starts_now_if_its_folder_holds_nothing_later(tmp_path: Path) -> None:
    kept(tmp_path, "local", "20260101T000000Z-cafecafe")
    for place in (Place("us-east-1", "local"), Place("us-east-1", "empty")):
        assert LocalSystem(place, tmp_path).clock.now() - datetime.now(UTC) < timedelta(seconds=2)


def test_a_real_control_plane_keeps_to_real_time(tmp_path: Path) -> None:
    kept(tmp_path, "local", f"{datetime.now(UTC) + timedelta(hours=4):%Y%m%dT%H%M%SZ}-cafecafe")
    place = Place("us-east-1", "local", control_plane="real")
    assert LocalSystem(place, tmp_path).clock.now() - datetime.now(UTC) < timedelta(seconds=2)
