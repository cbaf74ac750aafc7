"""A cluster with everything around it, as a user has it. All parts of nodesmith are real; only AWS is simulated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from nodesmith.adapters.dynamodb.ledger import DynamoStore
from nodesmith.adapters.s3 import S3Blobs
from nodesmith.controllers.observation import newest_snapshot
from nodesmith.model.apimachinery.labels import INITIALIZED, NODEPOOL
from nodesmith.model.ec2.launches import LaunchRequest, OfferingKey
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.ownership import CLUSTER_TAG
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.ledger import Ledger
from nodesmith_formats.decisions.records import Bucket, Records
from nodesmith_formats.kubernetes.objects import pod_key
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.apiserver.storage.store import Write
from nodesmith_local.aws import LocalAws
from nodesmith_local.aws.instances.machines import MotoMachines
from nodesmith_local.aws.instances.stages import Delays
from nodesmith_local.backends.embedded import EmbeddedCluster
from nodesmith_local.backends.real import RealCluster
from nodesmith_local.composite import Started
from nodesmith_local.controlplane import ControlPlane, User
from nodesmith_local.runs.decisions import reasons_of
from nodesmith_local.runs.quiet import undecided_nodepools
from nodesmith_local.runs.servedcluster import forwarder_here
from nodesmith_local.runs.timeline import condition
from tests.e2e.deployed import Deployed, Faults
from tests.e2e.incluster import InCluster
from tests.e2e.incluster.site import kwok_node
from tests.e2e.systems.region import REGION, start_region
from tests.patience import eventually, patient

ROOT = Path(__file__).resolve().parents[3]
CLUSTER = "nodesmith-local"  # the name used in examples/
QUICK = Delays(running=1.0, registered=1.5, initialized=0.3, ready=0.7)
"""Clock seconds from one stage to the next, ±15 % per node: 3.5 s from CreateFleet to Ready."""
HURRIED = 10.0
"""A speed at which leases, back-offs and ticks of one to a few minutes pass in seconds."""
_GLANCE_SECONDS = 0.1
_ENDED = {"shutting-down", "terminated"}
Manifest = Mapping[str, Any]


@dataclass(slots=True)
class Waited:
    """How long a pod waited, in clock time."""

    pending_at: datetime
    running_at: datetime | None = None
    node: str = ""


class ClusterSide:
    """A cluster on the real control plane (or the embedded one), with its forwarder and its kubelets.

    AWS and the functions belong to the region: `start_region` starts them for all clusters together. `own_node` is a
    node of a managed node group for the forwarder to run on. Without it the cluster has no node at all.
    """

    def __init__(
        self,
        folder: Path,
        clock: LocalClock,
        *,
        name: str = CLUSTER,
        real: bool = True,
        delays: Delays = QUICK,
        own_node: bool = True,
        ip_family: str = "ipv4",
        pod_groups: bool = False,
    ) -> None:
        self.folder, self.clock, self.name, self.real = folder, clock, name, real
        self._delays, self._own_node, self.ip_family = delays, own_node, ip_family
        self._pod_groups = pod_groups
        self.cluster: RealCluster | EmbeddedCluster
        self.aws: LocalAws
        self.deployed: Deployed
        self.forwarder: InCluster

    def start_control_plane(self, stack: ExitStack) -> None:
        """Start the control plane, which admits functions by access entries and all others by Kubernetes' own means."""
        if self.real:
            self.cluster = RealCluster(
                self.folder / "controlplane",
                authenticate=self._who,
                ip_family=self.ip_family,
                pod_groups=self._pod_groups,
            )
        else:
            self.cluster = EmbeddedCluster(self.clock)
        stack.enter_context(self.cluster)

    def start_rest(
        self, stack: ExitStack, aws: LocalAws, deployed: Deployed, stopping: threading.Event
    ) -> None:
        """Start the parts that need AWS and the deployment."""
        self.aws, self.deployed = aws, deployed
        kubelets = aws.kubelets(self.cluster.objects, self._delays, kwok=self.cluster.kwok, cluster=self.name)
        self._thread(stack, "kubelets", lambda: kubelets.run(self.clock, stopping))
        if self._own_node:
            self.cluster.objects.create("nodes", managed_node())
        self._start_forwarder(stack, stopping)

    def _who(self, token: str) -> User | None:
        found = self.deployed.authenticate(token, self.name) if hasattr(self, "deployed") else None
        return User(*found) if found else None

    def _start_forwarder(self, stack: ExitStack, stopping: threading.Event) -> None:
        """Apply and follow the forwarder's Deployment on the real control plane; else run it in a thread."""
        if isinstance(self.cluster, RealCluster):
            self.forwarder = InCluster(
                self.cluster.plane,
                self.folder / "forwarder",
                environment=self.deployed.forwarder_environment(self.name),
                values=self._forwarder_values(),
                clock=self.clock,
            )
            stack.enter_context(self.forwarder)
            self.forwarder.start()
            return
        bucket = self.deployed.outputs["BucketName"]
        thread = forwarder_here(self.name, self.cluster, self.aws.client, bucket, self.clock)
        self._thread(stack, "forwarder", lambda: thread.run(stopping))

    def _forwarder_values(self) -> Mapping[str, str]:
        """Return the values that operations.md tells users to put into forwarder.env: the stack's outputs."""
        bucket, table = (self.deployed.outputs[name] for name in ("BucketName", "TableName"))
        return {"CLUSTER_NAME": self.name, "AWS_REGION": REGION, "BUCKET_NAME": bucket, "TABLE_NAME": table}

    def _thread(self, stack: ExitStack, name: str, job: Callable[[], None]) -> None:
        thread = threading.Thread(target=job, name=name, daemon=True)
        thread.start()
        stack.callback(thread.join, 10)

    @property
    def plane(self) -> ControlPlane:
        """Return the real control plane."""
        assert isinstance(self.cluster, RealCluster)
        return self.cluster.plane

    # What a user does

    def apply(self, *manifests: Manifest) -> None:
        """Apply manifests: with kubectl on the real control plane, one by one on the embedded one."""
        if isinstance(self.cluster, RealCluster):
            everything = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
            self.kubectl("apply", "-f", "-", stdin=json.dumps(everything))
            return
        for manifest in manifests:
            objects = self.cluster.objects
            objects.apply(objects.registry.of(manifest).name, manifest, write=Write("user", force=True))

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run the real kubectl, which must succeed, and return its output."""
        done = self.plane.kubectl(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def nodesmith(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the nodesmith command against the deployment's bucket."""
        where = ("--cluster", self.name, "--bucket", self.deployed.outputs["BucketName"], "--region", REGION)
        return nodesmith(self.aws, *arguments, *where)

    # What there is

    def pods(self, app: str = "") -> list[Manifest]:
        """Return an app's pods, or all pods in the namespace default."""
        return list(self.cluster.objects.list("pods", "default", labels=_of(app)))

    def nodes(self) -> list[Manifest]:
        """Return the nodes that nodesmith created."""
        return [n for n in self.cluster.objects.list("nodes") if NODEPOOL in n["metadata"].get("labels", {})]

    def claims(self) -> list[Manifest]:
        """Return the NodeClaims."""
        return list(self.cluster.objects.list("nodeclaims"))

    def instances(self) -> list[Mapping[str, Any]]:
        """Return the EC2 instances that have not ended; with several clusters, only this cluster's."""
        whose = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [self.name]}] if len(self.aws.networks) > 1 else []
        pages = self.aws.client("ec2").get_paginator("describe_instances").paginate(Filters=whose)
        found = (i for page in pages for r in page["Reservations"] for i in r["Instances"])
        return [i for i in found if i["State"]["Name"] not in _ENDED]

    def node_of(self, pod: Manifest) -> Manifest:
        """Return the node that a pod is bound to."""
        name = pod["spec"]["nodeName"]
        return next(n for n in self.cluster.objects.list("nodes") if n["metadata"]["name"] == name)

    def labels_of_nodes(self, app: str, key: str) -> list[str]:
        """Return a label's value on the node of each of an app's pods, empty while a pod has no node."""
        labels = {n["metadata"]["name"]: n["metadata"]["labels"] for n in self.cluster.objects.list("nodes")}
        return [str(labels.get(pod["spec"].get("nodeName"), {}).get(key, "")) for pod in self.pods(app)]

    def events(self, reason: str) -> list[Manifest]:
        """Return the Events with a reason."""
        return list(self.cluster.objects.list("events", fields=f"reason={reason}"))

    def ledger(self) -> Ledger:
        """Return the ledger: what nodesmith knows and the cluster does not."""
        return DynamoStore(self.aws.client("dynamodb"), "nodesmith", self.name, self.clock.now).load()

    def reported(self, *apps: str) -> list[Pod]:
        """Return these apps' pods, or those of all apps, in the newest snapshot: what nodesmith sees of them."""
        blobs = S3Blobs(self.aws.client("s3"), self.deployed.outputs["BucketName"])
        snapshot = newest_snapshot(blobs, self.name)
        beginnings = tuple(f"default/{app}-" for app in apps) or ("default/",)
        return [pod for pod in snapshot.pods if pod.key.startswith(beginnings)] if snapshot else []

    def records(self) -> Records:
        """Return the records of decisions."""
        return Records(Bucket(self.aws.client("s3"), self.deployed.outputs["BucketName"]), self.name)

    def decided(self, app: str) -> bool:
        """Return whether the newest decision mentions a pod of an app."""
        records = self.records()
        decisions = records.ids()
        names = {pod_key(pod) for pod in self.pods(app)}
        return bool(decisions) and bool(names & reasons_of(records.read(decisions[-1])).keys())

    def asked_for(self, claim: NodeClaim) -> tuple[OfferingKey, ...]:
        """Return the offerings that were requested from EC2 for a claim."""
        nodes = self.records().read(claim.decision)["plan"]["nodes"]
        (launch,) = (n["launch"] for n in nodes if n["claim"]["name"] == claim.name)
        return LaunchRequest.from_item(claim.name, launch).offerings()

    def launched_at(self) -> dict[str, datetime]:
        """Return when each instance was requested from EC2, by node name.

        EC2's own launch time has whole seconds only.
        """
        return {
            machine.private_dns_name: machine.launched_at
            for machine in MotoMachines(REGION, self._is_own).all()
        }

    def _is_own(self, cluster: str) -> bool:
        return len(self.aws.networks) == 1 or cluster == self.name

    # Waiting

    @contextmanager
    def watched_pods(self) -> Iterator[dict[str, Waited]]:
        """Record when each pod appeared and ran, and on which node, by pod key, for the duration of the block."""
        waited: dict[str, Waited] = {}

        def note(pod: Manifest, now: datetime, *, gone: bool) -> None:
            if gone:
                return
            one = waited.setdefault(pod_key(pod), Waited(now))
            if one.running_at is None and pod["status"].get("phase") == "Running":
                one.running_at, one.node = now, pod["spec"]["nodeName"]

        with self.followed("pods", note, from_now=True):
            yield waited

    @contextmanager
    def followed(
        self, resource: str, note: Callable[..., None], namespace: str = "", *, from_now: bool = False
    ) -> Iterator[None]:
        """Call `note` for each existing object (unless `from_now`) and for every change during the block."""
        watcher = self.cluster.objects.watch(resource, namespace)
        for there in () if from_now else self.cluster.objects.list(resource, namespace):
            note(there, self.clock.now(), gone=False)

        def follow() -> None:
            while (change := watcher.queue.get()) is not None:
                note(change.after.object, self.clock.now(), gone=change.verb == "DELETED")

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            watcher.close()
            thread.join(5)

    def until(self, what: str, holds: Callable[[], bool], seconds: float = 60) -> None:
        """Wait until a condition holds; on failure, report the system's state."""
        eventually(holds, what, seconds, self.state)

    def until_running(self, pods: int, app: str = "", seconds: float = 60) -> None:
        """Wait until exactly this many pods exist and all of them run."""

        def run() -> bool:
            if self.cluster.objects.list("pods", "default", labels=_of(app), fields="status.phase!=Running"):
                return False  # cheap: most polls end here without reading all pods
            there = self.pods(app)
            return len(there) == pods and all(pod["status"].get("phase") == "Running" for pod in there)

        self.until(f"{pods} pods of {app or 'all apps'} run, and there are no others", run, seconds)

    def until_reported(self, pods: int, *apps: str) -> None:
        """Wait until the forwarder has reported this many unschedulable pods of these apps, or of all apps.

        A NodePool that is applied afterwards gets nodes for all of them in one decision.
        """
        self.until(
            f"{pods} unschedulable pods are reported",
            lambda: sum(pod.unschedulable for pod in self.reported(*apps)) == pods,
        )

    def until_nodepools_ready(self, seconds: float = 30) -> None:
        """Wait until readiness has decided about every NodePool."""
        self.until(
            "readiness has decided about the NodePools",
            lambda: not undecided_nodepools(self.cluster.objects.list("nodepools")),
            seconds,
        )

    def until_settled(self, seconds: float = 60) -> None:
        """Wait until every NodeClaim has its own initialized node."""

        def settled() -> bool:
            # EC2 is asked last because it takes longest.
            return not any(self._uninitialized()) and not self.violations()

        self.until("every NodeClaim is initialized", settled, seconds)

    def stays(self, what: str, holds: Callable[[], bool], seconds: float) -> None:
        """Check that a condition holds continuously for this many seconds of real time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert holds(), f"no longer holds: {what}\n{self.state()}"
            time.sleep(_GLANCE_SECONDS)

    # What must always hold once things have calmed down

    def violations(self) -> list[str]:
        """Return what is leaked, duplicated or incomplete: each claim needs one instance and one initialized node."""
        claims = {c["metadata"]["name"]: c.get("status", {}).get("providerID", "") for c in self.claims()}
        nodes = {n["metadata"]["name"]: n["spec"].get("providerID", "") for n in self.nodes()}
        machines = [
            f"aws:///{i['Placement']['AvailabilityZone']}/{i['InstanceId']}" for i in self.instances()
        ]
        found = [f"{name} is not initialized" for name in self._uninitialized()]
        for what, ids in (("claims", list(claims.values())), ("nodes", list(nodes.values()))):
            found += [f"{what} share {id_!r}" for id_, count in Counter(ids).items() if count > 1]
            found += [f"instance {id_} has none of the {what}" for id_ in set(machines) - set(ids)]
            found += [f"one of the {what} has no instance: {id_!r}" for id_ in set(ids) - set(machines)]
        return found

    def _uninitialized(self) -> Iterator[str]:
        for claim in self.claims():
            if condition(claim, "Initialized").get("status") != "True":
                yield claim["metadata"]["name"]
        for node in self.nodes():
            if node["metadata"]["labels"].get(INITIALIZED) != "true":
                yield node["metadata"]["name"]

    def state(self) -> str:
        """Describe the state that a person would look at first."""
        waiting = [pod_key(p) for p in self.pods() if p["status"].get("phase") != "Running"]
        failures = [
            f"{c}: {s.failures} of {s.invocations} failed, {s.last_error}"
            for c, s in self.deployed.feeds.items()
        ]
        pools = [
            f"{p['metadata']['name']}: {condition(p, 'Ready')}"
            for p in self.cluster.objects.list("nodepools")
        ]
        return "\n".join(
            [
                f"{len(waiting)} pods not running: {waiting[:5]}",
                f"{len(self.claims())} claims, {len(self.nodes())} nodes, {len(self.instances())} instances",
                *self.violations()[:10],
                *pools,
                *failures,
                f"logs in {self.folder}",
            ]
        )


class System(ClusterSide, Started):
    """One cluster with its AWS account, functions and forwarder. A context manager.

    `speed` accelerates everything except the control plane. `options` are the region's options in cdk.json. The clock
    begins at `begins`, by default now.
    """

    def __init__(
        self,
        folder: Path,
        *,
        speed: float = 1.0,
        begins: datetime | None = None,
        faults: Faults = Faults(),  # noqa: B008 frozen
        no_capacity: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        **how: Any,
    ) -> None:
        super().__init__(folder, LocalClock(speed, start=begins), **how)
        self._faults, self._no_capacity, self._options = faults, no_capacity, options

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ungranted, undelivered = self.deployed.ungranted(), self.deployed.undelivered
        super().__exit__(kind, error, trace)
        assert error is not None or not ungranted, f"called without a grant: {ungranted}"
        assert error is not None or not undelivered, undelivered

    def _start(self, stack: ExitStack) -> None:
        about = self._faults, self._no_capacity, self._options
        start_region(stack, self.folder, self.clock, [self], *about)


def nodesmith(aws: LocalAws, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the nodesmith command against this AWS account."""
    command = [sys.executable, "-m", "nodesmith_cli.main", *arguments]
    paths = os.pathsep.join(
        str(ROOT / path) for path in ("layers/core/python", "cli", "formats", "forwarder", "local")
    )
    environment = {**os.environ, **aws.environment, "PYTHONPATH": paths}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=patient(60), check=False
    )


def _of(app: str) -> str:
    return f"app={app}" if app else ""


def managed_node() -> Manifest:
    """Return a node of a managed node group, which nodesmith did not create and must never touch."""
    node = kwok_node("managed-1", cpu="2", memory="4Gi", pods="29", **{"ephemeral-storage": "20Gi"})
    node["metadata"]["labels"] |= {
        "eks.amazonaws.com/nodegroup": "system",
        "node.kubernetes.io/instance-type": "t3.medium",
        "topology.kubernetes.io/region": REGION,
        "topology.kubernetes.io/zone": f"{REGION}a",
    }
    node["spec"] = {
        "providerID": f"aws:///{REGION}a/i-0123456789abcdef0",
        "taints": [{"key": "CriticalAddonsOnly", "value": "true", "effect": "NoSchedule"}],
    }
    return node
