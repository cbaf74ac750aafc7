"""Scaling down on the local system: the fleet shrinks, as Kubernetes and AWS show."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest

from nodesmith.model.apimachinery.labels import DISRUPTED
from nodesmith_cli.simulator.localcommands.commands import place_of
from nodesmith_cli.views.explaining.decision import replayed
from nodesmith_formats.manifests.manifests import load_manifests
from nodesmith_formats.shipped import shipped
from nodesmith_local.runs.running import apply, settle
from nodesmith_local.runs.servedcluster import ServedCluster
from nodesmith_local.runs.shrinking import ScaleDown, shrink
from nodesmith_local.runs.system import LocalSystem
from tests.patience import eventually, hurried

SPEED, LONGEST_SECONDS = 20.0, 3600.0


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """Yield a system that runs the example of 20 pods and has settled."""
    manifests = load_manifests([str(shipped("_examples", "examples") / "express-test")])
    with LocalSystem(place_of(manifests, "", hurried(SPEED)), tmp_path_factory.mktemp("state")) as running:
        system = running.first
        apply(system, manifests.documents)
        assert settle(system, LONGEST_SECONDS) == ""
        yield system


@pytest.fixture(scope="module")
def shrunk(system: ServedCluster) -> ScaleDown:
    found = shrink(system, "express-test", 10, LONGEST_SECONDS)
    assert found.activity == ""
    return found


def test_the_fleet_shrinks_with_the_pods_and_every_other_pod_keeps_a_place(shrunk: ScaleDown) -> None:
    """Usually to two nodes; to more and smaller ones if consolidation started before all those pods were gone."""
    assert shrunk.after.price.hourly_usd < 0.9 * shrunk.before.price.hourly_usd
    assert (shrunk.after.running, shrunk.after.pending) == (10, ())


def test_the_saving_of_a_year_is_that_of_the_prices(shrunk: ScaleDown) -> None:
    hourly = shrunk.before.price.hourly_usd - shrunk.after.price.hourly_usd
    assert hourly > 0
    assert shrunk.saving_yearly_usd == pytest.approx(hourly * 8760)


def test_no_node_stays_closed_to_new_pods(system: ServedCluster, shrunk: ScaleDown) -> None:
    """In the end: consolidation may continue if the last node went before all those pods had gone."""

    def closed() -> list[str]:
        nodes = system.objects.list("nodes")
        return [
            node["metadata"]["name"]
            for node in nodes
            if any(taint["key"] == DISRUPTED.key for taint in node["spec"].get("taints") or ())
        ]

    assert shrunk.after.nodes
    eventually(lambda: not closed(), "all nodes are open", tell=lambda: str(closed()))


def test_the_decision_is_on_record_and_replays(system: ServedCluster, shrunk: ScaleDown) -> None:
    (first, *_) = shrunk.decisions
    assert first["plan"]["moves"]
    snapshot = system.keep.get(f"clusters/{first['cluster']}/decisions/{first['id']}.snapshot.json.gz")
    assert snapshot is not None
    assert replayed(first, snapshot, lambda _: system.catalog)


def test_kubectl_describe_shows_the_reason(system: ServedCluster, shrunk: ScaleDown) -> None:
    assert shrunk.after.nodes
    reasons = {event["reason"] for event in system.objects.list("events")}
    assert {"ConsolidationCandidate", "DisruptionTerminating"} <= reasons


def served_metrics(system: ServedCluster) -> dict[str, float]:
    """Return the values that Prometheus gets, by series."""
    with urllib.request.urlopen(system.metrics_url, timeout=30) as answer:  # noqa: S310 it is ours
        lines = answer.read().decode().splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {series: float(value) for series, _, value in samples}


def test_prometheus_gets_series_for_the_fleet_and_the_functions(
    system: ServedCluster, shrunk: ScaleDown
) -> None:
    def cost() -> float | None:
        return served_metrics(system).get('karpenter_nodepools_cost_total{nodepool="default"}')

    eventually(lambda: cost() == pytest.approx(system.report().price.hourly_usd, rel=1e-3))
    found = served_metrics(system)
    decided = [value for series, value in found.items() if "_disruption_decisions_total" in series]
    assert sum(decided) >= 1, f"nodes have gone: {len(shrunk.before.nodes)} were there"
    assert found['karpenter_scheduler_scheduling_duration_seconds_count{controller="provisioner"}'] >= 1
    assert found["karpenter_cluster_state_node_count"] == len(system.objects.list("nodes"))
