"""The forwarder as deployed: its image's process, with what its service account may do on a real API server."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodesmith.adapters.apiserver import ApiServer, connect
from nodesmith.model.snapshot import Snapshot
from nodesmith.observation.wire import decode
from nodesmith.settings import snapshot_key
from nodesmith_cli.local.clock import LocalClock
from nodesmith_cli.local.cloud import LocalAws
from nodesmith_cli.local.cloud.account import Endpoint
from nodesmith_cli.local.controlplane import ControlPlane, find_binaries
from tests.e2e.incluster import InCluster
from tests.e2e.incluster.forwarder import FORWARDER

CLUSTER = "east"
REGION = "us-east-1"
PATIENCE_SECONDS = 40.0
MINUTE_SECONDS = 60.0


class Site:
    """A control plane with a node for the forwarder to run on, and a bucket and queues for it to write to."""

    def __init__(self, plane: ControlPlane, aws: LocalAws, folder: Path, clock: LocalClock) -> None:
        self.plane, self.folder, self.clock = plane, folder, clock
        self.server = ApiServer(connect(plane.url, plane.ca_bundle, lambda: plane.admin_token))
        self._environment = aws.environment
        self._s3, sqs = aws.client("s3"), aws.client("sqs")
        self._s3.create_bucket(Bucket="snapshots")
        names = ("provisioning", "lifecycle", "readiness")
        urls = {f"{name.upper()}_QUEUE_URL": sqs.create_queue(QueueName=name)["QueueUrl"] for name in names}
        self.values = {"CLUSTER_NAME": CLUSTER, "AWS_REGION": REGION, "BUCKET_NAME": "snapshots", **urls}

    def forwarder(self, manifests: Path = FORWARDER) -> InCluster:
        """Give the forwarder, not yet started."""
        return InCluster(
            self.plane,
            self.folder / "forwarder",
            environment=self._environment,
            values=self.values,
            clock=self.clock,
            manifests=manifests,
        )

    def snapshot(self) -> Snapshot:
        """Give the newest snapshot."""
        found = self._s3.get_object(Bucket="snapshots", Key=snapshot_key(CLUSTER))
        return decode(found["Body"].read())

    def create_node(self, name: str) -> None:
        """Make a node whose kubelet is kwok's."""
        self.server.create("/api/v1/nodes", kwok_node(name))

    def create_pod(self, name: str) -> None:
        """Make a pod that no node can take."""
        self.server.create("/api/v1/namespaces/default/pods", pod(name))

    def pods_seen(self) -> set[str]:
        """Give the names of the pods in the newest snapshot that are in the namespace default."""
        keys = (pod.key.partition("/") for pod in self.snapshot().pods)
        return {name for namespace, _, name in keys if namespace == "default"}

    def refusals(self) -> int:
        """Say how many requests of anybody the API server has refused since it was started, for want of a right."""
        lines = self.plane.kubectl("get", "--raw", "/metrics").stdout.splitlines()
        refused = (line for line in lines if line.startswith('apiserver_request_total{code="403"'))
        return sum(round(float(line.split()[-1])) for line in refused)


def kwok_node(name: str) -> dict[str, Any]:
    size = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": labels},
        "status": {"capacity": size, "allocatable": size},
    }


def pod(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1k"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container]},
    }


def until(what: str, holds: Callable[[], bool], forwarder: InCluster) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"not in time: {what}; {forwarder.faults}\n{forwarder.log.read_text()}")
        time.sleep(0.1)


def messages(forwarder: InCluster) -> list[str]:
    return [json.loads(line)["message"] for line in forwarder.log.read_text().splitlines()]


@pytest.fixture
def begin(folder: Path) -> Iterator[Callable[..., Site]]:
    with ExitStack() as stack:

        def begin(speed: float = 1.0) -> Site:
            plane = stack.enter_context(ControlPlane(find_binaries(), folder / "plane"))
            endpoint = Endpoint(plane.url, plane.ca_bundle)
            aws = stack.enter_context(LocalAws(REGION, cluster=CLUSTER, endpoint=endpoint))
            site = Site(plane, aws, folder, LocalClock(speed))
            site.create_node("own")
            return site

        yield begin


def test_the_shipped_manifests_give_the_forwarder_all_the_rights_it_uses(begin: Callable[..., Site]) -> None:
    site = begin()
    with site.forwarder() as forwarder:
        site.create_pod("waiting")
        forwarder.start()
        until("the forwarder is ready", lambda: forwarder.ready, forwarder)
        until(
            "the pending pod is told",
            lambda: "told provisioning: pods pending: 1" in messages(forwarder),
            forwarder,
        )
        snapshot, refused = site.snapshot(), site.refusals()
        first = forwarder.process_id
        site.plane.kubectl("-n", "nodesmith", "delete", "pod", "--all", "--wait=false")
        until("another pod's process runs", lambda: forwarder.process_id not in (None, first), forwarder)
        until("it is ready", lambda: forwarder.ready, forwarder)
    assert [node.name for node in snapshot.nodes] == ["own"]
    assert {p.key: p.unschedulable for p in snapshot.pods if p.key.startswith("default/")} == {
        "default/waiting": True
    }
    assert not snapshot.problems
    assert refused == 0
    assert not [text for text in messages(forwarder) if "403" in text]
    assert messages(forwarder).count("stopped") == 2
    assert forwarder.restarts == 0


def test_a_missing_right_keeps_the_forwarder_from_getting_ready_and_is_named(
    begin: Callable[..., Site],
) -> None:
    site = begin()
    manifests = site.folder / "forwarder-without-daemonsets"
    shutil.copytree(FORWARDER, manifests)
    reader = manifests / "base" / "reader.yaml"
    role, binding = yaml.safe_load_all(reader.read_text())
    role["rules"] = [rule for rule in role["rules"] if "daemonsets" not in rule["resources"]]
    reader.write_text(yaml.safe_dump_all([role, binding]))
    with site.forwarder(manifests) as forwarder:
        forwarder.start()
        until("the refusal is logged", lambda: any("403" in text for text in messages(forwarder)), forwarder)
        time.sleep(2.0)
        assert forwarder.running
        assert not forwarder.ready
    refused = [text for text in messages(forwarder) if "403" in text]
    assert {text.partition(":")[0] for text in refused} == {"DaemonSet"}
    assert (
        'User "system:serviceaccount:nodesmith:nodesmith-forwarder" cannot list resource "daemonsets"'
        in refused[0]
    )


def test_killed_for_a_minute_and_with_the_api_server_restarted_it_sees_everything_again(
    begin: Callable[..., Site],
) -> None:
    site = begin(speed=10)
    with site.forwarder() as forwarder:
        forwarder.start()
        until("the forwarder is ready", lambda: forwarder.ready, forwarder)
        forwarder.kill(for_seconds=MINUTE_SECONDS)
        killed_at = site.clock.now()
        assert not forwarder.running
        site.create_pod("while-it-was-dead")
        until("it runs again", lambda: forwarder.running, forwarder)
        assert (site.clock.now() - killed_at).total_seconds() >= MINUTE_SECONDS
        until("it sees what it missed", lambda: "while-it-was-dead" in site.pods_seen(), forwarder)
        again = forwarder.process_id
        site.plane.restart_api_server()
        site.create_pod("after-the-restart")
        until("its watches go on", lambda: "after-the-restart" in site.pods_seen(), forwarder)
        assert site.pods_seen() == {"while-it-was-dead", "after-the-restart"}
        assert [node.name for node in site.snapshot().nodes] == ["own"]
        until("it is ready", lambda: forwarder.ready, forwarder)
        assert forwarder.process_id == again
    assert forwarder.restarts == 1
    assert "CRITICAL" not in forwarder.log.read_text()
