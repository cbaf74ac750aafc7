"""Effects on the cluster: an object that was removed is not created again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodesmith.effects import show
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from tests.builders import NOW, claim
from tests.fakes.cluster import FakeCluster

RUNNING = claim(phase=Phase.INITIALIZED)


@pytest.mark.parametrize(
    ("one", "is_made"),
    [
        (RUNNING, True),
        (RUNNING.terminating("Drifted", "", NOW), True),
        (replace(RUNNING, phase=Phase.TERMINATED), False),
        (replace(RUNNING.terminating("Drifted", "", NOW), instance_gone_at=NOW), False),
    ],
    ids=["runs", "drains", "instance terminated", "instance gone"],
)
def test_a_missing_object_is_created_unless_the_instance_has_been_terminated(
    one: NodeClaim, is_made: bool
) -> None:
    cluster = FakeCluster()
    show(one, cluster)
    assert (one.name in cluster.nodeclaims) == is_made
