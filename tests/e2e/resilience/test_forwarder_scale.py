"""The forwarder's cost in a large cluster: 500 nodes and 5,000 pods, first idle, then with 50 pods a second."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import BUILD, Alone, Figures
from tests.e2e.incluster.largecluster import LargeCluster, kept_large_cluster
from tests.e2e.incluster.measuring import usage
from tests.e2e.incluster.site import site, until

pytestmark = pytest.mark.slow
NODES, PODS, KINDS = 500, 5_000, 60
WINDOW_SECONDS = 20.0
CHURN_PER_SECOND = 50
CALM_SECONDS = 3.0
LARGEST_MIB = 150.0
LARGEST_IDLE_SHARE = 0.05


def test_the_forwarder_uses_little_cpu_and_memory_with_five_hundred_nodes_and_five_thousand_pods(
    folder: Path, figures: Figures, alone: Alone
) -> None:
    data = shutil.copytree(kept_large_cluster(NODES, PODS, KINDS, BUILD / "largecluster"), folder / "data")
    with alone(), site(folder, data=data) as cluster, cluster.forwarder(folder) as forwarder:
        forwarder.start()
        until("the forwarder is ready", lambda: forwarder.ready, forwarder)
        process = forwarder.process_id
        assert process is not None
        time.sleep(CALM_SECONDS)

        begun = usage(process)
        time.sleep(WINDOW_SECONDS)
        idle = usage(process)
        made = LargeCluster(cluster.plane).churn(CHURN_PER_SECOND, WINDOW_SECONDS)
        churned = usage(process)

        snapshot = cluster.snapshot()
        assert len(snapshot.nodes) == NODES + 1
        assert forwarder.process_id == process
    shutil.rmtree(data)
    figures("forwarder-mib", round(idle.memory_mib, 1))
    figures("forwarder-idle-cpu", round(idle.cpu_share_since(begun), 4))
    figures("forwarder-churn-mib", round(churned.peak_memory_mib, 1))
    figures("forwarder-churn-cpu", round(churned.cpu_share_since(idle), 4))
    assert len(snapshot.pods) >= PODS
    assert made >= 0.9 * CHURN_PER_SECOND * WINDOW_SECONDS
    assert churned.peak_memory_mib <= LARGEST_MIB
    assert idle.cpu_share_since(begun) <= LARGEST_IDLE_SHARE
