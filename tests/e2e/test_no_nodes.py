"""A cluster without a node: the forwarder cannot run, and gets its node all the same."""

from __future__ import annotations

from nodesmith_cli.local.cloud.stages import USUAL
from tests.e2e.conftest import Start
from tests.e2e.manifests import deployment, nodeclass, nodepool
from tests.e2e.system import CLUSTER, HURRIED


def test_the_observation_function_sees_a_pending_forwarder_which_then_gets_its_node(start: Start) -> None:
    system = start(own_node=False, speed=HURRIED, delays=USUAL)
    assert not system.forwarder.running
    system.apply(nodeclass(CLUSTER), nodepool())

    system.until("the forwarder runs on a node of ours", lambda: system.forwarder.running, seconds=120)
    system.until_settled()
    assert system.deployed.feeds["observation"].invocations > 0
    assert len(system.instances()) == 1

    system.apply(deployment("web", 3))
    system.until_running(3)
    system.until_settled()
