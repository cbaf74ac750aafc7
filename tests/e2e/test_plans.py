"""Plans for random problems hold before the real kube-scheduler: every pod that has a node by them gets one.

A pod may go where the plan did not have it: kube-scheduler asks of a nominated node whether the pod may be there beside
those that are nominated for it too, and counts none that are nominated for others. So a spread may be refused that
holds once all are there, and the pod goes elsewhere. Nominations are lost, too, where an attempt at the pod fails. Who
finds no place then is planned for once more, with the cluster as it is, as nodesmith does a moment later. Whom that
leaves, too, may be held back by nodes that stand empty since the pods went elsewhere: a spread counts their zones,
where nothing may be for sale that these pods can be on. Disruption ends such nodes, and all are planned for a third
time; who has no place then has been missed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nodesmith_cli.local.controlplane import ControlPlane, find_binaries
from tests.e2e.conftest import BUILD, Figures
from tests.e2e.trials import Court, Trial
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
def test_real_kube_scheduler_on_the_plans(court: Court, mix: Mix, seeds: range, figures: Figures) -> None:
    verdicts = [court.judge(Trial.of(draw(seed, mix))) for seed in seeds]

    figures("problems", len(verdicts))
    figures("plans-followed-by-another", sum(v.trials > 1 for v in verdicts))
    figures("plans-that-waited-for-empty-nodes-to-go", sum(v.trials > 2 for v in verdicts))
    figures("pods-placed", sum(v.placed for v in verdicts))
    figures("pods-as-planned", sum(v.as_planned for v in verdicts))
    figures("pods-missed", sum(len(v.missed) for v in verdicts))
    assert {v.seed: v.missed for v in verdicts if v.missed} == {}
