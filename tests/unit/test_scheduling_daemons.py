"""DaemonSets that choose how nodes are bought: they take room where they run, and nowhere else."""

from __future__ import annotations

import pytest

from nodesmith.decisions.provisioning import Plan, decide
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_TYPE
from tests.builders import daemon, expression, inputs, node_affinity, nodepool_manifest, pods, shape, snapshot


def _plan(cpu: str, *capacity_types: str) -> Plan:
    """Decide for one pod where there are nodes of 2 cpu, and a DaemonSet takes one of each spot node."""
    pool = nodepool_manifest(
        requirements=[
            expression(INSTANCE_TYPE, "In", "m5.large"),
            expression(CAPACITY_TYPE, "In", *capacity_types),
        ]
    )
    on_spot = daemon(cpu="1", affinity=node_affinity([expression(CAPACITY_TYPE, "In", "spot")]))
    seen = snapshot(pods=pods(shape(cpu), 1), nodepools=(pool,), daemonsets=(on_spot,))
    return decide(inputs(snapshot=seen))


def _purchase_options(plan: Plan) -> list[frozenset[str]]:
    return [node.claim.requirements[CAPACITY_TYPE].values for node in plan.nodes]


def test_pods_that_fit_beside_it_go_to_the_cheaper_spot_node() -> None:
    assert _purchase_options(_plan("500m", "spot", "on-demand")) == [{"spot"}]


def test_pods_that_have_no_room_beside_it_go_where_it_does_not_run() -> None:
    assert _purchase_options(_plan("1500m", "spot", "on-demand")) == [{"on-demand"}]


@pytest.mark.parametrize(("capacity_type", "requested"), [("spot", 1_500), ("on-demand", 500)])
def test_a_node_asks_for_what_will_run_on_it(capacity_type: str, requested: int) -> None:
    (node,) = _plan("500m", capacity_type).nodes

    assert node.claim.requests.cpu_milli == requested
