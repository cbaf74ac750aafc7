"""A cluster that is only observed, on a real API server: shadows live, and nothing is written to the cluster or EC2.

The functions are the deployed ones, with the reader's rights of the manifests that `connect --observe` applies. The
forwarder is away, so that observation reads the API server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.session import Session, get_session
from typer.testing import CliRunner

from nodesmith.adapters.kubernetes.apiserver import ApiServer, connect
from nodesmith.composition import parts, runtime
from nodesmith.errors import NodesmithError
from nodesmith.registration import Registration
from nodesmith_cli.connecting.manifests import Served, manifests
from nodesmith_cli.main import app
from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.aws import LocalAws
from nodesmith_local.aws.account import Endpoint
from nodesmith_local.backends.real import RealCluster
from nodesmith_local.controlplane import User
from nodesmith_local.functions.asynchronous import AsyncInvocations
from nodesmith_local.functions.deployment import TABLE_NAME, deploy, function_arn, register
from nodesmith_local.functions.loading import Function
from tests.e2e.incluster.site import kwok_node
from tests.objects.manifests import deployment, nodeclass, nodepool
from tests.patience import eventually

CLUSTER, REGION = "east", "us-east-1"
READER = f"nodesmith:reader:{CLUSTER}"
_KARPENTERS = {
    "karpenter.sh/nodepool": "default",
    "karpenter.k8s.aws/ec2nodeclass": "default",
    "karpenter.sh/initialized": "true",
    "karpenter.sh/capacity-type": "on-demand",
    "node.kubernetes.io/instance-type": "m5.xlarge",
    "topology.kubernetes.io/zone": "us-east-1a",
}
_RESOURCES = ("nodes", "pods", "nodepools", "nodeclaims", "ec2nodeclasses", "deployments", "events")
_READS = ("Get", "List", "Describe", "Query", "BatchGet", "Head")


def _who(token: str) -> User | None:
    """Let the token of any function be the reader's: no access entry names another one."""
    return User(READER) if token.startswith("k8s-aws-v1.") else None


@pytest.fixture
def cluster(folder: Path) -> Iterator[RealCluster]:
    with RealCluster(folder / "plane", authenticate=_who) as running:
        yield running


class Watched:
    """The deployment's functions for an observed cluster, with a clock that can be put forward."""

    def __init__(self, cluster: RealCluster, aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster, self.offset = cluster, timedelta()
        self.calls: list[tuple[str, str]] = []
        deployed = deploy(aws.client, REGION)
        self.bucket = deployed.bucket
        settings = {
            "CLUSTER_ENDPOINT": cluster.url,
            "CLUSTER_CA_BUNDLE": cluster.ca_bundle,
            "CLUSTER_SERVICE_CIDR": "10.100.0.0/16",
            "CLUSTER_VERSION": "1.34",
        }
        vpc = aws.networks[CLUSTER].vpc_id
        register(aws.client, Registration(CLUSTER, vpc, ("nodes",), settings=settings, observed=True))
        for name, value in {**aws.environment, **deployed.environment()}.items():
            monkeypatch.setenv(name, value)
        parts.set_clock(self.now)
        parts.set_session(self._session)
        self._observe, self._shadow = runtime.observation(), runtime.shadow()
        shadow = Function("shadow", lambda *_: None)
        aws.lambdas.know(AsyncInvocations(function_arn(REGION, "shadow"), shadow, LocalClock(1.0)))

    def now(self) -> datetime:
        return parts.system_time() + self.offset

    def _session(self, concern: object, cluster: str) -> Session:
        del concern, cluster
        session = get_session()
        session.register("before-call", self._note)
        return session

    def _note(self, **about: Any) -> None:
        model = about["model"]
        self.calls.append((model.service_model.service_name, model.name))

    def look(self, minutes: float = 2) -> None:
        """Let time pass, observe the cluster, and let its shadows look."""
        self.offset += timedelta(minutes=minutes)
        event = {"messages": [{"cluster": CLUSTER, "reason": "tick"}]}
        self._observe(event, None)
        self._shadow(event, None)

    def printed(self, output: str = "json") -> str:
        """Return what `nodesmith shadow` prints."""
        ran = CliRunner().invoke(
            app, ["shadow", CLUSTER, "--bucket", self.bucket, "--region", REGION, "-o", output]
        )
        assert ran.exit_code == 0, ran.output
        return ran.output


@pytest.fixture
def watched(cluster: RealCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    endpoint = Endpoint(cluster.url, cluster.ca_bundle)
    with LocalAws(REGION, cluster=CLUSTER, endpoint=endpoint) as aws:
        yield Watched(cluster, aws, monkeypatch)
    parts.set_clock(parts.system_time)
    parts.set_session(parts.own_session)


def _prepare(cluster: RealCluster, folder: Path) -> None:
    """Apply what `connect --observe` applies, except the forwarder, and what Karpenter would have made."""
    served = Served(CLUSTER, REGION, "bucket", TABLE_NAME, "", "image", is_observed=True)
    rights = [each for each in manifests(served) if each["kind"].startswith("ClusterRole")]
    nodes = []
    for number in range(3):
        node = kwok_node(f"karpenters-{number}")
        node["metadata"]["labels"] |= _KARPENTERS
        node["spec"] = {"providerID": f"aws:///us-east-1a/i-{number:017x}"}
        nodes.append(node)
    made = [*rights, nodepool(), nodeclass(CLUSTER), *nodes, deployment("web", 6, cpu="500m")]
    path = folder / "objects.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": made}))
    cluster.plane.kubectl("apply", "--server-side", "-f", str(path))


def _state(cluster: RealCluster) -> dict[str, str]:
    """Return the version of every object that functions might write."""
    found: dict[str, str] = {}
    for resource in _RESOURCES:
        listed = json.loads(cluster.plane.kubectl("get", resource, "-A", "-o", "json").stdout)
        found |= {
            f"{resource}/{each['metadata']['name']}": json.dumps(each["metadata"].get("managedFields", ()))
            for each in listed["items"]
        }
    return found


def _running(cluster: RealCluster, number: int) -> bool:
    listed = json.loads(cluster.plane.kubectl("get", "pods", "-o", "json").stdout)["items"]
    return sum(bool(each["spec"].get("nodeName")) for each in listed) == number


def test_an_observed_cluster_is_watched_without_a_write_to_it_or_to_ec2(
    cluster: RealCluster, watched: Watched, tmp_path: Path
) -> None:
    _prepare(cluster, tmp_path)
    eventually(partial(_running, cluster, 6), "six pods are bound")
    before = _state(cluster)
    watched.look()
    for _ in range(3):
        watched.look()
    assert _written_by_functions(before, _state(cluster)) == []

    cluster.plane.kubectl("scale", "deployment", "web", "--replicas=30")
    eventually(lambda: not _running(cluster, 6), "pods come")
    watched.look()
    watched.look()
    cluster.plane.kubectl("scale", "deployment", "web", "--replicas=2")
    eventually(partial(_running, cluster, 2), "pods go")
    for _ in range(4):
        watched.look()

    report = json.loads(watched.printed())
    assert report["total"]["observedHours"] > 0.2
    assert report["total"]["actual"]["nodes"] == pytest.approx(3, abs=0.2)
    assert 0 < report["total"]["nodesmith"]["usd"] < report["total"]["actual"]["usd"]
    assert report["total"]["nodesmith"]["launches"] > 0
    assert "actual $" in watched.printed("table")
    assert watched.printed("html").startswith("<!doctype html>")

    services = {service for service, _ in watched.calls}
    assert services <= {"ssm", "s3", "dynamodb", "lambda", "sqs", "sts"}, "EC2 is not even asked"
    writes = {call for call in watched.calls if not call[1].startswith(_READS)}
    assert writes <= {("s3", "PutObject"), ("dynamodb", "PutItem"), ("lambda", "Invoke")}


def _written_by_functions(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return the objects that something but Kubernetes itself and this test has written."""
    assert before
    return [name for name, fields in after.items() if READER in fields or "nodesmith" in fields]


def test_the_reader_of_an_observed_cluster_can_write_nothing(cluster: RealCluster, tmp_path: Path) -> None:
    _prepare(cluster, tmp_path)
    reader = ApiServer(connect(cluster.url, cluster.ca_bundle, lambda: "k8s-aws-v1.reader"))
    assert reader.get("/api/v1/nodes/karpenters-0") is not None
    claim = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "n"}, "spec": {}}
    node = "/api/v1/nodes/karpenters-0"
    writes: tuple[Callable[[], object], ...] = (
        lambda: reader.patch(node, {"spec": {"unschedulable": True}}),
        lambda: reader.delete(node),
        lambda: reader.create("/apis/karpenter.sh/v1/nodeclaims", claim),
        lambda: reader.create("/api/v1/namespaces/default/events", {"metadata": {"name": "e"}}),
    )
    for write in writes:
        with pytest.raises(NodesmithError, match=r"forbidden|403"):
            write()
