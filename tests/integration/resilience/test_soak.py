"""A service fails every minute: a short version of what `python -m tests.benchmarks soak` does for days."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.benchmarks.resilience.soak import Samples, slope
from tests.scenarios.soaking import PATIENCE, Soak


def test_nothing_breaks_while_a_service_fails_every_minute_and_nothing_is_left_over() -> None:
    world = Soak(12)
    world.begin_soak()
    world.soak(25)
    world.end_soak()
    assert world.broken == []
    assert len(world.met) > 10


def test_a_leaked_instance_and_a_forgotten_pod_are_noticed() -> None:
    world = Soak(4)
    world.begin_soak()
    world.cloud.stock["*"] = 0
    world.add("never", cpu="8")
    for claim in list(world.store.claims)[:1]:
        world.cloud.instances["i-twin"] = world.cloud.instances[world.store.claims[claim].instance_id]
    world.check()
    assert [each.partition(" ")[0] for each in world.broken] == ["2"]
    world.now += PATIENCE + timedelta(minutes=1)
    world.check()
    assert any("pod never waits since" in each for each in world.broken)


def test_the_slope_of_a_line_is_exact_and_that_of_noise_has_zero_in_its_interval() -> None:
    xs = [float(x) for x in range(20)]
    assert slope(xs, [3 * x + 5 for x in xs]) == pytest.approx((3, 0), abs=1e-9)
    steep, wide = slope(xs, [(-1.0) ** x for x in range(20)])
    assert abs(steep) < wide


def test_the_interval_of_a_slope_is_that_of_students_t() -> None:
    xs, ys = [0.0, 1, 2, 3, 4, 5], [0.0, 2, 1, 4, 3, 5]
    steep, wide = slope(xs, ys)
    assert steep == pytest.approx(0.8857, abs=1e-4)
    assert wide == pytest.approx(2.776 * 0.23212, rel=0.01)


def test_samples_say_what_a_process_holds() -> None:
    samples = Samples()
    samples.take(0, 0)
    held = bytearray(64 * 2**20)
    held[::4096] = b"x" * len(held[::4096])
    samples.take(1, 0)
    assert samples.held_bytes[1] - samples.held_bytes[0] > 60 * 2**20
    assert samples.files[0] == samples.files[1] > 0
    samples.take(2, 32 * 2**20)
    assert samples.held_bytes[1] - samples.held_bytes[2] == pytest.approx(32 * 2**20, abs=2**20)
