"""Plans for random problems hold before the real kube-scheduler: every pod that has a node by them gets one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from nodesmith_cli.local.controlplane import ControlPlane, find_binaries
from tests.e2e.conftest import BUILD, Figures
from tests.e2e.trials import Court, Trial, Verdict
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
    verdicts = [judged(court, seed) for seed in range(first, first + EACH)]

    figures("plans-tried-twice", sum(v.trials > 1 for v in verdicts))
    figures("pods-placed", sum(v.placed for v in verdicts))
    figures("pods-as-planned", sum(v.as_planned for v in verdicts))
    assert {v.seed: v.missed for v in verdicts if v.missed} == {}


def judged(court: Court, seed: int) -> Verdict:
    """Try a plan, and once more where it missed a pod.

    kube-scheduler forgets a nomination when an attempt at its pod fails, and until the pod is nominated again, a second
    later, another of the same priority may take its room: on a busy machine that happens. A plan that misses a pod
    again is wrong.
    """
    trial = Trial.of(draw(seed, MIX))
    verdict = court.judge(trial)
    return replace(court.judge(trial), trials=2) if verdict.missed else verdict
