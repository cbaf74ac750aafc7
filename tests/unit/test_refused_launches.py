"""The effect of a refused launch on its NodePool."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from nodesmith.controllers.provisioning import provision
from nodesmith.model.ec2.launches import LaunchOutcome, LaunchRequest, Refused
from tests import builders
from tests.fakes.cloud import FakeCloud
from tests.world import World, pod_manifest


class RefusingCloud(FakeCloud):
    reason = ""

    def launch(self, requests: Sequence[LaunchRequest], *, repeated: bool = False) -> list[LaunchOutcome]:
        del repeated
        return [Refused(request.claim, self.reason, "said no") for request in requests]


@pytest.mark.parametrize(
    ("reason", "wait"),
    [
        ("Unauthorized", timedelta(minutes=3)),
        ("InstanceProfileNameInvalid", timedelta(seconds=15)),  # it may have been made a moment ago
    ],
)
def test_the_reason_of_a_refused_launch_determines_the_back_off_of_the_nodepool(
    reason: str, wait: timedelta
) -> None:
    world = World({"web": pod_manifest("web")})
    world.observe()
    cloud = RefusingCloud(clock=world.clock)
    cloud.reason = reason

    outcome = provision(world.provisioning(cloud=cloud))

    backoff = world.store.nodepool_backoffs["default"]
    assert backoff.until - builders.NOW == wait
    assert reason in outcome.plan.unplaced[0].reason
