"""DaemonSets that run only with certain offerings take capacity where they run, and nowhere else."""

from __future__ import annotations

import pytest

from nodesmith.decisions.provisioning import Plan, decide
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_TYPE
from tests.builders import daemon, expression, inputs, node_affinity, nodepool_manifest, pods, shape, snapshot


def _plan(cpu: str, *capacity_types: str) -> Plan:
    """Decide for one pod with nodes of 2 cpu for sale and a DaemonSet that takes 1 cpu of each spot node."""
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


def test_pods_that_fit_beside_the_daemonset_go_to_the_cheaper_spot_node() -> None:
    assert _purchase_options(_plan("500m", "spot", "on-demand")) == [{"spot"}]


def test_pods_that_do_not_fit_beside_the_daemonset_go_where_it_does_not_run() -> None:
    assert _purchase_options(_plan("1500m", "spot", "on-demand")) == [{"on-demand"}]


@pytest.mark.parametrize(("capacity_type", "requested"), [("spot", 1_500), ("on-demand", 500)])
def test_a_claim_requests_what_will_run_on_its_node(capacity_type: str, requested: int) -> None:
    (node,) = _plan("500m", capacity_type).nodes

    assert node.claim.requests.cpu_milli == requested
