from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from nodesmith_formats.prices import Price
from nodesmith_local.runs.latency import Latency, latencies
from nodesmith_local.runs.report import Report, build_report
from nodesmith_local.runs.timeline import Entry, Timeline, milestones

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def pod(
    name: str, node: str = "", cpu: str = "1", phase: str = "Pending", message: str = ""
) -> dict[str, Any]:
    conditions = [{"type": "PodScheduled", "status": "False", "message": message}] if message else []
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": node,
            "containers": [{"resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}],
        },
        "status": {"phase": phase, "conditions": conditions},
    }


def node(name: str, zone: str = "us-east-1a", ready: str = "True") -> dict[str, Any]:
    return {
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "karpenter.sh/nodepool": "default",
                "karpenter.sh/capacity-type": "spot",
                "node.kubernetes.io/instance-type": "c7a.2xlarge",
                "topology.kubernetes.io/zone": zone,
            },
        },
        "status": {
            "allocatable": {"cpu": "7910m", "memory": "15Gi", "pods": "58"},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def claim(name: str, **conditions: str) -> dict[str, Any]:
    return {
        "kind": "NodeClaim",
        "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "default"}},
        "status": {"conditions": [{"type": kind, "status": status} for kind, status in conditions.items()]},
    }


def price_of(labels: Mapping[str, str]) -> Price | None:
    asked = "karpenter.sh/capacity-type", "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
    known = tuple(labels.get(key) for key in asked) == ("spot", "c7a.2xlarge", "us-east-1a")
    return Price(0.125, estimated=True) if known else None


def report_of(pods: list[dict[str, Any]], nodes: list[dict[str, Any]], **also: Any) -> Report:
    return build_report(pods, nodes, price_of=price_of, **{"reasons": {}, **also})


def test_the_json_of_a_run_is_the_documented_one() -> None:
    report = report_of(
        [pod("a", "n1", phase="Running"), pod("b", "n1", cpu="500m", phase="Running"), pod("c")],
        [node("n1")],
        reasons={"default/c": "no instance type has 10000 cpu"},
        timeline=(Entry(at(1.5), "bound", "Pod/default/a", "n1"),),
        problems=("NodePool/a: spec.weight is 0",),
    )

    assert json.loads(json.dumps(report.to_json())) == {
        "nodes": [
            {
                "name": "n1",
                "nodePool": "default",
                "instanceType": "c7a.2xlarge",
                "zone": "us-east-1a",
                "capacityType": "spot",
                "priceHourly": 0.125,
                "priceEstimated": True,
                "cpuRequested": 1.5,
                "cpuAllocatable": 7.91,
                "pods": ["default/a", "default/b"],
            }
        ],
        "pendingPods": [{"name": "default/c", "reason": "no instance type has 10000 cpu"}],
        "priceHourly": 0.125,
        "problems": ["NodePool/a: spec.weight is 0"],
        "timeline": [
            {"at": "2026-11-21T08:00:01.500Z", "what": "bound", "object": "Pod/default/a", "detail": "n1"}
        ],
    }


def test_pods_that_have_ended_take_no_room_and_are_not_pending() -> None:
    report = report_of([pod("done", "n1", phase="Succeeded"), pod("failed", phase="Failed")], [node("n1")])

    assert report.nodes[0].pods == ()
    assert report.nodes[0].requested.cpu_milli == 0
    assert report.pending == ()


def test_the_schedulers_message_is_used_where_no_decision_gave_a_reason() -> None:
    report = report_of([pod("c", message="0/1 nodes are available")], [])

    assert report.pending[0].reason == "0/1 nodes are available"


def test_a_node_with_an_unknown_price_has_no_price_and_is_left_out_of_the_sum() -> None:
    strange = node("n2")
    strange["metadata"]["labels"]["node.kubernetes.io/instance-type"] = "t1.strange"

    report = report_of([], [node("n1"), strange])

    assert [n.price for n in report.nodes] == [Price(0.125, estimated=True), None]
    assert report.price == Price(0.125, estimated=True)


def test_nodes_come_by_zone_then_name() -> None:
    report = report_of([], [node("n3", "us-east-1b"), node("n2"), node("n1")])

    assert [n.name for n in report.nodes] == ["n1", "n2", "n3"]


def test_the_changes_of_objects_become_milestones_once_each() -> None:
    timeline = Timeline()
    unscheduled, placed = pod("a"), pod("a", "n1")
    fresh, launched = claim("c1"), claim("c1", Launched="True")

    timeline.observe(at(0), None, unscheduled)
    timeline.observe(at(1), None, fresh)
    timeline.observe(at(2), fresh, launched)
    timeline.observe(at(3), launched, launched)
    timeline.observe(at(4), None, node("n1", ready="False"))
    timeline.observe(at(5), node("n1", ready="False"), node("n1"))
    timeline.observe(at(6), unscheduled, placed)
    timeline.observe(at(7), placed, None)

    assert [(e.at, e.what, e.object) for e in timeline.entries] == [
        (at(0), "pending", "Pod/default/a"),
        (at(1), "claimed", "NodeClaim/c1"),
        (at(2), "launched", "NodeClaim/c1"),
        (at(4), "joined", "Node/n1"),
        (at(5), "ready", "Node/n1"),
        (at(6), "bound", "Pod/default/a"),
        (at(7), "deleted", "Pod/default/a"),
    ]


def test_a_nodepool_that_is_not_ready_says_why_once_per_reason() -> None:
    def pool(status: str, message: str) -> dict[str, Any]:
        found = {"type": "Ready", "status": status, "reason": "Bad", "message": message}
        return {"kind": "NodePool", "metadata": {"name": "p"}, "status": {"conditions": [found]}}

    bad = pool("False", "operator Inn")

    assert list(milestones(None, bad)) == [("not ready", "Bad: operator Inn")]
    assert list(milestones(bad, bad)) == []
    assert list(milestones(bad, pool("True", ""))) == [("ready", "")]


def test_a_listener_receives_each_milestone_as_it_comes() -> None:
    heard: list[Entry] = []

    Timeline(heard.append).observe(at(0), None, pod("a"))

    assert [entry.what for entry in heard] == ["pending"]


def test_latencies_are_measured_from_pending_over_all_pods() -> None:
    steps = [
        Entry(at(0), "pending", "Pod/default/a"),
        Entry(at(2), "pending", "Pod/default/b"),
        Entry(at(3), "launched", "NodeClaim/c1"),
        Entry(at(30), "registered", "NodeClaim/c1"),
        Entry(at(40), "ready", "Node/n1"),
        Entry(at(41), "bound", "Pod/default/a", "n1"),
        Entry(at(42), "bound", "Pod/default/b", "n1"),
        Entry(at(5), "pending", "Pod/default/never-bound"),
    ]

    assert latencies(steps, {"n1": "c1"}) == (
        Latency("launched", 2.0, 3.0, 2),
        Latency("registered", 29.0, 30.0, 2),
        Latency("ready", 39.0, 40.0, 2),
        Latency("bound", 40.5, 41.0, 2),
    )


def test_a_pod_that_came_after_its_node_waited_only_for_binding() -> None:
    steps = [
        Entry(at(0), "launched", "NodeClaim/c1"),
        Entry(at(50), "pending", "Pod/default/late"),
        Entry(at(51), "bound", "Pod/default/late", "n1"),
    ]

    assert latencies(steps, {"n1": "c1"}) == (Latency("launched", 0.0, 0.0, 1), Latency("bound", 1.0, 1.0, 1))
