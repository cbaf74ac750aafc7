"""The metrics for Prometheus: Karpenter's names, from what the watches see."""

from __future__ import annotations

import random
import re
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nodesmith.model.metrics.metrics import Histogram, labelled
from nodesmith.observation.mirror import NODECLAIMS, NODEPOOLS, NODES, PODS, WATCHED, WatchedKind
from nodesmith_forwarder.health import serve_health
from nodesmith_forwarder.metrics import exposition_text, gauges
from nodesmith_forwarder.metrics.exposition import Family, Summary
from nodesmith_forwarder.windows import Pace
from nodesmith_forwarder.world import World
from tests.builders import nodepool_manifest
from tests.clocks import StillClock
from tests.objects.clusters import deployment_pod, node
from tests.objects.quotas import dollar_pool

DICE = random.Random(1)  # noqa: S311
BEGAN = datetime(2026, 11, 22, 3, 0, 0, 500_000, tzinfo=UTC)


class Scene(StillClock):
    """A world that began at `BEGAN`, and its metrics as text."""

    def __init__(self) -> None:
        super().__init__(BEGAN)
        self.world = World(self, Pace())
        for kind in WATCHED:
            self.world.mark(kind, current=True)

    def put(self, kind: WatchedKind, *manifests: dict[str, Any]) -> None:
        self.world.put(kind, manifests)

    def text(self) -> str:
        counted, observed = self.world.measured()
        return exposition_text([*counted, *gauges(observed, self.time)]).decode()

    def series(self, name: str) -> dict[str, float]:
        """Return the series of a metric: labels as written → value."""
        full = name if name.startswith("operator_") else f"karpenter_{name}"
        lines = [line for line in self.text().splitlines() if re.match(rf"{full}[{{ ]", line)]
        return {line.rpartition(" ")[0].removeprefix(full): float(line.split()[-1]) for line in lines}


ENDING = ("Drained", "Unknown", "AwaitingReconciliation")
"""A condition that a NodeClaim has as soon as its end begins."""


def nodeclaim(
    made: str = "2026-11-22T03:00:10Z", *conditions: tuple[str, str, str], **about: Any
) -> dict[str, Any]:
    labels = {
        "karpenter.sh/nodepool": "web",
        "karpenter.sh/capacity-type": "spot",
        "topology.kubernetes.io/zone": "us-east-1a",
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": "web-1",
            "creationTimestamp": made,
            "labels": labels,
            "annotations": {"nodesmith.dev/decision": "d-1"},
            **about,
        },
        "spec": {},
        "status": {"conditions": [{"type": t, "status": s, "reason": r} for t, s, r in conditions]},
    }


def a_node(made: str = "2026-11-22T03:00:40Z", **about: Any) -> dict[str, Any]:
    manifest = node(3, DICE)
    manifest["metadata"] |= {"name": "node-1", "creationTimestamp": made, **about}
    return manifest


def test_a_nodeclaim_is_counted_when_created_disrupted_drained_and_terminated() -> None:
    scene = Scene()
    ends = {"deletionTimestamp": "2026-11-22T03:10:00Z"}
    cause, drained = ("DisruptionReason", "True", "Underutilized"), ("Drained", "True", "Drained")
    scene.put(NODECLAIMS, nodeclaim())
    scene.put(NODECLAIMS, nodeclaim("2026-11-22T03:00:10Z", cause, ENDING))
    joined = ("Registered", "True", "Registered")
    scene.put(NODECLAIMS, nodeclaim("2026-11-22T03:00:10Z", joined, cause, drained, **ends))
    scene.time = BEGAN + timedelta(minutes=11)
    scene.world.drop(NODECLAIMS, nodeclaim())

    assert scene.series("nodeclaims_created_total") == {
        '{min_values_relaxed="false",nodepool="web",reason="provisioned"}': 1
    }
    where = '{capacity_type="spot",nodepool="web",reason="underutilized"}'
    assert scene.series("nodeclaims_disrupted_total") == {where: 1}
    assert scene.series("nodes_drained_total") == {'{nodepool="web"}': 1}
    gone = '{capacity_type="spot",nodepool="web",zone="us-east-1a"}'
    assert scene.series("nodeclaims_terminated_total") == {gone: 1}
    assert scene.series("nodeclaims_termination_duration_seconds_sum") == {'{nodepool="web"}': 60.5}
    buckets = scene.series("nodeclaims_termination_duration_seconds_bucket")
    assert (buckets['{le="60",nodepool="web"}'], buckets['{le="120",nodepool="web"}']) == (0, 1)


def placed(name: str, owner: str = "ReplicaSet") -> dict[str, Any]:
    """Return a pod on the Node of `a_node`."""
    pod = deployment_pod(0, DICE, "node-1")
    pod["metadata"]["name"] = name
    pod["metadata"]["ownerReferences"] = [
        {"kind": owner, "name": "o", "apiVersion": "apps/v1", "controller": True}
    ]
    return pod


def test_pods_that_a_disruption_affects_are_counted_when_it_begins() -> None:
    scene = Scene()
    node = a_node()
    scene.put(NODES, node)
    scene.put(PODS, placed("a"), placed("b"), placed("of-a-daemonset", "DaemonSet"), placed("static", "Node"))
    leaves = placed("leaves")
    leaves["metadata"] |= {"deletionTimestamp": "2026-11-22T03:05:00Z", "deletionGracePeriodSeconds": 30}
    scene.put(PODS, leaves, placed("gone"))
    scene.world.drop(PODS, placed("gone"))
    claim = nodeclaim("2026-11-22T03:00:10Z")
    claim["status"]["providerID"] = node["spec"]["providerID"]
    scene.put(NODECLAIMS, claim)
    ended = nodeclaim("2026-11-22T03:00:10Z", ("DisruptionReason", "True", "Drifted"), ENDING)
    ended["status"]["providerID"] = node["spec"]["providerID"]
    scene.put(NODECLAIMS, ended)
    scene.put(NODECLAIMS, ended)
    where = '{capacity_type="spot",nodepool="web",reason="drifted"}'
    assert scene.series("pods_disruption_initiated_total") == {where: 2}


def test_a_nodeclaim_counts_by_its_disruption_and_a_users_own_does_not_count() -> None:
    scene = Scene()
    ours = {
        "nodesmith.dev/decision": "d-1",
        "nodesmith.dev/created-for": "drifted",
        "karpenter.sh/nodeclaim-min-values-relaxed": "true",
    }
    scene.put(NODECLAIMS, nodeclaim(annotations=ours))
    scene.put(NODECLAIMS, nodeclaim(name="by-hand", annotations={}))
    where = '{min_values_relaxed="true",nodepool="web",reason="drifted"}'
    assert scene.series("nodeclaims_created_total") == {where: 1}


def test_instance_termination_is_timed_once_ec2_was_asked_to_terminate_it() -> None:
    scene = Scene()
    for status in ("Unknown", "True"):
        ending = nodeclaim("2026-11-22T03:00:10Z", ("InstanceTerminating", status, "InstanceTerminating"))
        ending["status"]["conditions"][0]["lastTransitionTime"] = "2026-11-22T03:10:00Z"
        scene.put(NODECLAIMS, ending)
        scene.time = BEGAN + timedelta(minutes=11)
        scene.world.drop(NODECLAIMS, ending)
    name = "nodeclaims_instance_termination_duration_seconds"
    assert scene.series(f"{name}_count") == {'{nodepool="web"}': 1}
    assert scene.series(f"{name}_sum") == {'{nodepool="web"}': 60.5}


def test_a_gauge_shows_whether_all_kinds_are_up_to_date() -> None:
    scene = Scene()
    assert scene.series("cluster_state_synced") == {"": 1}
    scene.world.mark(NODES, current=False)
    assert scene.series("cluster_state_synced") == {"": 0}


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        (("DisruptionReason", "True", "Empty"), "empty"),
        (("DisruptionReason", "True", "Underutilized"), "underutilized"),
        (("DisruptionReason", "True", "Drifted"), "drifted"),
        (("DisruptionReason", "True", "Expired"), "expired"),
        (("DisruptionReason", "True", "Unhealthy"), "unhealthy"),
        (("DisruptionReason", "True", "SpotInterrupted"), "spot_interrupted"),
        (("DisruptionReason", "True", "InstanceTerminated"), "garbage_collected"),
        (("DisruptionReason", "True", "InstanceStopped"), "instance_stopped"),
        (("DisruptionReason", "True", "ScheduledChange"), "scheduled_change"),
        (("DisruptionReason", "True", "ReservationInterrupted"), "capacity_reservation_interrupted"),
        (("DisruptionReason", "True", "ReservationExpires"), "capacity_reservation_interrupted"),
        (("DisruptionReason", "True", "RebalanceRecommended"), "rebalance_recommendation"),
        (("Launched", "False", "InsufficientCapacity"), "insufficient_capacity"),
        (("Launched", "False", "LaunchTimeout"), "launch_timeout"),
        (("Registered", "False", "RegistrationTimeout"), "registration_timeout"),
    ],
)
def test_reasons_of_disruptions_are_karpenters(condition: tuple[str, str, str], reason: str) -> None:
    scene = Scene()
    scene.put(NODECLAIMS, nodeclaim("2026-11-22T03:00:10Z", condition, ENDING))
    (labels,) = scene.series("nodeclaims_disrupted_total")
    assert f'reason="{reason}"' in labels


def test_a_nodeclaim_that_ends_before_its_node_has_joined_is_no_drained_node() -> None:
    scene = Scene()
    waiting, drained = ("Registered", "Unknown", "NodeNotFound"), ("Drained", "True", "Drained")
    scene.put(NODECLAIMS, nodeclaim("2026-11-22T03:00:10Z", waiting, ENDING))
    scene.put(NODECLAIMS, nodeclaim("2026-11-22T03:00:10Z", waiting, drained))
    assert scene.series("nodes_drained_total") == {}


def test_a_deletion_by_a_user_is_no_disruption() -> None:
    scene = Scene()
    scene.put(NODECLAIMS, nodeclaim("2026-11-22T03:00:10Z", ("DisruptionReason", "True", "Deleted"), ENDING))
    assert scene.series("nodeclaims_disrupted_total") == {}


def test_a_node_that_a_move_has_taken_is_not_disrupted_before_its_end_begins() -> None:
    scene, moved = Scene(), ("DisruptionReason", "True", "Underutilized")
    scene.put(NODECLAIMS, nodeclaim("2026-11-22T03:00:10Z", moved))
    scene.put(NODECLAIMS, nodeclaim("2026-11-22T03:00:10Z"))
    scene.put(NODECLAIMS, nodeclaim("2026-11-22T03:00:10Z", moved))
    assert scene.series("nodeclaims_disrupted_total") == {}
    scene.put(NODECLAIMS, nodeclaim("2026-11-22T03:00:10Z", moved, ENDING))
    assert list(scene.series("nodeclaims_disrupted_total").values()) == [1]


def test_objects_older_than_the_process_do_not_count_as_created() -> None:
    scene = Scene()
    scene.put(NODECLAIMS, nodeclaim("2026-11-22T02:59:59Z"))
    scene.put(NODES, a_node("2026-11-22T02:59:59Z"))
    assert scene.series("nodeclaims_created_total") == scene.series("nodes_created_total") == {}


def test_a_node_is_counted_when_it_registers_and_when_it_terminates() -> None:
    scene = Scene()
    registered = a_node()
    joined = a_node(
        labels={k: v for k, v in registered["metadata"]["labels"].items() if "registered" not in k}
    )
    scene.put(NODES, joined)
    assert scene.series("nodes_created_total") == {}
    scene.put(NODES, registered)
    scene.put(NODES, a_node(deletionTimestamp="2026-11-22T03:20:00Z"))
    scene.time = datetime(2026, 11, 22, 3, 20, 40, tzinfo=UTC)
    scene.world.drop(NODES, registered)

    where = '{nodepool="default",zone="us-east-1a"}'
    assert scene.series("nodes_created_total") == scene.series("nodes_terminated_total") == {where: 1}
    assert scene.series("nodes_termination_duration_seconds_sum") == {'{nodepool="default"}': 40}
    quantiles = scene.series("nodes_termination_duration_seconds")
    assert quantiles['{nodepool="default",quantile="0.99"}'] == 40
    assert scene.series("nodes_lifetime_duration_seconds_sum") == {'{nodepool="default"}': 1200}


def test_a_pod_counts_once_when_it_is_bound() -> None:
    scene = Scene()
    pod = deployment_pod(0, DICE)
    pod["metadata"]["creationTimestamp"] = "2026-11-22T03:00:00Z"
    scene.put(PODS, pod)
    scene.time = datetime(2026, 11, 22, 3, 0, 45, tzinfo=UTC)
    scene.put(PODS, {**pod, "spec": {**pod["spec"], "nodeName": "node-1"}})
    assert scene.series("pods_bound_duration_seconds_sum") == {"": 45}


def test_nodes_show_their_allocatable_resources_and_their_pods_requests() -> None:
    scene = Scene()
    scene.put(NODES, a_node())
    pod = deployment_pod(0, DICE, "node-1")
    pod["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "500m", "memory": "1Gi"},
        "limits": {"cpu": "2"},
    }
    scene.put(PODS, pod)
    offered = {
        labels: value for labels, value in scene.series("nodes_allocatable").items() if '"cpu"' in labels
    }
    ((labels, cores),) = offered.items()
    assert cores == 3.92
    for part in (
        'node_name="node-1"',
        'nodepool="default"',
        'instance_type="m5.xlarge"',
        'capacity_type="spot"',
        'managed="true"',
    ):
        assert part in labels
    assert scene.series("nodes_total_pod_requests")[labels] == 0.5
    assert scene.series("nodes_total_pod_limits")[labels] == 2
    assert scene.series("nodes_total_daemon_limits").get(labels, 0) == 0
    assert scene.series("nodes_total_daemon_requests").get(labels, 0) == 0
    assert scene.series("nodes_system_overhead")[labels] == 0.08
    assert scene.series("cluster_state_node_count") == {"": 1}


def test_nodepools_show_usage_limits_and_conditions() -> None:
    scene = Scene()
    pool: dict[str, Any] = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "web", "creationTimestamp": "2026-11-22T03:00:00Z"},
        "spec": {"limits": {"cpu": "100", "memory": "a lot"}},
        "status": {
            "resources": {"cpu": "12500m"},
            "conditions": [{"type": "Ready", "status": "False", "reason": "NodeClassNotFound"}],
        },
    }
    scene.put(
        NODEPOOLS,
        pool,
        {**pool, "metadata": {**pool["metadata"], "name": "x"}, "spec": {"limits": {"cpu": "8"}}},
        dollar_pool("2.50", "y"),
        dollar_pool("2,50", "z"),
    )
    assert scene.series("nodepools_usage")['{nodepool="web",resource_type="cpu"}'] == 12.5
    assert scene.series("nodepools_limit") == {
        '{nodepool="x",resource_type="cpu"}': 8,
        '{nodepool="y",resource_type="nodesmith.dev/usd-per-hour"}': 2.5,
    }, "unreadable amounts are left out"
    (ready, _) = scene.series("operator_nodepool_status_condition_count")
    assert 'name="web",namespace="",reason="NodeClassNotFound",status="False",type="Ready"' in ready


def ready(status: str, since: str) -> dict[str, Any]:
    about = {"name": "web", "creationTimestamp": "2026-11-22T02:00:00Z"}
    condition = {"type": "Ready", "status": status, "reason": f"Is{status}", "lastTransitionTime": since}
    return {"metadata": about, "spec": {}, "status": {"conditions": [condition]}}


def test_a_condition_that_changes_is_counted_and_timed() -> None:
    scene = Scene()
    scene.put(NODEPOOLS, ready("False", "2026-11-22T02:59:00Z"))
    assert scene.series("operator_nodepool_status_condition_transitions_total") == {}, (
        "the object is older than the process"
    )
    scene.put(NODEPOOLS, ready("True", "2026-11-22T03:01:00Z"))
    scene.time = datetime(2026, 11, 22, 3, 2, 0, tzinfo=UTC)
    changed = scene.series("operator_nodepool_status_condition_transitions_total")
    assert changed == {'{reason="IsTrue",status="True",type="Ready"}': 1}
    spent = scene.series("operator_nodepool_status_condition_transition_seconds_sum")
    assert spent == {'{status="False",type="Ready"}': 120}
    ages = scene.series("operator_nodepool_status_condition_current_status_seconds")
    assert ages == {'{name="web",namespace="",reason="IsTrue",status="True",type="Ready"}': 60}


def test_conditions_of_nodeclaims_have_their_nodepool_as_a_label() -> None:
    scene = Scene()
    scene.put(NODECLAIMS, nodeclaim("2026-11-22T03:00:10Z", ("Launched", "True", "Launched")))
    (labels,) = scene.series("operator_nodeclaim_status_condition_transitions_total")
    assert 'karpenter_sh_nodepool="web"' in labels


def test_a_deletion_shows_its_age_and_then_its_duration() -> None:
    scene = Scene()
    ending = a_node(deletionTimestamp="2026-11-22T03:20:00Z")
    scene.put(NODES, ending)
    scene.time = datetime(2026, 11, 22, 3, 20, 40, tzinfo=UTC)
    assert list(scene.series("operator_node_termination_current_time_seconds").values()) == [40]
    scene.world.drop(NODES, ending)
    assert scene.series("operator_node_termination_current_time_seconds") == {}
    assert list(scene.series("operator_node_termination_duration_seconds_sum").values()) == [40]


def pod_of(phase: str, *, is_ready: bool = False, node_name: str = "") -> dict[str, Any]:
    pod = deployment_pod(0, random.Random(7), node_name)  # noqa: S311
    pod["metadata"]["creationTimestamp"] = "2026-11-22T03:00:00Z"
    conditions = [{"type": "Ready", "status": "True" if is_ready else "False"}]
    return {**pod, "status": {"phase": phase, "conditions": conditions}}


@pytest.mark.parametrize(
    ("label", "is_managed"),
    [("karpenter.sh/nodepool", "true"), ("karpenter.sh/registered", "true"), ("example.com/team", "false")],
)
def test_the_node_of_a_users_nodeclaim_is_managed_and_others_are_not(label: str, is_managed: str) -> None:
    scene = Scene()
    made = a_node()
    made["metadata"]["labels"] = {label: "true"}
    scene.put(NODES, made)
    (labels,) = scene.series("nodes_current_lifetime_seconds")
    assert f'managed="{is_managed}"' in labels


def test_a_pod_behind_a_scheduling_gate_does_not_wait_for_a_node_yet() -> None:
    scene = Scene()
    gated = pod_of("Pending")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
    scene.put(PODS, gated)
    scene.time = datetime(2026, 11, 22, 3, 0, 30, tzinfo=UTC)
    assert scene.series("pods_unbound_time_seconds") == {}
    scene.put(PODS, pod_of("Pending"))
    assert list(scene.series("pods_unbound_time_seconds").values()) == [30]


def test_a_pod_counts_as_starting_until_it_is_ready_for_the_first_time() -> None:
    scene = Scene()
    scene.put(PODS, pod_of("Pending"))
    scene.time = datetime(2026, 11, 22, 3, 0, 30, tzinfo=UTC)
    assert list(scene.series("pods_unbound_time_seconds").values()) == [30]
    scene.put(PODS, pod_of("Pending", node_name="node-1"))
    assert scene.series("pods_unbound_time_seconds") == {}
    scene.put(PODS, pod_of("Running", node_name="node-1"))
    assert list(scene.series("pods_unstarted_time_seconds").values()) == [30]
    scene.time = datetime(2026, 11, 22, 3, 0, 45, tzinfo=UTC)
    for is_ready in (True, False, True):
        scene.put(PODS, pod_of("Running", is_ready=is_ready, node_name="node-1"))
    assert scene.series("pods_unstarted_time_seconds") == {}
    assert scene.series("pods_startup_duration_seconds_count") == {"": 1}
    assert scene.series("pods_startup_duration_seconds_sum") == {"": 45}


def test_pods_that_never_start_are_forgotten() -> None:
    scene = Scene()
    scene.put(PODS, pod_of("Pending"))
    scene.world.drop(PODS, pod_of("Pending"))
    assert scene.series("pods_unstarted_time_seconds") == {}


def test_pods_show_their_location_and_owner() -> None:
    scene = Scene()
    scene.put(NODES, a_node())
    scene.put(PODS, pod_of("Pending", node_name="node-1"))
    scene.put(PODS, pod_of("Running", is_ready=True, node_name="node-1"))
    ((labels, value),) = scene.series("pods_state").items()
    assert value == 1
    for part in (
        'phase="Running"',
        'ready="true"',
        'scheduled="true"',
        'managed="true"',
        'node="node-1"',
        'nodepool="default"',
        'capacity_type="spot"',
        'owner="/apis/apps/v1/namespaces/team-0/replicasets/',
    ):
        assert part in labels


def test_a_new_phase_alone_wakes_nothing() -> None:
    scene = Scene()
    scene.put(PODS, pod_of("Pending", node_name="node-1"))
    scene.world.take()
    scene.put(PODS, pod_of("Running", node_name="node-1"))
    taken = scene.world.take()
    assert taken is not None
    assert taken[0] == {}
    assert [pod.phase for pod in scene.world.whole().pods] == ["Running"]


def test_nodepools_show_allowed_disruptions_and_nodes_that_count_against_budgets() -> None:
    scene = Scene()
    pool = nodepool_manifest()
    pool["spec"]["disruption"] = {"budgets": [{"nodes": "1"}, {"nodes": "0", "reasons": ["Drifted"]}]}
    scene.put(NODEPOOLS, pool)
    nodes = [node(number, DICE) for number in range(3)]
    nodes[0]["metadata"]["deletionTimestamp"] = "2026-11-22T03:00:00Z"
    nodes[1]["status"]["conditions"][0]["status"] = "False"
    scene.put(NODES, *nodes)
    most = scene.series("nodepools_allowed_disruptions")
    assert most['{nodepool="default",reason="Empty"}'] == 1
    assert most['{nodepool="default",reason="Drifted"}'] == 0
    assert set(scene.series("nodepools_nodes_consuming_budgets").values()) == {2}


def test_budgets_for_underutilized_nodes_count_for_unbalanced_ones_in_metrics_too() -> None:
    scene = Scene()
    pool = nodepool_manifest()
    pool["spec"]["disruption"] = {"budgets": [{"nodes": "0", "reasons": ["Underutilized"]}]}
    scene.put(NODEPOOLS, pool)
    scene.put(NODES, *[node(number, DICE) for number in range(3)])
    most = scene.series("nodepools_allowed_disruptions")
    assert most['{nodepool="default",reason="Unbalanced"}'] == 0
    assert most['{nodepool="default",reason="Empty"}'] == 3


def test_a_gauge_shows_how_long_a_kind_has_not_been_up_to_date() -> None:
    scene = Scene()
    scene.world.mark(NODES, current=False)
    scene.time = BEGAN + timedelta(seconds=20)
    assert scene.series("cluster_state_unsynced_time_seconds") == {"": 20}
    scene.world.mark(NODES, current=True)
    assert scene.series("cluster_state_unsynced_time_seconds") == {"": 0}


def test_prometheus_reads_every_family_with_its_kind_and_its_values() -> None:
    scene = Scene()
    scene.put(NODECLAIMS, nodeclaim())
    scene.put(NODES, a_node())
    counted, observed = scene.world.measured()
    families = [*counted, *gauges(observed, scene.time)]
    read = {found.name: found for found in text_string_to_metric_families(exposition_text(families).decode())}
    assert len(read) == len(families)
    for family in families:
        name = family.name if family.name.startswith("operator_") else f"karpenter_{family.name}"
        found = read[name.removesuffix("_total") if family.kind == "counter" else name]
        assert (found.type, found.documentation) == (family.kind, family.help)
        if family.kind in ("counter", "gauge"):
            samples = {tuple(sorted(sample.labels.items())): sample.value for sample in found.samples}
            assert samples == {tuple(sorted(labels)): value for labels, value in family.series.items()}


def test_a_gauge_may_be_named_like_a_counter() -> None:
    text = exposition_text(
        [Family("nodepools_cost_total", "gauge", "Some.", {labelled(nodepool="web"): 0.1})]
    )
    assert text.splitlines()[1:] == [
        b"# TYPE karpenter_nodepools_cost_total gauge",
        b'karpenter_nodepools_cost_total{nodepool="web"} 0.1',
    ]


def test_labels_are_escaped_and_buckets_add_up() -> None:
    histogram = Histogram()
    for seconds in (0.001, 5, 5.1, 10_000):
        histogram.observe(seconds)
    text = exposition_text(
        [Family("spans", "histogram", "Some.", {labelled(pool='a"b\\c\nd'): histogram})]
    ).decode()
    assert 'karpenter_spans_bucket{le="5",pool="a\\"b\\\\c\\nd"} 2.0' in text
    assert 'karpenter_spans_bucket{le="+Inf",pool="a\\"b\\\\c\\nd"} 4.0' in text
    assert text.splitlines()[-1].endswith("} 4.0")


def test_quantiles_cover_the_last_ten_minutes_and_sums_everything() -> None:
    summary = Summary()
    for minute, seconds in ((0, 100), (8, 1), (9, 2), (10, 3), (11, 4)):
        summary.observe(seconds, BEGAN + timedelta(minutes=minute))
    shown = summary.copy(BEGAN + timedelta(minutes=11))
    assert dict(shown.quantiles()) == {0: 1, 0.5: 2, 0.9: 4, 0.99: 4, 1: 4}
    lines = exposition_text([Family("spans", "summary", "Some.", {(): shown})]).decode().splitlines()
    assert "# TYPE karpenter_spans summary" in lines
    assert 'karpenter_spans{quantile="0.5"} 2.0' in lines
    assert lines[-2:] == ["karpenter_spans_sum 110.0", "karpenter_spans_count 5.0"]
    emptied = summary.copy(BEGAN + timedelta(hours=1))
    late = exposition_text([Family("spans", "summary", "Some.", {(): emptied})])
    assert b'karpenter_spans{quantile="1"} NaN' in late


def test_metrics_are_served_on_the_port_of_the_probes() -> None:
    server = serve_health(0, {}, lambda: Scene().text().encode())
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=60) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert "# TYPE karpenter_nodeclaims_created_total counter" in answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
