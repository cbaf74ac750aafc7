"""Plans for random problems hold with the real kube-scheduler: every pod with a node in the plan gets a node.

A pod may run elsewhere than planned. For a nominated node, kube-scheduler checks whether the pod fits beside the pods
nominated for that node, and ignores pods nominated for other nodes. So it may refuse a spread that holds once all pods
are placed, and the pod goes elsewhere. Nominations are also lost when an attempt to schedule the pod fails.

Pods without a place are planned for again, with the cluster as it is then, as nodesmith does a moment later. Pods that
remain even then may be blocked by nodes that are empty because their pods went elsewhere: a spread counts the zones of
these nodes, and there may be no offering in those zones for the remaining pods. Disruption ends such nodes, and all
remaining pods are planned for a third time. A pod without a place after that counts as missed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nodesmith_local.controlplane import ControlPlane, find_binaries
from tests.e2e.commands.trials import Court, Trial
from tests.e2e.conftest import BUILD, Figures
from tests.problems.drawing import RARE, Mix, draw

pytestmark = pytest.mark.slow

PLAIN = Mix(most_pods=12, most_shapes=5)
LARGE = Mix(most_pods=40, most_shapes=8, rare=True)
EACH = 25
BATCHES = [
    *((PLAIN, range(first, first + EACH)) for first in range(0, 8 * EACH, EACH)),
    *((RARE, range(first, first + EACH)) for first in range(0, 3 * EACH, EACH)),
    (LARGE, range(10)),
]
NAMES = {PLAIN: "plain", RARE: "rare", LARGE: "large"}


@pytest.fixture(scope="module")
def court(worker_id: str) -> Iterator[Court]:
    with ControlPlane(find_binaries(), BUILD / "test_plans" / worker_id) as plane:
        court = Court(plane)
        court.prepare(draw(0, PLAIN))
        yield court


@pytest.mark.parametrize(("mix", "seeds"), BATCHES, ids=[f"{NAMES[m]} from {s.start}" for m, s in BATCHES])
def test_the_real_kube_scheduler_places_every_planned_pod(
    court: Court, mix: Mix, seeds: range, figures: Figures
) -> None:
    verdicts = [court.judge(Trial.of(draw(seed, mix))) for seed in seeds]

    figures("problems", len(verdicts))
    figures("plans-followed-by-another", sum(v.trials > 1 for v in verdicts))
    figures("plans-that-waited-for-empty-nodes-to-go", sum(v.trials > 2 for v in verdicts))
    figures("pods-placed", sum(v.placed for v in verdicts))
    figures("pods-as-planned", sum(v.as_planned for v in verdicts))
    figures("pods-missed", sum(len(v.missed) for v in verdicts))
    assert {v.seed: v.missed for v in verdicts if v.missed} == {}
