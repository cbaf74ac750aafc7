"""Proactive scale-up on the real control plane: nodes are launched while controllers are still creating pods."""

from __future__ import annotations

from datetime import UTC, datetime
from statistics import fmean

import pytest

from nodesmith.model.kubernetes.pods import is_planned
from tests.e2e.conftest import Alone, Figures, Start
from tests.e2e.systems.system import CLUSTER, System
from tests.objects.manifests import deployment, nodeclass, nodepool, requirement

ONE_SIZE = requirement("node.kubernetes.io/instance-type", "c6a.4xlarge")  # 16 vCPUs: fifteen pods of 1 each
PODS = 50


def scaled(system: System, app: str) -> tuple[float, float]:
    """Scale a Deployment from 1 to 50 pods; return the seconds to the last launch, and the mean until they run."""
    system.apply(deployment(app, 1))
    system.until_running(1, app, seconds=120)
    system.until_settled(seconds=120)
    before = {claim.name for claim in system.ledger().claims}
    with system.watched_pods() as seen:
        begun = datetime.now(UTC)
        system.kubectl("scale", "deployment", app, f"--replicas={PODS}")
        system.until_running(PODS, app, seconds=180)
        mine = [one for key, one in seen.items() if key.startswith(f"default/{app}-")]
        system.until("all were seen running", lambda: all(one.running_at for one in mine), seconds=30)
    new = [claim for claim in system.ledger().claims if claim.name not in before]
    assert sum(claim.allocatable.cpu_milli for claim in new) < 2 * PODS * 1000, "nothing is bought twice"
    waits = [(one.running_at - one.pending_at).total_seconds() for one in mine if one.running_at]
    return max(claim.created_at for claim in new).timestamp() - begun.timestamp(), fmean(waits)


@pytest.mark.slow  # without real controllers: tests/unit/decisions/provisioning/capacity/test_proactive_scale_up.py
def test_nodes_are_launched_before_the_pods_of_a_grown_deployment_exist(
    start: Start, figures: Figures, alone: Alone
) -> None:
    with alone():
        system = start()
        system.apply(nodeclass(CLUSTER), nodepool(requirements=[ONE_SIZE]))
        system.until_nodepools_ready()
        reactive = scaled(system, "reactive")
        system.kubectl("annotate", "namespace", "default", "nodesmith.dev/proactive-scale-up=true")
        proactive = scaled(system, "proactive")
    figures("reactive-launched-s", round(reactive[0], 2))
    figures("reactive-pending-s", round(reactive[1], 2))
    figures("proactive-launched-s", round(proactive[0], 2))
    figures("proactive-pending-s", round(proactive[1], 2))
    assert proactive[0] < reactive[0]
    nominated = {pod["status"].get("nominatedNodeName", "") for pod in system.pods()}
    assert not any(map(is_planned, nominated))


def test_nodes_for_pods_that_a_quota_refuses_are_few_and_go_again(start: Start) -> None:
    system = start(speed=10)
    system.apply(nodeclass(CLUSTER), nodepool(requirements=[ONE_SIZE]))
    system.until_nodepools_ready()
    system.kubectl("annotate", "namespace", "default", "nodesmith.dev/proactive-scale-up=true")
    system.kubectl("create", "quota", "few", "--hard=pods=2")
    system.apply(deployment("web", 40))
    system.until_running(2, "web", seconds=120)
    system.until("one node is left", lambda: len(system.instances()) == 1, seconds=180)
    assert len(system.ledger().departures) <= 3
    system.stays("nothing more is bought", lambda: len(system.instances()) == 1, seconds=20)
