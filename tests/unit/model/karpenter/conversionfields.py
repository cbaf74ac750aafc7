"""Every spec field of the five old kinds, and its conversion: an example value and its result, or why there is none.

docs/manifests.md shows the same table; a test holds one against the other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.objects.nodeclassfields import SPEC

NODE_POOL, EC2_NODE_CLASS, NODE_CLAIM = "NodePool", "EC2NodeClass", "NodeClaim"
_TAINT = {"key": "example.com/gpu", "value": "yes", "effect": "NoSchedule"}
_TIMED_TAINT = {**_TAINT, "timeAdded": "2026-01-31T12:00:00Z"}
_ZONES = [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east-1a"], "minValues": 1}]
_DEFAULTS = [
    {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
    {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
    {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["2"]},
]
_TAGS = {"team": "blue"}
_REF = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
_METADATA = {
    "httpEndpoint": "enabled",
    "httpProtocolIPv6": "enabled",
    "httpPutResponseHopLimit": 3,
    "httpTokens": "optional",
}


class Row(NamedTuple):
    """One field. `target` is the place of its value in an object of kind `to`, empty for none; `says` is the reason."""

    field: str
    value: Any
    to: str
    target: str
    becomes: Any = None
    """the converted value, None if unchanged"""
    says: str = ""
    """a part of the report about it"""


KUBELET: dict[str, Any] = SPEC["kubelet"]
_EBS = {
    "deleteOnTermination": True,
    "encrypted": True,
    "iops": 3000,
    "kmsKeyID": "alias/nodes",
    "snapshotID": "snap-0a1b2c",
    "throughput": 125,
    "volumeSize": "100Gi",
    "volumeType": "gp3",
}
_MAPPINGS = [{"deviceName": "/dev/xvda", "ebs": _EBS}]
_ROOTED = [{**_MAPPINGS[0], "rootVolume": True}]


def _kubelet(field: str) -> tuple[Row, ...]:
    return tuple(
        Row(f"{field}.{name}", value, EC2_NODE_CLASS, f"spec.kubelet.{name}")
        for name, value in KUBELET.items()
    )


def _same(to: str, **fields: Any) -> tuple[Row, ...]:
    return tuple(Row(f"spec.{name}", value, to, f"spec.{name}") for name, value in fields.items())


_TEMPLATE = "spec.template.spec"
AWS_NODE_TEMPLATE = (
    Row("spec.subnetSelector", _TAGS, EC2_NODE_CLASS, "spec.subnetSelectorTerms", [{"tags": _TAGS}]),
    Row(
        "spec.securityGroupSelector",
        _TAGS,
        EC2_NODE_CLASS,
        "spec.securityGroupSelectorTerms",
        [{"tags": _TAGS}],
    ),
    Row(
        "spec.amiSelector",
        {"aws-ids": "ami-1,ami-2"},
        EC2_NODE_CLASS,
        "spec.amiSelectorTerms",
        [{"id": "ami-1"}, {"id": "ami-2"}],
    ),
    Row(
        "spec.amiFamily",
        "Bottlerocket",
        EC2_NODE_CLASS,
        "spec.amiSelectorTerms",
        [{"alias": "bottlerocket@latest"}],
    ),
    *_same(
        EC2_NODE_CLASS,
        userData="echo hello",
        instanceProfile="nodes",
        tags=_TAGS,
        context="anything",
        blockDeviceMappings=_MAPPINGS,
        detailedMonitoring=True,
        metadataOptions=_METADATA,
    ),
    Row("spec.launchTemplate", "mine", "", "", says="launch templates are created from the other fields"),
)
_PROVIDER = tuple(
    row._replace(field=f"spec.provider{row.field.removeprefix('spec')}") for row in AWS_NODE_TEMPLATE
)
PROVISIONER = (
    Row("spec.labels", {"example.com/team": "blue"}, NODE_POOL, "spec.template.metadata.labels"),
    Row("spec.annotations", {"example.com/note": "x"}, NODE_POOL, "spec.template.metadata.annotations"),
    Row("spec.taints", [_TAINT], NODE_POOL, f"{_TEMPLATE}.taints"),
    Row("spec.startupTaints", [_TAINT], NODE_POOL, f"{_TEMPLATE}.startupTaints"),
    Row(
        "spec.requirements",
        _ZONES,
        NODE_POOL,
        f"{_TEMPLATE}.requirements",
        [*_ZONES, *_DEFAULTS],
        "was the default",
    ),
    Row(
        "spec.providerRef",
        {"apiVersion": "karpenter.k8s.aws/v1alpha1", "kind": "AWSNodeTemplate", "name": "default"},
        NODE_POOL,
        f"{_TEMPLATE}.nodeClassRef",
        _REF,
    ),
    Row(
        "spec.provider",
        {"subnetSelector": _TAGS, "securityGroupSelector": _TAGS, "instanceProfile": "nodes"},
        EC2_NODE_CLASS,
        "spec.subnetSelectorTerms",
        [{"tags": _TAGS}],
    ),
    *_PROVIDER,
    Row(
        "spec.ttlSecondsUntilExpired",
        86400,
        NODE_POOL,
        f"{_TEMPLATE}.expireAfter",
        "86400s",
        "no longer waits for budgets",
    ),
    Row("spec.ttlSecondsAfterEmpty", 30, NODE_POOL, "spec.disruption.consolidateAfter", "30s", "WhenEmpty"),
    Row(
        "spec.consolidation.enabled",
        True,
        NODE_POOL,
        "spec.disruption",
        {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"},
    ),
    Row("spec.limits.resources", {"cpu": "1000"}, NODE_POOL, "spec.limits"),
    Row("spec.weight", 10, NODE_POOL, "spec.weight"),
    *_kubelet("spec.kubeletConfiguration"),
    Row(
        "spec.kubeletConfiguration.containerRuntime",
        "dockerd",
        "",
        "",
        says="the container runtime is always containerd",
    ),
)
_BUDGETS = [{"nodes": "20%", "schedule": "0 9 * * mon-fri", "duration": "8h"}]
NODE_POOL_V1BETA1 = (
    Row(
        "spec.template.metadata.labels",
        {"example.com/team": "blue"},
        NODE_POOL,
        "spec.template.metadata.labels",
    ),
    Row(
        "spec.template.metadata.annotations",
        {"example.com/note": "x"},
        NODE_POOL,
        "spec.template.metadata.annotations",
    ),
    Row(f"{_TEMPLATE}.taints", [_TIMED_TAINT], NODE_POOL, f"{_TEMPLATE}.taints"),
    Row(f"{_TEMPLATE}.startupTaints", [_TIMED_TAINT], NODE_POOL, f"{_TEMPLATE}.startupTaints"),
    Row(f"{_TEMPLATE}.requirements", _ZONES, NODE_POOL, f"{_TEMPLATE}.requirements"),
    Row(
        f"{_TEMPLATE}.nodeClassRef",
        {"apiVersion": "karpenter.k8s.aws/v1beta1", "kind": "EC2NodeClass", "name": "default"},
        NODE_POOL,
        f"{_TEMPLATE}.nodeClassRef",
        _REF,
    ),
    *_kubelet(f"{_TEMPLATE}.kubelet"),
    Row("spec.disruption.consolidateAfter", "1m", NODE_POOL, "spec.disruption.consolidateAfter"),
    Row(
        "spec.disruption.consolidationPolicy",
        "WhenUnderutilized",
        NODE_POOL,
        "spec.disruption",
        {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"},
    ),
    Row(
        "spec.disruption.expireAfter",
        "24h",
        NODE_POOL,
        f"{_TEMPLATE}.expireAfter",
        says="no longer waits for budgets",
    ),
    Row("spec.disruption.budgets", _BUDGETS, NODE_POOL, "spec.disruption.budgets"),
    Row("spec.limits", {"cpu": "1000"}, NODE_POOL, "spec.limits"),
    Row("spec.weight", 10, NODE_POOL, "spec.weight"),
)
NODE_CLAIM_V1BETA1 = (
    *_same(
        NODE_CLAIM,
        taints=[_TIMED_TAINT],
        startupTaints=[_TIMED_TAINT],
        requirements=_ZONES,
        resources={"requests": {"cpu": "1"}},
    ),
    Row(
        "spec.nodeClassRef",
        {"apiVersion": "karpenter.k8s.aws/v1beta1", "kind": "EC2NodeClass", "name": "default"},
        NODE_CLAIM,
        "spec.nodeClassRef",
        _REF,
    ),
    Row("spec.kubelet", KUBELET, "", "", says="the EC2NodeClass has the kubelet settings"),
)
EC2_NODE_CLASS_V1BETA1 = (
    *_same(
        EC2_NODE_CLASS,
        subnetSelectorTerms=[{"tags": _TAGS}, {"id": "subnet-1"}],
        securityGroupSelectorTerms=[{"tags": _TAGS}, {"name": "nodes"}, {"id": "sg-1"}],
        amiSelectorTerms=[{"id": "ami-1"}, {"tags": _TAGS}, {"name": "mine-*", "owner": "self"}],
        userData="echo hello",
        role="nodes",
        instanceProfile="nodes",
        tags=_TAGS,
        blockDeviceMappings=_ROOTED,
        instanceStorePolicy="RAID0",
        detailedMonitoring=True,
        metadataOptions=_METADATA,
        associatePublicIPAddress=True,
        context="anything",
    ),
    Row("spec.amiFamily", "AL2023", EC2_NODE_CLASS, "spec.amiSelectorTerms", [{"alias": "al2023@latest"}]),
)
TABLES: dict[tuple[str, str], tuple[Row, ...]] = {
    ("karpenter.sh/v1alpha5", "Provisioner"): PROVISIONER,
    ("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate"): AWS_NODE_TEMPLATE,
    ("karpenter.sh/v1beta1", "NodePool"): NODE_POOL_V1BETA1,
    ("karpenter.sh/v1beta1", "NodeClaim"): NODE_CLAIM_V1BETA1,
    ("karpenter.k8s.aws/v1beta1", "EC2NodeClass"): EC2_NODE_CLASS_V1BETA1,
}
ROWS = [(*age, row) for age, rows in TABLES.items() for row in rows]
IDS = [f"{kind}-{row.field}" for _, kind, row in ROWS]
