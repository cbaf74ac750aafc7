"""Plans for problems that mix every kind of constraint hold in any order in which kube-scheduler binds."""

from __future__ import annotations

import pytest

from tests.problems.binding import uneven, unsatisfied
from tests.problems.drawing import Mix, draw
from tests.problems.planning import planned

_MIX = Mix(most_pods=12, most_shapes=5)
_MISSED = (52, 107)
"""Plans that the real kube-scheduler once did not follow."""


@pytest.mark.parametrize("seed", [*range(16), *_MISSED])
def test_spreads_hold_whichever_pod_is_last_and_some_pod_can_always_be_next(seed: int) -> None:
    problem = draw(seed, _MIX)
    plan = planned(problem.manifests, problem.catalog).plan

    assert uneven(problem, plan) == []
    assert unsatisfied(problem, plan) == []
