"""Kueue's own controllers ask for room: gangs of a queue get all of their nodes or none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.decisions.provisioning.gangs import BOOKED_FOR
from nodesmith.model.kubernetes.provisioningrequests import CONSUMES
from nodesmith_formats.kubernetes.objects import is_true
from nodesmith_local.aws.instances.machines import MotoMachines
from tests.contract.servers import until_served
from tests.e2e import kueue
from tests.e2e.conftest import Figures, Start
from tests.e2e.systems.region import REGION
from tests.e2e.systems.system import CLUSTER, System
from tests.objects.manifests import nodeclass, nodepool, pod
from tests.scenarios.gangs import ATOMIC, CHECK, request_manifest, template_manifest

JOBS, PODS, NODES_FOR = 20, 3, 7
"""Jobs in the queue, pods of each, and how many Jobs EC2 has nodes for at a time. Each pod needs a node of its own."""
IN_STOCK = NODES_FOR * PODS + 1
API = "kueue.x-k8s.io/v1beta2"
_ALIVE = {"pending", "running"}
_RESOURCES = {"cpu": "1000", "memory": "1000Gi"}
Manifest = dict[str, Any]


def _made(kind: str, name: str, **spec: Any) -> Manifest:
    namespaced = {"namespace": "default"} if kind == "LocalQueue" else {}
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, **namespaced}, "spec": spec}


def queue(class_name: str, retries: int = 30) -> list[Manifest]:
    """Return a queue with room for all Jobs, whose admission needs the room of a ProvisioningRequest."""
    retry = {"backoffLimitCount": retries, "backoffBaseSeconds": 3, "backoffMaxSeconds": 6}
    quotas = [{"name": name, "nominalQuota": amount} for name, amount in _RESOURCES.items()]
    flavors = [{"name": "default", "resources": quotas}]
    return [
        _made("ResourceFlavor", "default"),
        _made("ProvisioningRequestConfig", "room", provisioningClassName=class_name, retryStrategy=retry),
        _made(
            "AdmissionCheck",
            "room",
            controllerName="kueue.x-k8s.io/provisioning-request",
            parameters={"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "room"},
        ),
        _made(
            "ClusterQueue",
            "batch",
            namespaceSelector={},
            queueingStrategy="BestEffortFIFO",
            resourceGroups=[{"coveredResources": list(_RESOURCES), "flavors": flavors}],
            admissionChecksStrategy={"admissionChecks": [{"name": "room"}]},
        ),
        _made("LocalQueue", "batch", clusterQueue="batch"),
    ]


def gang(name: str, pods: int = PODS, cpu: str = "3") -> Manifest:
    """Return a Job for the queue; Kueue starts it. All of its pods run at the same time, for some seconds."""
    container = {
        "name": "main",
        "image": "busybox",
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
    }
    annotations = {"local.nodesmith/run-seconds": "4"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"kueue.x-k8s.io/queue-name": "batch"},
        },
        "spec": {
            "suspend": True,
            "parallelism": pods,
            "completions": pods,
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": annotations},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 0,
                    "containers": [container],
                },
            },
        },
    }


def small() -> Manifest:
    """Return a NodePool whose nodes each hold one pod of a gang, and which removes empty nodes at once."""
    sizes = {"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["4"]}
    made = nodepool(requirements=[sizes])
    made["spec"]["disruption"] = {"consolidateAfter": "10s", "budgets": [{"nodes": "100%"}]}
    return made


def install_crds(system: System) -> None:
    """Install the CRDs of Kueue and of ProvisioningRequest, and wait until they are served."""
    crds = kueue.crds()
    for crd in crds:
        system.cluster.objects.create("customresourcedefinitions.apiextensions.k8s.io", crd)
    until_served(system.plane)


@contextmanager
def kueue_in(system: System, class_name: str) -> Iterator[None]:
    """Run Kueue in the cluster, with a queue."""
    install_crds(system)
    with kueue.running(system.plane.folder / "admin.kubeconfig", system.folder):
        system.apply(*queue(class_name))
        yield


def _alive() -> int:
    return sum(machine.state in _ALIVE for machine in MotoMachines(REGION).all())


def _limit_stock(system: System) -> None:
    system.aws.pools.in_stock = lambda: _alive() < IN_STOCK


def _finished(system: System) -> int:
    return sum(is_true(job, "Complete") for job in system.cluster.objects.list("jobs", "default"))


class Watched:
    """What pods and requests have shown: when each pod of a Job first ran, and which requests failed.

    `launched_at` returns when nodes were launched, by name.
    """

    def __init__(self, launched_at: Callable[[], Mapping[str, datetime]]) -> None:
        self._launched_at = launched_at
        self.running: dict[str, dict[str, datetime]] = defaultdict(dict)
        self.launched: dict[str, list[datetime]] = defaultdict(list)
        """When the nodes of each Job's pods were launched."""
        self.failed: set[str] = set()

    def pod(self, pod: Manifest, now: datetime, *, gone: bool) -> None:
        """Look at a pod."""
        job, name = pod["metadata"]["labels"].get("app", ""), pod["metadata"]["name"]
        if not gone and pod["status"].get("phase") == "Running" and name not in self.running[job]:
            self.running[job][name] = now
            self.launched[job].append(self._launched_at()[pod["spec"]["nodeName"]])

    def request(self, request: Manifest, now: datetime, *, gone: bool) -> None:  # noqa: ARG002
        """Look at a ProvisioningRequest."""
        if is_true(request, "Failed"):
            self.failed.add(request["metadata"]["name"])

    def partial(self) -> list[str]:
        """Return the Jobs of which a pod ran before EC2 had launched the nodes of all of them."""
        return [
            job
            for job, pods in self.running.items()
            if len(pods) < PODS or max(self.launched[job]) > min(pods.values())
        ]


@pytest.mark.slow
def test_gangs_of_a_queue_get_all_nodes_or_none_while_ec2_has_too_few(start: Start, figures: Figures) -> None:
    system, most = start(speed=10), 0
    seen = Watched(system.launched_at)
    _limit_stock(system)
    system.apply(nodeclass(CLUSTER), small())
    with (
        kueue_in(system, ATOMIC),
        system.followed("pods", seen.pod, "default"),
        system.followed("provisioningrequests", seen.request, "default"),
    ):
        system.apply(*(gang(f"gang-{number:02}") for number in range(JOBS)))

        def done() -> bool:
            nonlocal most
            most = max(most, len(system.instances()))
            return _finished(system) == JOBS

        system.until(f"all {JOBS} Jobs complete", done, 400)
        # A Job whose pods end before a decision has seen them keeps its room until the booking ends.
        left = (BOOKED_FOR + timedelta(minutes=2)).total_seconds()
        system.until("no node is left over", lambda: not (system.instances() or system.nodes()), left)
        system.until("no NodeClaim is left over", lambda: not system.ledger().claims)
    figures("gang-partials", len(seen.partial()))
    figures("gang-most-instances", most)
    figures("gang-requests-failed", len(seen.failed))
    assert (seen.partial(), len(seen.running)) == ([], JOBS)
    assert seen.failed, "EC2 had too few nodes for all"
    assert most <= IN_STOCK


def asked(name: str, pods: int, class_name: str) -> Manifest:
    """Return a request as a user applies it."""
    made = request_manifest(name, pods, class_name=class_name)
    return {**made, "metadata": {"name": name, "namespace": "default"}}


def shown(system: System, name: str) -> Mapping[str, tuple[str, str]]:
    """Return status and reason of a request's conditions, by type."""
    request = system.cluster.objects.get("provisioningrequests", name, "default")
    conditions = request.get("status", {}).get("conditions", ())
    return {each["type"]: (each["status"], each["reason"]) for each in conditions}


@pytest.mark.slow
def test_pods_take_the_room_of_their_request_until_its_booking_expires(start: Start) -> None:
    system = start(speed=10)
    system.apply(nodeclass(CLUSTER), small())
    install_crds(system)
    system.apply(template_manifest("own-0", "3"), asked("own", PODS, ATOMIC))
    room = ("True", "CapacityIsProvisioned")
    system.until("the request is provisioned", lambda: shown(system, "own").get("Provisioned") == room)
    assert shown(system, "own")["Accepted"] == ("True", "Accepted")
    assert len(system.nodes()) == PODS

    pods = [pod(f"own-{number}", "3") for number in range(PODS)]
    for each in pods:
        each["metadata"]["annotations"] = {CONSUMES: "own"}
    system.apply(*pods)
    system.until_running(PODS)
    system.apply(template_manifest("more-0", "3"), asked("more", 1, CHECK))
    none = ("False", "CapacityIsNotFound")
    system.until("a check finds no room", lambda: shown(system, "more").get("Provisioned") == none)
    over = ("True", "CapacityReservationTimeExpired")
    system.until("the booking expires", lambda: shown(system, "own").get("BookingExpired") == over, 120)
    assert len(system.instances()) == PODS, "nothing was bought for the pods or for the check"
    system.until(
        "the gang is forgotten", lambda: [g.request for g in system.ledger().gangs] == ["default/more"]
    )
