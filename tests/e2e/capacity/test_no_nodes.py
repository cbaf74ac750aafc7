"""In a cluster without nodes the forwarder cannot run, but it gets its node nevertheless."""

from __future__ import annotations

from nodesmith_local.aws.instances.stages import USUAL
from tests.e2e.conftest import Start
from tests.e2e.systems.system import CLUSTER, HURRIED
from tests.objects.manifests import deployment, nodeclass, nodepool


def test_the_observation_function_sees_a_pending_forwarder_and_the_forwarder_gets_a_node(
    start: Start,
) -> None:
    system = start(own_node=False, speed=HURRIED, delays=USUAL)
    assert not system.forwarder.running
    system.apply(nodeclass(CLUSTER), nodepool())

    system.until("the forwarder runs on a node from nodesmith", lambda: system.forwarder.running, seconds=120)
    system.until_settled()
    assert system.deployed.feeds["observation"].invocations > 0
    assert len(system.instances()) == 1

    system.apply(deployment("web", 3))
    system.until_running(3)
    system.until_settled()
