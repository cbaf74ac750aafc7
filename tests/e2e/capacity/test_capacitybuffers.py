"""A CapacityBuffer on the real control plane: a pod uses its room at once, the room comes back, and goes with it."""

from __future__ import annotations

import gzip
import json
from contextlib import ExitStack
from typing import Any

import pytest
import yaml

from nodesmith.decisions.provisioning.growth import History, history_item, step_of
from nodesmith.keys import growth_key
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.kubernetes.pods import is_planned
from nodesmith_local.runs.timeline import condition
from tests.contract.servers import until_served
from tests.e2e.conftest import Alone, Figures, Start
from tests.e2e.systems.system import CLUSTER, ROOT, Manifest, System
from tests.objects.capacitybuffers import TEMPLATE, capacitybuffer, warm_buffer
from tests.objects.manifests import deployment, nodeclass, nodepool, requirement
from tests.servers import rollouts

CRD = ROOT / "overlays" / "capacity-buffers" / "crd.yaml"
ONE_SIZE = requirement("node.kubernetes.io/instance-type", "c6a.large")  # 2 vCPUs: one pod of 1 each
MOST_USE_SECONDS, MOST_REFILL_SECONDS = 3.0, 5.0


def template() -> Manifest:
    made = deployment("user", 1)["spec"]["template"]
    about = {"name": "room", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": about, "template": made}


def install_crd(system: System) -> None:
    system.kubectl("create", "-f", str(CRD))
    until_served(system.plane)


def reason(system: System, kind: str = "Provisioning", name: str = "room") -> str:
    """Return the reason of a condition that a buffer shows."""
    shown = yaml.safe_load(system.kubectl("get", "capacitybuffer", name, "-o", "yaml"))
    return str(condition(shown, kind).get("reason", ""))


@pytest.mark.slow  # the life of a buffer without the measurement: tests/integration/capacity/test_capacitybuffers.py
def test_a_pod_uses_a_buffers_room_which_is_refilled_and_given_back(
    start: Start, figures: Figures, alone: Alone
) -> None:
    with ExitStack() as waiting:
        with alone():
            system = start()
            install_crd(system)
            system.apply(nodeclass(CLUSTER), nodepool(requirements=[ONE_SIZE]))
            system.until_nodepools_ready()
            system.apply(template(), capacitybuffer(**TEMPLATE, replicas=1))
            system.until("there is room", lambda: reason(system) == "FitsExistingCapacity", seconds=120)
            assert len(system.instances()) == 1
            seen = waiting.enter_context(system.watched_pods())
            system.apply(deployment("user", 1))
            system.until_running(1, "user", seconds=30)
            system.until("the room is bought again", lambda: len(system.ledger().claims) == 2, seconds=30)
        system.until("it was seen running", lambda: any(one.running_at for one in seen.values()))
        system.until("there is room again", lambda: reason(system) == "FitsExistingCapacity", seconds=120)

    (used,) = [one for key, one in seen.items() if key.startswith("default/user")]
    assert used.running_at is not None
    (user,) = system.pods(
        "user"
    )  # a watch that begins late sees all changes at once, so its first is no beginning
    created_at = parse_time(user["metadata"]["creationTimestamp"])  # up to a second early: whole seconds
    use = (used.running_at - min(used.pending_at, created_at)).total_seconds()
    refill = max(claim.created_at for claim in system.ledger().claims)
    refill_seconds = (refill - used.running_at).total_seconds()
    figures("buffer-use-s", round(use, 2))
    figures("buffer-refill-s", round(refill_seconds, 2))
    assert use <= MOST_USE_SECONDS
    assert refill_seconds <= MOST_REFILL_SECONDS
    nominated = {pod["status"].get("nominatedNodeName", "") for pod in system.pods()}
    assert not any(map(is_planned, nominated))

    system.kubectl("delete", "capacitybuffer", "room")
    system.kubectl("delete", "deployment", "user")
    system.until("the nodes are gone", lambda: not system.instances(), seconds=240)


def test_a_stopped_instance_starts_for_a_pod_and_another_one_is_prepared(
    start: Start, figures: Figures
) -> None:
    system = start(speed=5)
    install_crd(system)
    pool = nodepool(requirements=[ONE_SIZE])
    pool["spec"]["disruption"] = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s"}
    system.apply(nodeclass(CLUSTER), pool)  # no cheaper node takes the pod while it is watched
    system.until_nodepools_ready()
    warm = warm_buffer()
    system.apply(template(), warm)

    def states() -> list[str]:
        return sorted(each["State"]["Name"] for each in system.instances())

    system.until("an instance is kept", lambda: reason(system) == "WarmCapacityReady", seconds=180)
    (kept,) = system.instances()
    assert (states(), system.nodes()) == (["stopped"], [])
    with system.watched_pods() as seen:
        system.apply(deployment("user", 1))
        system.until_running(1, "user", seconds=90)
        (pod,) = system.pods("user")
        assert system.node_of(pod)["spec"]["providerID"].endswith(kept["InstanceId"])
        system.until("it was seen running", lambda: any(one.running_at for one in seen.values()))
    system.until("another one is kept", lambda: states() == ["running", "stopped"], seconds=180)
    system.until("the buffer shows it", lambda: reason(system) == "WarmCapacityReady", seconds=60)
    (pod,) = system.pods("user")  # the first one, or its successor: a taint manager that lags may evict a pod
    assert system.node_of(pod)["spec"]["providerID"].endswith(kept["InstanceId"]), "and it stays there"
    running = [(one.running_at, one.pending_at) for one in seen.values() if one.running_at]
    running_at, pending_at = min(running)
    figures("warm-use-s", round((running_at - pending_at).total_seconds(), 2))

    system.kubectl("delete", "capacitybuffer", "room")
    system.kubectl("delete", "deployment", "user")
    system.until("the instances are gone", lambda: not system.instances(), seconds=240)
    system.until("their objects are gone", lambda: not system.claims())


def test_a_buffer_for_a_share_of_a_deployment_follows_its_replicas(start: Start) -> None:
    system = start()
    install_crd(system)
    system.apply(nodeclass(CLUSTER), nodepool(requirements=[ONE_SIZE]))
    system.until_nodepools_ready()
    share: dict[str, Any] = {
        "scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"},
        "percentage": 50,
    }
    older = {**capacitybuffer(**share), "apiVersion": "autoscaling.x-k8s.io/v1alpha1"}
    system.apply(older)
    system.until(
        "it says that there is no such Deployment",
        lambda: reason(system, "ReadyForProvisioning") == "ScalableRefNotFound",
    )
    system.apply(deployment("web", 2))
    system.until_running(2, "web", seconds=120)
    system.until("there is room", lambda: reason(system) == "FitsExistingCapacity", seconds=120)
    assert len(system.nodes()) == 3
    system.kubectl("scale", "deployment", "web", "--replicas=4")
    system.until_running(4, "web", seconds=120)
    system.until("there is more room", lambda: len(system.nodes()) == 6, seconds=120)
    system.until("it is all there", lambda: reason(system) == "FitsExistingCapacity", seconds=60)


def test_a_buffer_for_a_share_of_a_custom_resource_follows_what_it_controls(start: Start) -> None:
    system = start()
    install_crd(system)
    system.apply(nodeclass(CLUSTER), nodepool(requirements=[ONE_SIZE]), rollouts.definition())
    system.until_nodepools_ready()
    until_served(system.plane)
    system.apply(capacitybuffer(scalableRef=rollouts.REFERENCE, percentage=50))
    system.until(
        "it says that nothing is controlled by such a Rollout",
        lambda: reason(system, "ReadyForProvisioning") == "ScalableRefNotFound",
    )
    system.apply(rollouts.rollout(deployment("web", 1)))

    def scaled(replicas: int) -> None:
        """Scale the Rollout, and do what its controller does."""
        system.kubectl("scale", "rollout", "web", f"--replicas={replicas}")
        there = yaml.safe_load(system.kubectl("get", "rollout", "web", "-o", "yaml"))
        system.apply(rollouts.replicaset(there))

    scaled(2)
    system.until_running(2, "web", seconds=120)
    system.until("there is room", lambda: reason(system) == "FitsExistingCapacity", seconds=120)
    assert len(system.nodes()) == 3
    scaled(4)
    system.until_running(4, "web", seconds=120)
    system.until("there is more room", lambda: len(system.nodes()) == 6, seconds=120)
    system.kubectl("delete", "rollout", "web")
    system.until(
        "its pods are gone",
        lambda: reason(system, "ReadyForProvisioning") == "ScalableRefNotFound",
        seconds=60,
    )


def test_a_buffer_is_sized_by_the_history_of_its_workload(start: Start) -> None:
    system = start()
    install_crd(system)
    system.apply(nodeclass(CLUSTER), nodepool(requirements=[ONE_SIZE]), deployment("web", 2))
    system.until_running(2, "web", seconds=120)
    grows = History(
        step_of(system.clock.now()) - 1, (2, 5) * 864
    )  # six days in which it grows by three all the time
    document = {"format": 1, "workloads": {"Deployment/default/web": history_item(grows)}}
    system.aws.client("s3").put_object(
        Bucket=system.deployed.outputs["BucketName"],
        Key=growth_key(CLUSTER),
        Body=gzip.compress(json.dumps(document).encode()),
    )
    asked = {"nodesmith.dev/buffer-quantile": "0.95"}
    workload = {"apiGroup": "apps", "kind": "Deployment", "name": "web"}
    system.apply(capacitybuffer(annotations=asked, scalableRef=workload, percentage=50))
    system.until("history sizes it", lambda: reason(system, "SizedFromHistory") == "Quantile", seconds=150)
    system.until("there is room for three", lambda: len(system.nodes()) == 5, seconds=120)
    system.until("it is all there", lambda: reason(system) == "FitsExistingCapacity", seconds=60)
    assert "0.95 quantile" in " ".join(system.nodesmith("status").stdout.split())
