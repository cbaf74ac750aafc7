"""Unschedulable pods get nodes, and kube-scheduler binds them there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from statistics import median

import yaml

from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from nodesmith.model.apimachinery.quantities import parse_resources, total
from nodesmith_formats.kubernetes.objects import pod_key
from nodesmith_formats.shipped import shipped
from nodesmith_local.aws.instances.stages import USUAL
from tests.e2e.conftest import Alone, Figures, Start
from tests.e2e.systems.system import CLUSTER, Manifest, System, Waited
from tests.objects.manifests import many_kinds, nodeclass, nodepool

LONGEST_TO_FLEET_SECONDS, LONGEST_START_SECONDS = 5.0, 30.0
"""The goals are 1.6 s and 6 s, and the report has the measured times. These limits allow for a busy machine."""
EXAMPLES = shipped("_examples", "examples")


def express_test() -> tuple[Manifest, Manifest, Manifest]:
    nodeclass_, nodepool_, deployment = (
        yaml.safe_load((EXAMPLES / "express-test" / f"{name}.yaml").read_text())
        for name in ("nodeclass", "nodepool", "deployment")
    )
    return nodeclass_, nodepool_, deployment


def test_five_hundred_pods_of_forty_kinds_run_where_one_plan_placed_them(
    start: Start, figures: Figures, alone: Alone
) -> None:
    """kube-scheduler follows the plan, except where a zone spread makes one pod wait for another.

    On a busy machine it follows the plan less closely, and up to two thirds more nodes than planned are bought.
    """
    system = start()
    dedicated = nodepool("dedicated", taints=[{"key": "dedicated", "value": "yes", "effect": "NoSchedule"}])
    system.apply(*many_kinds(500, 40))
    system.until_reported(500)
    with alone():
        system.apply(nodeclass(CLUSTER), nodepool(), dedicated)
        system.until_running(500, seconds=180)
        system.until_settled()

    assert_kube_scheduler_bound(system)
    assert_nodes_hold_what_they_say(system)
    claims = sorted(system.ledger().claims, key=lambda claim: claim.created_at)
    first = [claim for claim in claims if claim.decision == claims[0].decision]
    planned = {pod: claim.node_name for claim in first for pod in claim.nominated}
    free = [pod for pod in system.pods() if "topologySpreadConstraints" not in pod["spec"]]
    followed = [pod for pod in free if planned.get(pod_key(pod)) == pod["spec"]["nodeName"]]
    figures("nodes-of-the-first-plan", len(first))
    figures("nodes", len(claims))
    figures("pods-as-planned", sum(planned.get(pod_key(p)) == p["spec"]["nodeName"] for p in system.pods()))
    assert len(planned) == 500, "one decision plans for all pods"
    assert len(followed) >= 0.6 * len(free), "nearly all on a quiet machine; hardly any without nominations"
    assert len(claims) <= 1.6 * len(first)


def test_kube_scheduler_soon_binds_twenty_pods_to_new_spot_nodes_in_three_zones(
    start: Start, figures: Figures, alone: Alone
) -> None:
    nodeclass_, nodepool_, deployment = express_test()
    with ExitStack() as waiting:
        with alone():
            system = start(delays=USUAL)
            system.apply(nodeclass_, nodepool_)
            system.until_nodepools_ready()
            seen = waiting.enter_context(system.watched_pods())
            system.apply(deployment)
            system.until("nodes are requested from EC2 for all 20 pods", lambda: launched_for(system) == 20)
        system.until_running(20, seconds=90)
        system.until("all 20 were seen running", lambda: len(running(seen)) == 20)
    system.until_settled()

    nodes = system.nodes()
    assert {node["metadata"]["labels"][ZONE] for node in nodes} == {f"us-east-1{zone}" for zone in "abc"}
    assert {node["metadata"]["labels"][CAPACITY_TYPE] for node in nodes} == {"spot"}
    assert_kube_scheduler_bound(system)
    assert_nodes_hold_what_they_say(system)
    launched = system.launched_at()
    waited = running(seen)
    to_fleet = [(launched[one.node] - one.pending_at).total_seconds() for one in waited]
    to_ready = [(one.running_at - one.pending_at).total_seconds() for one in waited if one.running_at]
    p50 = median(to_fleet)
    figures("pending-to-fleet-p50-s", round(p50, 3))
    figures("pending-to-ready-p50-s", round(median(to_ready), 1))
    figures("control-plane-start-s", round(system.plane.started_in_seconds, 2))
    assert p50 <= LONGEST_TO_FLEET_SECONDS
    assert system.plane.started_in_seconds <= LONGEST_START_SECONDS


def launched_for(system: System) -> int:
    """Return the number of pods for which nodes are launched."""
    return sum(len(claim.nominated) for claim in system.ledger().claims if claim.launched_at)


def running(seen: Mapping[str, Waited]) -> list[Waited]:
    """Return the user's pods that were seen running."""
    return [one for key, one in sorted(seen.items()) if key.startswith("default/") and one.running_at]


def assert_kube_scheduler_bound(system: System) -> None:
    """Assert that kube-scheduler bound every pod: its Events say so, and nodesmith has no permission to bind."""
    system.until("every pod has its Event", lambda: pods_without_event(system) == set())
    by = {e.get("reportingComponent") or e["source"]["component"] for e in system.events("Scheduled")}
    assert by == {"default-scheduler"}
    for user in (f"nodesmith:writer:{CLUSTER}", f"nodesmith:reader:{CLUSTER}"):
        asked = ("auth", "can-i", "create", "pods/binding", "--as", user)
        assert system.plane.kubectl(*asked).stdout.strip() == "no"


def pods_without_event(system: System) -> set[str]:
    """Return the pods of which no Event says yet that they were scheduled. kube-scheduler writes Events later."""
    scheduled = {event["involvedObject"]["name"] for event in system.events("Scheduled")}
    return {pod["metadata"]["name"] for pod in system.pods()} - scheduled


def assert_nodes_hold_what_they_say(system: System) -> None:
    """Assert that no node is overcommitted, and that its labels match the instance that EC2 runs."""
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
