"""Whatever is lost, doubled, reordered or killed, the cluster ends up the same: nothing leaked, nothing doubled."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from nodesmith.model.labels import CAPACITY_TYPE, INSTANCE_TYPE
from nodesmith_cli.local.cloud.stages import USUAL
from tests.e2e.conftest import Figures, Start
from tests.e2e.deployed import Faults
from tests.e2e.manifests import deployment, nodeclass, nodepool
from tests.e2e.system import CLUSTER, HURRIED, System


@dataclass(frozen=True, slots=True)
class End:
    """What a run comes to: nodes by type and the way they are sold, and the pods that run."""

    nodes: tuple[tuple[str, str], ...]
    pods: int


def test_pods_that_come_while_the_forwarder_is_away_are_served(start: Start) -> None:
    system = start()
    system.apply(nodeclass(CLUSTER), nodepool(), deployment("before", 3))
    system.until_running(3)

    system.forwarder.kill(for_seconds=60)
    system.apply(deployment("meanwhile", 3, cpu="3"))

    system.until_running(6, seconds=150)
    system.until_settled()
    assert system.forwarder.running
    assert system.forwarder.restarts == 1


def test_the_api_server_may_restart_while_pods_wait(start: Start) -> None:
    system = start()
    system.apply(nodeclass(CLUSTER), nodepool())
    system.until_nodepools_ready()
    system.apply(deployment("web", 5))
    system.plane.restart_api_server(away_seconds=5)
    system.apply(deployment("after", 3))

    system.until_running(8, seconds=120)
    system.until_settled()


def test_messages_may_come_twice_and_in_any_order(start: Start, undisturbed: End) -> None:
    system = start(speed=HURRIED, delays=USUAL, faults=Faults(seed=1, duplicate=True, shuffle=True))
    assert two_waves(system) == undisturbed


@pytest.mark.parametrize("seed", range(10))
def test_functions_may_be_killed_at_any_moment_on_the_real_control_plane(
    start: Start, figures: Figures, seed: int, undisturbed: End
) -> None:
    system = start(speed=HURRIED, delays=USUAL, faults=killing(seed))
    assert two_waves(system) == undisturbed
    figures("kills", system.deployed.killed)
    assert system.deployed.killed >= 3, (
        "provisioning, lifecycle and readiness at least; observation may not be needed"
    )


@pytest.mark.parametrize("seed", range(10, 60))
def test_functions_may_be_killed_at_any_moment_on_the_embedded_system(
    start: Start, figures: Figures, seed: int, undisturbed: End
) -> None:
    system = start(real=False, speed=HURRIED, delays=USUAL, faults=killing(seed))
    assert two_waves(system) == undisturbed
    figures("kills", system.deployed.killed)
    assert system.deployed.killed >= 3, (
        "provisioning, lifecycle and readiness at least; observation may not be needed"
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> End:
    """How it ends without any fault, on the embedded system."""
    with System(tmp_path_factory.mktemp("undisturbed"), real=False, speed=HURRIED, delays=USUAL) as system:
        return two_waves(system)


def killing(seed: int) -> Faults:
    return Faults(seed=seed, duplicate=True, shuffle=True, kills=1)


def two_waves(system: System) -> End:
    """Let pods come twice; give how many nodes of which type, sold how, run what in the end."""
    system.apply(nodeclass(CLUSTER), nodepool())
    system.until_nodepools_ready()
    system.apply(deployment("early", 4))
    system.until_running(4, seconds=120)
    system.apply(deployment("late", 2, "3"), deployment("small", 3, "500m"))
    system.until_running(9, seconds=120)
    system.until_settled(seconds=120)
    kinds = (
        (labels[INSTANCE_TYPE], labels[CAPACITY_TYPE])
        for labels in (node["metadata"]["labels"] for node in system.nodes())
    )
    return End(tuple(sorted(kinds)), len(system.pods()))
