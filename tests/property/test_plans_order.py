"""Plans for problems that mix every kind of constraint hold in whatever order kube-scheduler binds."""

from __future__ import annotations

import pytest

from tests.problems.binding import uneven, unsatisfied
from tests.problems.drawing import Mix, draw
from tests.problems.planning import planned

_MIX = Mix(most_pods=12, most_shapes=5)
_MISSED = (52, 107)
"""plans that the real kube-scheduler once took apart"""


@pytest.mark.parametrize("seed", [*range(16), *_MISSED])
def test_spreads_hold_for_whoever_comes_last_and_somebody_can_always_come_next(seed: int) -> None:
    problem = draw(seed, _MIX)
    plan = planned(problem.manifests, problem.catalog).plan

    assert uneven(problem, plan) == []
    assert unsatisfied(problem, plan) == []
