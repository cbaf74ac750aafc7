"""With duplicated or reordered events, or a part that is away, the cluster reaches the same state without leaks.

The tests share a cluster whose functions get every message and event twice and in any order.
"""

from __future__ import annotations

from collections.abc import Callable

from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODEPOOL
from nodesmith_local.aws.instances.stages import USUAL
from tests.e2e.deployed import Faults
from tests.e2e.systems.system import CLUSTER, HURRIED, Manifest, System
from tests.objects.manifests import deployment, nodeclass, nodepool, requirement

MISCHIEF = Faults(seed=7, duplicate=True, shuffle=True)
SHARED = {"speed": HURRIED, "delays": USUAL, "faults": MISCHIEF}
ONE_SIZE = requirement("node.kubernetes.io/instance-type", "c6a.xlarge")
SPOT = requirement(CAPACITY_TYPE, "spot")
EXPECTED = [("c6a.xlarge", "spot")] * 4
"""Any two of the eight pods fill a node, whichever are planned together and wherever they are bound."""


def test_messages_may_arrive_twice_and_in_any_order(shared: System) -> None:
    assert two_waves(shared, "doubled") == EXPECTED


def test_pods_created_while_the_forwarder_is_down_get_nodes(shared: System) -> None:
    system, away = shared, {"team": "away"}
    system.apply(nodeclass(CLUSTER), nodepool("away", labels=away))
    system.apply(deployment("before", 3, nodeSelector=away))
    system.until_running(3, "before")

    system.forwarder.kill(for_seconds=60)
    system.apply(deployment("meanwhile", 3, cpu="3", nodeSelector=away))

    system.until_running(3, "meanwhile", seconds=150)
    system.until_running(3, "before")
    system.until_settled()
    system.until("the forwarder is back", lambda: system.forwarder.running)
    assert system.forwarder.restarts == 1


def test_the_api_server_may_restart_while_pods_wait(shared: System) -> None:
    system, restarted = shared, {"team": "restarted"}
    system.apply(nodeclass(CLUSTER), nodepool("restarted", labels=restarted))
    system.until_nodepools_ready()
    system.apply(deployment("waiting", 5, nodeSelector=restarted))
    system.plane.restart_api_server(away_seconds=5)
    system.apply(deployment("after", 3, nodeSelector=restarted))

    system.until_running(5, "waiting", seconds=120)
    system.until_running(3, "after", seconds=120)
    system.until_settled()


def two_waves(system: System, name: str) -> list[tuple[str, str]]:
    """Create pods for their own NodePool, and more pods while nodes are starting for the first.

    Return the instance type and capacity type of each node that runs them in the end.
    """
    labels = {"wave": name}
    pool = nodepool(name, labels=labels, requirements=[ONE_SIZE, SPOT])
    system.apply(nodeclass(CLUSTER), pool)
    system.until_nodepools_ready(seconds=60)
    system.apply(deployment(f"{name}-early", 4, "1900m", nodeSelector=labels))
    system.until("nodes are starting", lambda: any(map(is_of(name), system.claims())), seconds=120)
    system.apply(deployment(f"{name}-late", 4, "1900m", nodeSelector=labels))
    system.until_running(4, f"{name}-early", seconds=120)
    system.until_running(4, f"{name}-late", seconds=120)
    system.until_settled(seconds=120)
    own = [node["metadata"]["labels"] for node in filter(is_of(name), system.nodes())]
    return sorted((o[INSTANCE_TYPE], o[CAPACITY_TYPE]) for o in own)


def is_of(nodepool: str) -> Callable[[Manifest], bool]:
    return lambda manifest: manifest["metadata"].get("labels", {}).get(NODEPOOL) == nodepool
