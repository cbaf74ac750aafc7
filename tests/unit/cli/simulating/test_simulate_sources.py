"""Workloads from audit logs and kubereplay: what is read, and what is counted because it cannot be used."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nodesmith.errors import Rejected
from nodesmith.model.policies import NodeSettings
from nodesmith_cli.simulator.simulating.auditlog import cloudwatch_lines, lines_of, read_audit_log
from nodesmith_cli.simulator.simulating.kubereplay import read_kubereplay
from nodesmith_cli.simulator.simulating.slots import ObservedPod, slots
from nodesmith_cli.simulator.simulating.workloads import Workloads, within
from nodesmith_local.simulation.simulation import Simulation
from nodesmith_local.simulation.trace import Trace
from tests.builders import catalog, nodepool_manifest, shape
from tests.processes.plancommand import written

AT = datetime(2026, 9, 7, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def stamp(minutes: float) -> str:
    return f"{AT + MINUTE * minutes:%Y-%m-%dT%H:%M:%S.%fZ}"


def pod(name: str, cpu: str = "500m", owner: str = "web-1", **metadata: Any) -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": "u", "controller": True}
    about = {"name": name, "namespace": "shop", "labels": {"app": "web"}, "ownerReferences": [reference]}
    requests = {"cpu": cpu, "memory": "1Gi"} if cpu else {}
    spec = {"containers": [{"name": "main", "image": "web", "resources": {"requests": requests}}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about | metadata, "spec": spec}


def event(
    verb: str, name: str, minutes: float, resource: str = "pods", subresource: str = "", **more: Any
) -> dict[str, Any]:
    about = {"resource": resource, "namespace": "shop", "name": name}
    return {
        "kind": "Event",
        "auditID": f"{verb}-{resource}-{name}-{subresource}-{minutes}",
        "stage": "ResponseComplete",
        "verb": verb,
        "objectRef": about | ({"subresource": subresource} if subresource else {}),
        "responseStatus": {"code": 201},
        "requestReceivedTimestamp": stamp(minutes),
        **more,
    }


def created(name: str, minutes: float, **fields: Any) -> dict[str, Any]:
    return event("create", name, minutes, responseObject=pod(name, **fields))


def read(events: Iterable[Mapping[str, Any]], cluster: str = "") -> tuple[Workloads, list[datetime]]:
    return read_audit_log([json.dumps(each) for each in events], "audit.log", cluster)


def traced(found: Workloads, moments: list[datetime], folder: Path) -> tuple[Trace, list[str]]:
    start, end = within(moments, None)
    files = [written(folder, "pools.yaml", nodepool_manifest())]
    return found.trace(files, catalog(), NodeSettings(), start, end)


def test_a_pod_of_an_audit_log_lives_from_its_creation_to_its_deletion(tmp_path: Path) -> None:
    found, moments = read([created("a", 0), created("b", 1), event("delete", "a", 9)])
    trace, faults = traced(found, moments, tmp_path)
    assert [(s.key, s.arrives, s.ends) for s in trace.slots] == [
        ("shop/a", AT, (AT + 9 * MINUTE,) * 2),
        ("shop/b", AT + MINUTE, None),
    ]
    assert trace.slots[0].shape is trace.slots[1].shape
    assert trace.slots[0].shape.requests.cpu_milli == 500
    assert not faults


def test_a_pod_that_replaces_an_evicted_one_continues_its_slot(tmp_path: Path) -> None:
    eviction = event("create", "a", 5, subresource="eviction")
    found, moments = read([created("a", 0), eviction, event("delete", "a", 5), created("c", 5.1)])
    trace, _ = traced(found, moments, tmp_path)
    assert [(slot.key, slot.ends) for slot in trace.slots] == [("shop/a", None)]


def test_a_pod_that_has_succeeded_has_ended_before_it_is_deleted(tmp_path: Path) -> None:
    over = event("patch", "a", 3, subresource="status", requestObject={"status": {"phase": "Succeeded"}})
    found, moments = read([created("a", 0), over, event("delete", "a", 60)])
    trace, _ = traced(found, moments, tmp_path)
    assert trace.slots[0].ends == (AT + 3 * MINUTE,) * 2


def test_events_in_another_order_and_twice_give_the_same_workload(tmp_path: Path) -> None:
    events = [created("a", 0), created("b", 1), event("delete", "a", 9)]
    found, moments = read([*events[::-1], events[0]])
    trace, _ = traced(found, moments, tmp_path)
    assert [slot.key for slot in trace.slots] == ["shop/a", "shop/b"]
    assert found.omissions["events that occur twice"] == 1


def test_a_log_that_is_cut_in_half_is_used_up_to_there() -> None:
    whole = [json.dumps(created("a", 0)), json.dumps(created("b", 1))]
    found, moments = read_audit_log([whole[0], "noise", "{broken", whole[1][: len(whole[1]) // 2]], "x")
    assert [seen.key for seen in found.pods] == ["shop/a"]
    assert len(moments) == 1
    assert found.omissions == {
        "lines without an event": 1,
        "lines that are not JSON": 1,
        "the last line is cut off": 1,
    }


def test_a_compressed_log_that_is_cut_in_half_is_used_up_to_there(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps(created(f"pod-{n}", n)) for n in range(300))
    file = tmp_path / "audit.log.gz"
    file.write_bytes(gzip.compress(lines.encode())[:-200])
    reported: dict[str, int] = {}
    found, _ = read_audit_log(lines_of(str(file), reported), "x")
    assert reported == {"the file is cut off": 1}
    assert 0 < len(found.pods) < 300


def test_lines_of_other_clusters_are_counted_and_left_out() -> None:
    mine = {"logGroup": "/aws/eks/shop/cluster", "logEvents": [{"message": json.dumps(created("a", 0))}]}
    other = {"logGroup": "/aws/eks/bank/cluster", "logEvents": [{"message": json.dumps(created("b", 0))}] * 3}
    found, _ = read([mine, other], "shop")
    assert [seen.key for seen in found.pods] == ["shop/a"]
    assert found.omissions["lines of other clusters"] == 3


def test_cloudwatch_exports_are_read_in_each_of_their_forms() -> None:
    text = json.dumps(created("a", 0))
    exported = f"2026-09-07T12:00:00.000Z {text}"
    downloaded = json.dumps({"events": [{"timestamp": 1, "message": json.dumps(created("b", 0))}]})
    insights = json.dumps({"@timestamp": "x", "@message": created("c", 0)})
    found, _ = read_audit_log([exported, downloaded, insights], "x")
    assert sorted(seen.key for seen in found.pods) == ["shop/a", "shop/b", "shop/c"]


def test_the_output_of_the_aws_cli_is_one_document_over_many_lines(tmp_path: Path) -> None:
    file = tmp_path / "audit.json"
    messages = [{"message": json.dumps(created(name, 0))} for name in ("a", "b")]
    file.write_text(json.dumps({"events": messages, "searchedLogStreams": []}, indent=4))
    found, _ = read_audit_log(lines_of(str(file), {}), "x")
    assert sorted(seen.key for seen in found.pods) == ["shop/a", "shop/b"]
    assert not +found.omissions


def test_what_cannot_be_used_is_counted(tmp_path: Path) -> None:
    events = [
        created("a", 0),
        created("bare", 1, cpu=""),
        event("create", "meta", 1),
        event("delete", "old", 2),
        event("create", "x", 2, resource="configmaps"),
        {**event("create", "refused", 2), "responseStatus": {"code": 403}},
        {**created("late", 3), "requestReceivedTimestamp": "yesterday"},
        created("huge", 4, cpu="five"),
        {"kind": "Pod", "metadata": {"name": "no-event"}},
    ]
    found, moments = read(events)
    trace, faults = traced(found, moments, tmp_path)
    assert [slot.key for slot in trace.slots] == ["shop/a", "shop/bare"]
    assert dict(found.omissions) == {
        "pods without their manifest: the audit policy records only metadata": 1,
        "pods that ended, but were created before the log begins": 1,
        "events of kinds that are not simulated": 1,
        "events without a time": 1,
        "objects that are not audit events": 1,
        "pods whose manifest is not valid": 1,
        "pods without requests for cpu and memory, which take no room": 1,
    }
    assert any("five" in fault for fault in faults)


def test_a_pod_that_was_there_before_the_log_runs_from_its_beginning(tmp_path: Path) -> None:
    whole = pod("old", creationTimestamp="2026-09-01T00:00:00Z")
    found, moments = read([created("a", 0), event("delete", "old", 9, responseObject=whole)])
    trace, _ = traced(found, moments, tmp_path)
    assert [(s.key, s.arrives) for s in trace.slots] == [("shop/a", AT), ("shop/old", AT)]


def test_a_log_without_pods_is_read_by_the_sizes_of_its_deployments(tmp_path: Path) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("x")["spec"]}
    whole = {"spec": {"replicas": 3, "template": template}}
    events = [
        event("update", "web", 0, resource="deployments", responseObject=whole),
        event("patch", "web", 5, "deployments", "scale", responseObject={"spec": {"replicas": 1}}),
        event("patch", "db", 6, "deployments", "scale", responseObject={"spec": {"replicas": 1}}),
        event("delete", "web", 9, resource="deployments"),
    ]
    found, moments = read(events)
    trace, _ = traced(found, moments, tmp_path)
    assert sorted(slot.ends[0] for slot in trace.slots if slot.ends) == [
        AT + 5 * MINUTE,
        AT + 5 * MINUTE,
        AT + 9 * MINUTE,
    ]
    assert found.omissions["events of workloads whose creation is missing"] == 1


def test_labels_of_any_size_and_markup_in_names_are_read(tmp_path: Path) -> None:
    found, moments = read([created("a", 0, labels={"app": "x" * 10_000}), created("<b>[red]", 1)])
    trace, faults = traced(found, moments, tmp_path)
    assert [slot.key for slot in trace.slots] == ["shop/<b>[red]"]
    assert any("label" in fault for fault in faults)


def replay_file(folder: Path, *events: Mapping[str, Any]) -> str:
    file = folder / "replay.json"
    file.write_text(json.dumps({"cluster": "shop", "captured": stamp(0), "events": list(events)}))
    return str(file)


def deployment(replicas: int, cpu: str = "500m") -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("x", cpu)["spec"]}
    return {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": replicas, "template": template},
    }


def changed(type_: str, minutes: float, kind: str = "Deployment", key: str = "shop/web", **more: Any) -> Any:
    return {"type": type_, "kind": kind, "key": key, "timestamp": stamp(minutes), **more}


def test_kubereplay_gives_pods_that_come_and_go_with_the_size_of_their_deployment(tmp_path: Path) -> None:
    file = replay_file(
        tmp_path,
        changed("scale", 10, replicas=3),
        changed("create", 0, deployment=deployment(2)),
        changed("delete", 20),
    )
    found, moments, cluster = read_kubereplay(file)
    trace, _ = traced(found, moments, tmp_path)
    assert cluster == "shop"
    assert [(s.arrives - AT, s.ends) for s in trace.slots] == [
        (timedelta(0), (AT + 20 * MINUTE,) * 2),
        (timedelta(0), (AT + 20 * MINUTE,) * 2),
        (10 * MINUTE, (AT + 20 * MINUTE,) * 2),
    ]


def test_completions_of_a_job_beyond_its_parallelism_run_one_after_the_other(tmp_path: Path) -> None:
    template = {"spec": {**pod("x")["spec"], "restartPolicy": "Never"}}
    job = {"metadata": {"name": "etl"}, "spec": {"parallelism": 2, "completions": 5, "template": template}}
    file = replay_file(tmp_path, changed("create", 0, "Job", "shop/etl", job=job), changed("delete", 60))
    found, moments, _ = read_kubereplay(file, timedelta(minutes=4))
    trace, _ = traced(found, moments, tmp_path)
    assert [slot.runs for slot in trace.slots] == [12 * MINUTE] * 2


def test_events_of_kubereplay_that_cannot_be_used_are_counted(tmp_path: Path) -> None:
    file = replay_file(
        tmp_path,
        changed("create", 0, deployment=deployment(1)),
        changed("create", 1, "Deploymnt"),
        changed("scal", 2),
        changed("scale", 3, key="shop/db", replicas=2),
        changed("create", 4),
        {"type": "create"},
    )
    found, _, _ = read_kubereplay(file)
    assert dict(found.omissions) == {
        "events of the kind 'Deploymnt', did you mean 'Deployment'?": 1,
        "events of the type 'scal', did you mean 'scale'?": 1,
        "events of workloads whose creation is missing": 1,
        "events whose object is incomplete": 1,
        "events without a time": 1,
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"events": [', "not JSON, or cut off"),
        ('{"items": []}', "the list 'events' is missing"),
        ('{"auditID": "1"}', "the list 'events' is missing"),
    ],
)
def test_a_file_that_is_not_kubereplays_is_refused(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "replay.json"
    file.write_text(content)
    with pytest.raises(Rejected, match=message):
        read_kubereplay(str(file))


def test_a_file_that_does_not_exist_is_refused() -> None:
    with pytest.raises(Rejected, match=r"--replay nowhere.json: No such file"):
        read_kubereplay("nowhere.json")


def test_a_pod_without_an_owner_has_no_successor() -> None:
    lone = shape()
    first = ObservedPod("default/a", lone, AT, (AT + MINUTE, AT + MINUTE))
    second = ObservedPod("default/b", lone, AT + MINUTE)
    owner = "" if not lone.owner else lone.owner
    assert len(slots([first, second], AT)) == (1 if owner else 2)


class Logs:
    """CloudWatch Logs with two pages of events; `asked` is what it was asked for."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}

    def get_paginator(self, operation: str) -> Logs:
        assert operation == "filter_log_events"
        return self

    def paginate(self, **asked: Any) -> list[dict[str, Any]]:
        self.asked = asked
        return [{"events": [{"message": json.dumps(created(name, 0))}]} for name in ("a", "b")]


def test_cloudwatch_is_asked_for_the_audit_log_of_the_cluster_since_then() -> None:
    logs = Logs()
    found, _ = read_audit_log(cloudwatch_lines(logs, "shop", 5 * MINUTE, AT), "cloudwatch", "shop")
    assert [seen.key for seen in found.pods] == ["shop/a", "shop/b"]
    assert logs.asked["logGroupName"] == "/aws/eks/shop/cluster"
    assert logs.asked["endTime"] - logs.asked["startTime"] == 300_000
    assert "$.objectRef.resource" in logs.asked["filterPattern"]


def test_what_ran_before_a_log_comes_from_the_manifests_of_the_cluster(tmp_path: Path) -> None:
    labels = {"karpenter.sh/nodepool": "default", "karpenter.sh/initialized": "true"}
    labels |= {"node.kubernetes.io/instance-type": "m5.large", "karpenter.sh/capacity-type": "on-demand"}
    labels |= {"topology.kubernetes.io/zone": "us-east-1a"}
    offered = {"cpu": "2", "memory": "7Gi", "pods": "29"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "labels": labels},
        "spec": {"providerID": "aws:///us-east-1a/i-1"},
        "status": {
            "capacity": offered,
            "allocatable": offered,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    old = pod("old")
    old["spec"]["nodeName"] = "n"
    found, moments = read([created("a", 0), created("b", 30)])
    start, end = within(moments, None)
    files = [written(tmp_path, "cluster.yaml", nodepool_manifest(), node, old)]
    trace, _ = found.trace(files, catalog(), NodeSettings(), start, end)
    assert [(s.key, s.node) for s in trace.slots][1:2] == [("shop/old", "n")]
    outcome = Simulation(trace).run()
    assert outcome["nodeHours"] == pytest.approx(0.5, abs=0.1)  # it may be replaced by a cheaper one
    assert 0 < outcome["usd"] < 0.06
