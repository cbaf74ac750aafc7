"""Only what the forwarder needs around it: a control plane with a node, and the AWS resources that it uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nodesmith.adapters.kubernetes.apiserver import ApiServer, connect
from nodesmith.keys import snapshot_key
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.decoding import decode
from nodesmith.settings import WOKEN
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.aws import LocalAws
from nodesmith_local.aws.account import Endpoint
from nodesmith_local.aws.instances.nodes import conditions
from nodesmith_local.controlplane import ControlPlane, find_binaries
from nodesmith_local.functions.asynchronous import AsyncInvocations
from nodesmith_local.functions.deployment import TABLE_NAME, deploy, function_arn
from nodesmith_local.functions.loading import Function
from tests.e2e.incluster.forwarder import FORWARDER, InCluster
from tests.e2e.incluster.image import Image
from tests.patience import eventually

CLUSTER, REGION = "east", "us-east-1"


class Site:
    """A cluster with one node, `own`, and the resources that the forwarder's settings name."""

    def __init__(self, plane: ControlPlane, aws: LocalAws, clock: LocalClock) -> None:
        self.plane, self.clock = plane, clock
        self.server = ApiServer(connect(plane.url, plane.ca_bundle, lambda: plane.admin_token))
        self._environment = aws.environment
        self._s3, deployment = aws.client("s3"), deploy(aws.client, REGION)
        self._bucket = deployment.bucket
        for concern in WOKEN:
            arn = function_arn(REGION, concern)
            aws.lambdas.know(AsyncInvocations(arn, Function(concern, lambda *_: None), clock))
        self._values = {
            "CLUSTER_NAME": CLUSTER,
            "AWS_REGION": REGION,
            "BUCKET_NAME": deployment.bucket,
            "TABLE_NAME": TABLE_NAME,
        }
        self.server.create("/api/v1/nodes", kwok_node("own"))

    def forwarder(self, folder: Path, manifests: Path = FORWARDER, image: Image | None = None) -> InCluster:
        """Return the forwarder, not yet started; `folder` holds its files."""
        return InCluster(
            self.plane,
            folder / "forwarder",
            environment=self._environment,
            values=self._values,
            clock=self.clock,
            manifests=manifests,
            image=image,
        )

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot."""
        found = self._s3.get_object(Bucket=self._bucket, Key=snapshot_key(CLUSTER))
        return decode(found["Body"].read())

    def seen(self) -> dict[str, bool]:
        """Return the pods of the namespace default in the newest snapshot, and whether each is unschedulable."""
        pods = self.snapshot().pods
        return {p.key: p.unschedulable for p in pods if p.key.startswith("default/")}

    def create_impossible_pod(self, name: str) -> None:
        """Create a pod that fits on no node."""
        container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1k"}}}
        pod = {"metadata": {"name": name}, "spec": {"containers": [container]}}
        self.server.create("/api/v1/namespaces/default/pods", {"apiVersion": "v1", "kind": "Pod", **pod})

    def refusals(self) -> int:
        """Return how many requests, from any user, the API server has refused as forbidden since it started."""
        lines = self.plane.kubectl("get", "--raw", "/metrics").stdout.splitlines()
        counts = [line.split()[-1] for line in lines if line.startswith('apiserver_request_total{code="403"')]
        return sum(round(float(count)) for count in counts)


def kwok_node(name: str, **size: str) -> dict[str, Any]:
    """Return a node whose kubelet is kwok's."""
    offered = {"cpu": "4", "memory": "16Gi", "pods": "110", **size}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels, "kwok.x-k8s.io/node": "fake"}},
        "status": {
            "capacity": offered,
            "allocatable": offered,
            "conditions": conditions(True, datetime.now(UTC)),
        },
    }


@contextmanager
def site(folder: Path, speed: float = 1.0, data: Path | None = None) -> Iterator[Site]:
    """Start everything in a folder, with the forwarder's clock `speed` times as fast as real time.

    `data` is etcd's initial data; it is modified.
    """
    with ControlPlane(find_binaries(), folder / "plane", data=data) as plane:
        endpoint = Endpoint(plane.url, plane.ca_bundle)
        with LocalAws(REGION, cluster=CLUSTER, endpoint=endpoint) as aws:
            yield Site(plane, aws, LocalClock(speed))


def until(what: str, holds: Callable[[], bool], forwarder: InCluster, seconds: float = 40.0) -> None:
    """Wait until something holds; on failure, report the errors of the forwarder and its kubelet."""
    eventually(holds, what, seconds, lambda: f"{forwarder.faults}\n{forwarder.log.read_text()}")
