"""Pods that nobody can place become nodes, and kube-scheduler places them there."""

from __future__ import annotations

from statistics import median

import pytest
import yaml

from nodesmith.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from nodesmith.model.resources import parse_resources, total
from nodesmith_cli.local.cloud.stages import USUAL
from nodesmith_cli.local.functions import shipped
from tests.e2e.conftest import Figures, Start
from tests.e2e.manifests import many_kinds, nodeclass, nodepool
from tests.e2e.system import CLUSTER, Manifest, System

EXAMPLES = shipped("_examples", "examples")


def express_test() -> tuple[Manifest, Manifest, Manifest]:
    nodeclass_, nodepool_, deployment = (
        yaml.safe_load((EXAMPLES / "express-test" / f"{name}.yaml").read_text())
        for name in ("nodeclass", "nodepool", "deployment")
    )
    return nodeclass_, nodepool_, deployment


def test_twenty_pods_run_on_spot_nodes_in_three_zones_where_kube_scheduler_has_bound_them(
    start: Start,
) -> None:
    system = start()
    system.apply(*express_test())

    system.until_running(20)
    system.until_settled()

    nodes = system.nodes()
    assert {node["metadata"]["labels"][ZONE] for node in nodes} == {f"us-east-1{zone}" for zone in "abc"}
    assert {node["metadata"]["labels"][CAPACITY_TYPE] for node in nodes} == {"spot"}
    assert_kube_scheduler_bound(system)
    assert_nodes_hold_what_they_say(system)


def test_five_hundred_pods_of_forty_kinds_run(start: Start) -> None:
    system = start()
    dedicated = nodepool("dedicated", taints=[{"key": "dedicated", "value": "yes", "effect": "NoSchedule"}])
    system.apply(nodeclass(CLUSTER), nodepool(), dedicated, *many_kinds(500, 40))

    system.until_running(500, seconds=120)
    system.until_settled()

    assert_kube_scheduler_bound(system)
    assert_nodes_hold_what_they_say(system)


@pytest.mark.measured
def test_a_pending_pod_has_its_fleet_request_after_a_second_and_a_half(
    start: Start, figures: Figures
) -> None:
    system = start(delays=USUAL)
    nodeclass_, nodepool_, deployment = express_test()
    system.apply(nodeclass_, nodepool_)
    system.until_nodepools_ready()
    with system.watched_pods() as seen:
        system.apply(deployment)
        system.until_running(20, seconds=90)

    launched = system.launched_at()
    waited = [one for key, one in seen.items() if key.startswith("default/") and one.running_at]
    to_fleet = [(launched[one.node] - one.pending_at).total_seconds() for one in waited]
    to_ready = [(one.running_at - one.pending_at).total_seconds() for one in waited if one.running_at]
    p50 = median(to_fleet)
    figures("pending-to-fleet-p50-s", round(p50, 3))
    figures("pending-to-ready-p50-s", round(median(to_ready), 1))
    figures("control-plane-start-s", round(system.plane.started_in_seconds, 2))
    assert len(to_fleet) == 20
    assert p50 <= 1.6
    assert system.plane.started_in_seconds <= 6


def assert_kube_scheduler_bound(system: System) -> None:
    """Every pod was bound by kube-scheduler: its events say so, and no right of ours would have allowed it."""
    scheduled = {e["involvedObject"]["name"] for e in system.events("Scheduled")}
    assert {pod["metadata"]["name"] for pod in system.pods()} <= scheduled
    by = {e.get("reportingComponent") or e["source"]["component"] for e in system.events("Scheduled")}
    assert by == {"default-scheduler"}
    for group in ("nodesmith:writer", "nodesmith:reader"):
        asked = ("auth", "can-i", "create", "pods/binding", "--as", "function", "--as-group", group)
        assert system.plane.kubectl(*asked).stdout.strip() == "no"


def assert_nodes_hold_what_they_say(system: System) -> None:
    """No node is asked for more than it offers; its labels are those of the instance that EC2 runs."""
    instances = {instance["PrivateDnsName"]: instance for instance in system.instances()}
    asked: dict[str, list[Manifest]] = {}
    for pod in system.pods():
        asked.setdefault(pod["spec"]["nodeName"], []).append(pod)
    for node in system.nodes():
        name, labels = node["metadata"]["name"], node["metadata"]["labels"]
        assert labels[INSTANCE_TYPE] == instances[name]["InstanceType"]
        assert labels[ZONE] == instances[name]["Placement"]["AvailabilityZone"]
        requests = [
            c["resources"]["requests"] for pod in asked.get(name, ()) for c in pod["spec"]["containers"]
        ]
        together = total([parse_resources(each) for each in requests])
        offered = parse_resources(node["status"]["allocatable"])
        assert all(amount <= offered[resource] for resource, amount in together.items())
