"""Interruptions with other faults, and many at once, in samples. `make bench` runs all of them."""

from __future__ import annotations

import pytest

from tests.samples import sampled
from tests.scenarios.interruptions import Trouble, storm, survived


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", sampled((0, 1, 5, 9), whole=range(10)))
def test_pods_run_elsewhere_when_ec2_reclaims_their_node_despite_other_faults(seed: int) -> None:
    found = survived(seed)
    assert (found.replaced, found.bought) == (True, 1)


@pytest.mark.parametrize("trouble", [Trouble.NO_CAPACITY, Trouble.THROTTLED], ids=str)
def test_with_an_available_api_server_every_pod_has_its_grace_period(trouble: Trouble) -> None:
    found = survived(3, trouble)
    assert (found.replaced, found.bought, found.harm) == (True, 1, ())


def test_in_a_storm_pods_wait_less_than_half_as_long_as_with_delete_first_and_none_is_killed() -> None:
    ours, theirs = (storm(0, nodes=9, notices=3, delete_first=first) for first in (False, True))
    assert (ours.killed, ours.early, ours.left_over) == ((), (), ())
    assert ours.launched == 3
    assert ours.pending_pod_seconds < 0.5 * theirs.pending_pod_seconds
