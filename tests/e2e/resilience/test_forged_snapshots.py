"""A holder of the forwarder's identity can write snapshots, but forged user data, roles and limits launch nothing."""

from __future__ import annotations

import gzip
import json

import pytest

from nodesmith.adapters.aws.messaging import LambdaHints, LambdaInvocations
from nodesmith.adapters.kubernetes.apiserver import ApiServer, connect
from nodesmith.adapters.kubernetes.cluster import Observer
from nodesmith.keys import snapshot_key
from nodesmith.model.functions import Concern, Hint
from nodesmith.observation.encoding import encode
from tests.e2e.conftest import Start
from tests.e2e.systems.system import CLUSTER, System
from tests.objects.forgeries import HOSTILE, Document, Forgery, nodeclass_says, nodepool_says, with_nodeclaim
from tests.objects.manifests import deployment, nodeclass, nodepool

pytestmark = pytest.mark.slow
FORGERIES: tuple[Forgery, ...] = (
    nodeclass_says(userData=HOSTILE),
    nodeclass_says(role="administrators"),
    nodepool_says(limits={"cpu": "100000"}),
)


def honest(document: Document) -> None:
    """Leave a snapshot unchanged."""
    del document


def publish(system: System, forgery: Forgery) -> None:
    """Write a forged snapshot and wake the functions as the forwarder does."""
    cluster, outputs = system.cluster, system.deployed.outputs
    server = ApiServer(connect(cluster.url, cluster.ca_bundle, lambda: cluster.token))
    document = json.loads(gzip.decompress(encode(CLUSTER, system.clock.now(), Observer(server).observe())))
    forgery(document)
    data = gzip.compress(json.dumps(document).encode())
    system.aws.client("s3").put_object(Bucket=outputs["BucketName"], Key=snapshot_key(CLUSTER), Body=data)
    hints = LambdaHints(LambdaInvocations(system.aws.client))
    for concern in (Concern.READINESS, Concern.PROVISIONING):
        hints.send(concern, Hint(CLUSTER, "forged"))


def test_a_forged_snapshot_launches_nothing_and_a_genuine_one_does(start: Start) -> None:
    system = start()
    system.apply(nodeclass(CLUSTER), nodepool())
    system.until_nodepools_ready()
    system.until("readiness has read both", lambda: "NodePool/default" in system.ledger().contents)
    system.forwarder.stop()
    publish(system, with_nodeclaim)
    system.stays("nothing is launched", lambda: not system.instances(), seconds=6)

    system.apply(deployment("web", 3))
    system.until("the pods exist", lambda: len(system.pods("web")) == 3)
    for forgery in FORGERIES:
        publish(system, forgery)
        system.stays("nothing is launched", lambda: not system.instances(), seconds=6)

    def served() -> bool:
        publish(system, honest)
        return bool(system.instances())

    system.until("a genuine snapshot launches nodes", served)
    assert all(claim.nodepool == "default" for claim in system.ledger().claims)
