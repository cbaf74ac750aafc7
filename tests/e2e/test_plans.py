"""Plans for random problems hold before the real kube-scheduler: every pod that has a node by them gets one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nodesmith_cli.local.controlplane import ControlPlane, find_binaries
from tests.e2e.conftest import BUILD, Figures
from tests.e2e.trials import Court, Trial
from tests.problems.drawing import Mix, draw

MIX = Mix(most_pods=12, most_shapes=5)
EACH = 25


@pytest.fixture(scope="module")
def court(worker_id: str) -> Iterator[Court]:
    with ControlPlane(find_binaries(), BUILD / "test_plans" / worker_id) as plane:
        court = Court(plane)
        court.prepare(draw(0, MIX))
        yield court


@pytest.mark.parametrize("first", range(0, 8 * EACH, EACH))
def test_real_kube_scheduler_on_the_plans(court: Court, first: int, figures: Figures) -> None:
    verdicts = [court.judge(Trial.of(draw(seed, MIX))) for seed in range(first, first + EACH)]

    figures("pods-placed", sum(v.placed for v in verdicts))
    figures("pods-as-planned", sum(v.as_planned for v in verdicts))
    assert {v.seed: v.missed for v in verdicts if v.missed} == {}
