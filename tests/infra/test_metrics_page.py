"""Karpenter's series: which the forwarder answers, of which kind, with which labels; the page tells of all."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from nodesmith.model.metrics.metrics import SERIES
from nodesmith.observation.mirror import NODECLAIMS, NODEPOOLS, NODES, PODS
from nodesmith_forwarder.metrics.exposition import Family
from nodesmith_forwarder.metrics.functions import FunctionMetrics
from nodesmith_forwarder.metrics.gauges import gauges
from nodesmith_forwarder.metrics.offerings import HELP
from nodesmith_forwarder.windows import Pace
from nodesmith_forwarder.world import World
from tests.builders import nodepool_manifest
from tests.clocks import StillClock
from tests.fakes.blobs import FakeBlobs
from tests.objects.clusters import deployment_pod
from tests.promql.exported import emitted, exported
from tests.unit.forwarder.test_metrics import DICE, Scene, a_node, nodeclaim
from tests.unit.model.karpenterseries import KARPENTERS

PAGE = (Path(__file__).parents[2] / "docs/metrics.md").read_text()
ELSEWHERE = set(
    """
consolidation_score consolidation_moves_total nodepools_cost_tracker_errors_total
pods_scheduling_decision_duration_seconds pods_provisioning_bound_duration_seconds
pods_provisioning_startup_duration_seconds pods_provisioning_unbound_time_seconds
pods_provisioning_unstarted_time_seconds pods_provisioning_scheduling_undecided_time_seconds
scheduler_unfinished_work_seconds
cloudprovider_instance_termination_failures_total
cloudprovider_batcher_batch_time_seconds cloudprovider_batcher_batch_size
ec2nodeclasses_userdata_bytes
""".split()
)
"""What the forwarder does not answer; all other series of Karpenter's it does"""
LACKING = {
    "build_info": {"goversion", "commit"},
    "scheduler_queue_depth": {"scheduling_id"},
}
"""Labels of Karpenter's that ours do not have; the page says why"""
MORE_OF_NODES = {"instance_category", "instance_family", "instance_size"}
"""Well-known labels of nodes; Karpenter has each that its cloud provider knows"""
MORE_OF_OBJECTS = {"karpenter_sh_nodepool", "karpenter_k8s_aws_ec2nodeclass", "karpenter_sh_initialized"}
NOW = datetime(2026, 11, 22, tzinfo=UTC)


def answered() -> dict[str, Family]:
    """Return what the forwarder answers Prometheus with of an empty cluster."""
    world = World(StillClock(NOW), Pace())
    counted, observed = world.measured()
    functions = FunctionMetrics(FakeBlobs(), "east", StillClock(NOW))
    families = [*counted, *gauges(observed, NOW), *functions.families()]
    families += [Family(name, "gauge", text, {}) for name, text in HELP.items()]
    assert len({family.name for family in families}) == len(families)
    return {family.name: family for family in families}


def on_the_page(part: str) -> list[str]:
    """Return the names in the first column of a part's table; `*` in one stands for anything."""
    rows = re.findall(r"^\| (`[a-z].*?) \|", part, re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([a-z_0-9*]+)`", row)]


ABOVE, BELOW = PAGE.split("## Unsupported Karpenter series")


def test_every_series_of_karpenters_is_answered_but_those_that_are_named_here() -> None:
    assert set(KARPENTERS) - set(answered()) == ELSEWHERE


def test_nothing_is_answered_that_karpenter_does_not_answer() -> None:
    assert set(answered()) - set(KARPENTERS) == set()


@pytest.mark.parametrize("name", sorted(answered()))
def test_a_series_is_of_the_kind_that_it_has_in_karpenter(name: str) -> None:
    assert answered()[name].kind == KARPENTERS[name].kind


@pytest.mark.parametrize("name", sorted(SERIES))
def test_a_series_of_the_functions_has_the_labels_that_it_has_in_karpenter(name: str) -> None:
    assert set(SERIES[name].labels) == KARPENTERS[name].labels - LACKING.get(name, set())


def test_what_is_told_of_a_cluster_has_the_labels_that_it_has_in_karpenter() -> None:
    scene = Scene()
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "lastTransitionTime": "2026-11-22T03:00:00Z",
    }
    pool = {
        **nodepool_manifest(limits={"cpu": "100"}),
        "status": {"resources": {"cpu": "8"}, "conditions": [ready]},
    }
    node = a_node()
    disrupted = nodeclaim(
        "2026-11-22T03:00:10Z", ("DisruptionReason", "True", "Empty"), ("Drained", "True", "Drained")
    )
    for kind, manifest in (
        (NODEPOOLS, pool),
        (NODES, node),
        (NODECLAIMS, nodeclaim()),
        (NODECLAIMS, disrupted),
    ):
        scene.put(kind, manifest)
    pod = deployment_pod(0, DICE)
    scene.put(PODS, pod)
    scene.time += timedelta(minutes=1)
    scene.put(PODS, {**pod, "spec": {**pod["spec"], "nodeName": "node-1"}}, deployment_pod(1, DICE))
    scene.world.drop(NODECLAIMS, disrupted)
    scene.world.drop(NODES, node)
    scene.put(NODES, a_node(name="node-2"))
    counted, observed = scene.world.measured()
    labels = {
        family.name: {label for labels in family.series for label, _ in labels}
        for family in [*counted, *gauges(observed, scene.time)]
        if family.series and any(family.series)
    }
    more = {
        name: found - KARPENTERS[name].labels - MORE_OF_NODES - MORE_OF_OBJECTS
        for name, found in labels.items()
    }
    less = {
        name: KARPENTERS[name].labels - found - LACKING.get(name, set()) for name, found in labels.items()
    }
    assert {name: each for name, each in more.items() if each} == {}
    assert {name: each for name, each in less.items() if each} == {}
    assert len(labels) > 25


def test_the_cluster_of_the_reference_has_a_series_of_every_kind_that_has_labels() -> None:
    found = exported()

    def has_labels(name: str) -> bool:
        served = name if name.startswith("operator_") else f"karpenter_{name}"
        return any(labels for each, labels in found.items() if each.startswith(served))

    labelled = [name for name in answered() if KARPENTERS[name].labels]
    assert [name for name in labelled if not has_labels(name)] == []


def test_the_page_names_the_dimensions_that_functions_write() -> None:
    written = {dimensions for _, _, dimensions in emitted()}
    sentence = re.search(r"^Metrics have the dimensions? (.*?)[.:]", PAGE, re.MULTILINE)
    assert sentence is not None
    assert written == {frozenset(re.findall(r"`(\w+)`", sentence[1]))}


def test_every_series_of_karpenters_is_on_the_page() -> None:
    names = [*on_the_page(ABOVE), *on_the_page(BELOW.split("## CloudWatch")[0])]
    others = [name for name in KARPENTERS if not name.startswith("operator_") or "_nodeclaim_" in name]
    assert [name for name in others if not any(fnmatchcase(name, known) for known in names)] == []


def test_the_page_promises_what_the_forwarder_answers_and_nothing_else() -> None:
    promised = {name for name in on_the_page(ABOVE) if "operator" not in name}
    assert promised == {name for name in answered() if "operator" not in name}
