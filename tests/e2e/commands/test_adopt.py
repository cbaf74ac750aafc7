"""From Karpenter and back on the real control plane, with the commands of docs/adopt.md.

NodeClaims, Nodes and instances are as Karpenter's AWS provider writes them, on nodesmith's CRDs. Its controller is a
Deployment, and a thread that renews its lease while the Deployment has replicas.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.controllers.observation import newest_snapshot
from nodesmith.decisions.disruption.drift import drifting
from nodesmith.decisions.takeover import STANDBY
from nodesmith.model.apimachinery import labels
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.hashes import (
    NODECLASS_HASH,
    NODECLASS_HASH_VERSION,
    NODEPOOL_HASH,
    NODEPOOL_HASH_VERSION,
)
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.karpenter.ownership import MANAGED_BY_TAG, is_karpenters
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from nodesmith_formats.decisions.records import Bucket
from nodesmith_formats.kubernetes.objects import micro_timestamp
from tests.e2e.commands.pages import commands, text, typed_from
from tests.e2e.conftest import Start
from tests.e2e.incluster.site import kwok_node
from tests.e2e.systems.region import REGION
from tests.e2e.systems.system import CLUSTER, HURRIED, System
from tests.objects.foreign import karpenters_deployment
from tests.objects.manifests import deployment, nodeclass, nodepool, owned_by, requirement

pytestmark = pytest.mark.slow  # tests/integration/resilience/test_takeovers.py covers the steps, with crashes

TYPE = "c6a.large"
REQUIREMENTS = [
    requirement("node.kubernetes.io/instance-type", TYPE),
    requirement("karpenter.sh/capacity-type", "on-demand"),
]
LEASE = "karpenter-leader-election"
OF_CLAIM = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim"}
STAGES = ("Launched", "Registered", "Initialized", "ConsistentStateFound", "Ready")


def test_karpenters_nodes_are_adopted_consolidated_and_released_without_a_single_eviction_by_the_commands(
    start: Start, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    system = start(speed=HURRIED)
    with karpenter(system):
        system.apply(
            nodeclass(CLUSTER), nodepool(requirements=REQUIREMENTS), deployment("web", 3, cpu="1200m")
        )
        system.until("nodesmith stands by, and says so", lambda: standing_by(system) == "True")
        system.until(
            "readiness has resolved the EC2NodeClass", lambda: "default" in system.ledger().nodeclasses
        )
        system.stays("nodesmith buys nothing beside Karpenter", lambda: system.instances() == [], seconds=5)
        for number in range(3):
            launch(system, f"default-{number}")
        system.until_running(3)
        before, pods = uids(system), pod_uids(system)
        broken(system)
        command = commands(system, monkeypatch, folder)
        typed = typed_from("adopt.md")

        planned = command(*typed("nodesmith", "adopt", "web", "--dry-run"), expected=1)
        assert planned["state"] == "hindered"
        assert states(planned, "adopt") == {f"NodeClaim/default-{n}" for n in range(3)}
        done = command(*typed("nodesmith", "adopt", "web", "--scale-down-karpenter"), "--yes")

    assert states(done, "adopted") == {f"NodeClaim/default-{n}" for n in range(3)}
    assert states(done, "skipped") == {"NodeClaim/without-instance"}
    assert {claim.name for claim in system.ledger().claims} == {f"default-{n}" for n in range(3)}
    system.until("nodesmith serves the cluster", lambda: standing_by(system) == "False")
    assert drift(system) == {}
    system.stays("no pod is evicted", lambda: pod_uids(system) == pods, seconds=10)
    assert uids(system) == before

    system.kubectl("scale", "deployment", "web", "--replicas=2")
    system.until("one pod is gone", lambda: len(system.pods("web")) == 2)
    text(typed("nodesmith", "resume", "--cluster", "web"))
    system.until("consolidation has removed the empty node", lambda: len(system.instances()) == 2, 120)
    system.until("its NodeClaim is gone", lambda: len(system.ledger().claims) == 2)
    pods = pod_uids(system)

    command(*typed("nodesmith", "release", "web", "--dry-run"))
    given = command(*typed("nodesmith", "release", "web"), "--yes")
    assert len(states(given, "released")) == 2
    assert system.ledger().claims == ()
    assert all(is_karpenters(claim) for claim in system.claims())
    assert not [tag for each in system.instances() for tag in each["Tags"] if tag["Key"] == MANAGED_BY_TAG]
    with karpenter(system):
        system.stays("nothing changes under Karpenter", lambda: pod_uids(system) == pods, seconds=10)
        assert len(system.instances()) == 2


@contextmanager
def karpenter(system: System) -> Iterator[None]:
    """Run Karpenter's Deployment; a thread renews its lease for as long as the Deployment has replicas."""
    objects, over = system.cluster.objects, threading.Event()
    system.apply(karpenters_deployment())

    def renew() -> None:
        while not over.wait(0.2):
            found = objects.find("deployments", "karpenter", "kube-system")
            holder = "karpenter-1" if found and found["spec"]["replicas"] else ""
            spec = {
                "holderIdentity": holder,
                "leaseDurationSeconds": 15,
                "renewTime": micro_timestamp(system.clock.now()),
            }
            there = objects.find("leases", LEASE, "kube-system")
            if there is None:
                objects.create(
                    "leases", {"metadata": {"name": LEASE, "namespace": "kube-system"}, "spec": spec}
                )
            elif holder or there["spec"].get("holderIdentity"):
                objects.patch("leases", LEASE, {"spec": spec}, "kube-system")

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    system.until("Karpenter leads", lambda: objects.find("leases", LEASE, "kube-system") is not None)
    try:
        yield
    finally:
        over.set()
        thread.join(5)


def launch(system: System, name: str) -> None:
    """Launch an instance with a NodeClaim and a Node, as Karpenter's AWS provider does."""
    objects, ledger = system.cluster.objects, system.ledger()
    status, cluster = ledger.nodeclasses["default"], ledger.cluster
    assert cluster is not None
    pool, made_from = objects.find("nodepools", "default"), objects.find("ec2nodeclasses", "default")
    assert pool is not None
    assert made_from is not None
    image = next(each for each in status.images if each.requirements.allow_labels({labels.ARCH: "amd64"}))
    tags = {
        f"kubernetes.io/cluster/{CLUSTER}": "owned",
        "eks:eks-cluster-name": CLUSTER,
        labels.NODEPOOL: "default",
        labels.NODECLASS: "default",
        "karpenter.sh/nodeclaim": name,
    }
    instance = system.aws.client("ec2").run_instances(
        ImageId=image.id,
        InstanceType=TYPE,
        MinCount=1,
        MaxCount=1,
        SubnetId=status.subnets[0].id,
        SecurityGroupIds=[group.id for group in status.security_groups],
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}
        ],
    )["Instances"][0]
    zone, dns = instance["Placement"]["AvailabilityZone"], instance["PrivateDnsName"]
    own = {
        labels.NODEPOOL: "default",
        labels.NODECLASS: "default",
        labels.CAPACITY_TYPE: "on-demand",
        labels.INSTANCE_TYPE: TYPE,
        labels.ZONE: zone,
        labels.ARCH: "amd64",
        "kubernetes.io/os": "linux",
    }
    pool_hash, class_hash = parse_nodepool(pool).value, parse_nodeclass(made_from).value
    assert pool_hash is not None
    assert class_hash is not None
    claim = {
        **OF_CLAIM,
        "metadata": {
            "name": name,
            "labels": own,
            "finalizers": [labels.TERMINATION_FINALIZER],
            "annotations": {
                NODEPOOL_HASH: pool_hash.hash,
                f"{NODEPOOL_HASH}-version": NODEPOOL_HASH_VERSION,
                NODECLASS_HASH: class_hash.hash_in(cluster.ca_bundle),
                f"{NODECLASS_HASH}-version": NODECLASS_HASH_VERSION,
            },
            "ownerReferences": [owned_by("NodePool", "default", pool["metadata"]["uid"])],
        },
        "spec": {**pool["spec"]["template"]["spec"], "resources": {"requests": {"cpu": "1200m"}}},
    }
    created = objects.create("nodeclaims", claim)
    now = format_time(system.clock.now())
    conditions = [
        {"type": each, "status": "True", "reason": each, "message": "", "lastTransitionTime": now}
        for each in STAGES
    ]
    provider, size = f"aws:///{zone}/{instance['InstanceId']}", {"cpu": "2", "memory": "4Gi", "pods": "29"}
    shown = {
        "nodeName": dns,
        "providerID": provider,
        "imageID": image.id,
        "capacity": size,
        "allocatable": size,
        "conditions": conditions,
    }
    objects.patch("nodeclaims", name, {"status": shown}, subresource="status")
    node = kwok_node(dns, **size)
    node["metadata"]["labels"] |= {**own, labels.REGISTERED: "true", labels.INITIALIZED: "true"}
    node["metadata"]["finalizers"] = [labels.TERMINATION_FINALIZER]
    node["metadata"]["ownerReferences"] = [owned_by("NodeClaim", name, created["metadata"]["uid"])]
    objects.create("nodes", {**node, "spec": {"providerID": provider}})


def broken(system: System) -> None:
    """Add a NodeClaim that Karpenter has not launched yet."""
    there = system.cluster.objects.find("nodeclaims", "default-0")
    assert there is not None
    about = {part: there["metadata"][part] for part in ("labels", "annotations", "ownerReferences")}
    claim = {**OF_CLAIM, "metadata": {**about, "name": "without-instance"}, "spec": there["spec"]}
    system.cluster.objects.create("nodeclaims", claim)


def states(printed: dict[str, Any], state: str) -> set[str]:
    return {row["object"] for row in printed["rows"] if row["state"] == state}


def standing_by(system: System) -> str:
    """Return the status of the NodePool's condition that nodesmith stands by, empty if it has none."""
    pool: Mapping[str, Any] = system.cluster.objects.find("nodepools", "default") or {}
    conditions = (pool.get("status") or {}).get("conditions") or ()
    return next((str(each["status"]) for each in conditions if each["type"] == STANDBY), "")


def uids(system: System) -> dict[str, str]:
    return {
        each["metadata"]["name"]: each["metadata"]["uid"]
        for each in (*system.claims(), *system.nodes())
        if each["metadata"]["name"] != "without-instance"
    }


def pod_uids(system: System) -> set[str]:
    return {pod["metadata"]["uid"] for pod in system.pods() if not pod["metadata"].get("deletionTimestamp")}


def drift(system: System) -> dict[str, str]:
    """Return what nodesmith would call drifted now."""
    bucket = Bucket(system.aws.client("s3"), system.deployed.outputs["BucketName"])
    snapshot = newest_snapshot(bucket, CLUSTER)  # type: ignore[arg-type]
    assert snapshot is not None
    found = drifting(snapshot, system.ledger(), embedded_catalog(REGION), system.clock.now())
    return {name: drift.reason for name, drift in found.items()}
