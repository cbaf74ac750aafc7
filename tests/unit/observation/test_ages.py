"""Old objects and old annotations are converted in a snapshot, so that decisions only see current ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.mirror import WATCHED, Mirror, observed
from nodesmith.observation.reduction.objects import reduce_node
from nodesmith.observation.reduction.pods import reduce_pod
from tests.objects.clusters import deployment_pod, node, rolled

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
MIRRORS = {kind.kind: kind for kind in WATCHED}


def snapshot(**objects: list[dict[str, Any]]) -> Any:
    """Return objects as in a list from the API server: without apiVersion and kind."""
    mirrors = {kind: Mirror(watched) for kind, watched in MIRRORS.items()}
    for kind, manifests in objects.items():
        for number, manifest in enumerate(manifests):
            server = {"uid": f"{kind}-{number}", "generation": 3, "resourceVersion": "7"}
            mirrors[kind].put({**manifest, "metadata": {**manifest["metadata"], **server}})
    return decode(encode("c", NOW, observed(mirrors.values())))


TAGS = {"karpenter.sh/discovery": "blue"}
PROVISIONER = {
    "metadata": {"name": "default"},
    "spec": {
        "requirements": [{"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["c", "m"]}],
        "providerRef": {"name": "default"},
        "kubeletConfiguration": {"maxPods": 20},
    },
}
TEMPLATE = {
    "metadata": {"name": "default"},
    "spec": {
        "subnetSelector": TAGS,
        "securityGroupSelector": TAGS,
        "instanceProfile": "nodes",
        "amiFamily": "Bottlerocket",
    },
}


def test_a_provisioner_and_its_template_are_read_as_a_current_pool_and_class() -> None:
    taken = snapshot(Provisioner=[PROVISIONER], AWSNodeTemplate=[TEMPLATE])
    (pool,), (nodeclass,) = map(parse_nodepool, taken.nodepools), map(parse_nodeclass, taken.nodeclasses)

    assert pool.problems == nodeclass.problems == ()
    assert pool.value is not None
    assert nodeclass.value is not None
    assert pool.value.labels["karpenter.sh/provisioner-name"] == "default"
    assert nodeclass.value.kubelet.max_pods == 20
    assert nodeclass.value.generation == 3
    (problem,) = taken.problems
    assert problem.startswith(
        "Provisioner/default: spec.requirements[0].key karpenter.k8s.aws/instance-cpu is read"
    )


def test_a_provisioner_owns_the_nodeclaims_of_its_converted_nodepool() -> None:
    (pool,) = map(parse_nodepool, snapshot(Provisioner=[PROVISIONER]).nodepools)
    assert pool.value is not None
    assert (pool.value.owner_uid, pool.value.options.provisioner) == ("Provisioner-0", "default")
    assert pool.problems == ()


def test_a_missing_object_owns_nothing() -> None:
    """The garbage collector would delete NodeClaims of such an owner immediately."""
    (manifest,) = snapshot(Provisioner=[PROVISIONER]).nodepools
    assert "uid" not in manifest["metadata"]


def test_current_objects_are_in_the_snapshot_as_they_were_reduced() -> None:
    spec = {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "b", "name": "c"},
                "requirements": [],
            }
        }
    }
    taken = snapshot(NodePool=[{"metadata": {"name": "a"}, "spec": spec}])
    assert taken.nodepools == (
        {"metadata": {"generation": 3, "name": "a", "uid": "NodePool-0"}, "spec": spec},
    )


def test_fields_of_v1beta1_in_an_object_of_v1_are_read() -> None:
    ref = {
        "group": "karpenter.k8s.aws",
        "kind": "EC2NodeClass",
        "name": "c",
        "apiVersion": "karpenter.k8s.aws/v1beta1",
    }
    spec = {
        "template": {"spec": {"nodeClassRef": ref, "requirements": [], "expireAfter": "720h"}},
        "disruption": {"consolidationPolicy": "WhenUnderutilized", "expireAfter": "24h"},
    }
    taken = snapshot(NodePool=[{"metadata": {"name": "a"}, "spec": spec}])
    pool = parse_nodepool(taken.nodepools[0]).value

    assert pool is not None
    assert (pool.expire_after, pool.uid) == ("24h", "NodePool-0")


@pytest.mark.parametrize(
    ("annotations", "value"),
    [
        ({"karpenter.sh/do-not-evict": "true"}, "true"),
        ({"karpenter.sh/do-not-evict": "false"}, None),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}, "true"),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}, None),
        (
            {
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                "karpenter.sh/do-not-disrupt": "false",
            },
            "false",
        ),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": "a"}, None),
    ],
)
def test_old_annotations_that_protect_a_pod_become_the_current_one(
    annotations: dict[str, str], value: str | None
) -> None:
    manifest = deployment_pod(1, rolled(1))
    manifest["metadata"]["annotations"] = annotations
    pod = reduce_pod(manifest)
    assert pod is not None
    kept = json.loads(pod.shape)["metadata"].get("annotations") or {}
    assert kept.get("karpenter.sh/do-not-disrupt") == value


@pytest.mark.parametrize(
    "name", ["karpenter.sh/do-not-consolidate", "cluster-autoscaler.kubernetes.io/scale-down-disabled"]
)
def test_old_annotations_that_protect_a_node_become_the_current_one(name: str) -> None:
    manifest = node(1, rolled(1))
    manifest["metadata"]["annotations"] = {name: "true"}
    assert reduce_node(manifest)["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "true"


def test_the_converted_nodepool_has_the_status_of_its_provisioner() -> None:
    condition = {"type": "Ready", "status": "True", "reason": "Ready"}
    (manifest,) = snapshot(Provisioner=[{**PROVISIONER, "status": {"conditions": [condition]}}]).nodepools
    assert manifest["status"] == {"conditions": [condition]}


def test_the_converted_class_has_the_status_of_its_template_and_not_of_the_provisioner() -> None:
    given = {**TEMPLATE, "status": {"subnets": [{"id": "subnet-1", "zone": "us-east-1a"}]}}
    shown = {**PROVISIONER, "status": {"nodes": 3}}
    (manifest,) = snapshot(AWSNodeTemplate=[given], Provisioner=[shown]).nodeclasses
    assert manifest["status"] == given["status"]
    assert manifest["metadata"]["annotations"] == {"nodesmith.dev/nodetemplate": "default"}
    inline = {"metadata": {"name": "a"}, "spec": {"provider": TEMPLATE["spec"]}, "status": {"nodes": 3}}
    (manifest,) = snapshot(Provisioner=[inline]).nodeclasses
    assert "status" not in manifest


def test_a_class_made_from_a_provisioner_changes_with_it() -> None:
    """Its selectors are resolved again when its generation changes."""
    spec = {"provider": TEMPLATE["spec"]}
    (manifest,) = snapshot(Provisioner=[{"metadata": {"name": "a"}, "spec": spec}]).nodeclasses
    assert manifest["metadata"] == {"name": "a", "generation": 3}
