"""Clusters of several owners for tests of `nodesmith savings`: objects as an API server shows them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from zlib import crc32

from nodesmith.observation.mirror import WATCHED
from nodesmith_formats.manifests.manifests import Document
from tests.builders import spread

Manifest = dict[str, Any]
CREATED = "2026-01-01T00:00:00Z"
_SIZES = {"m5.large": ("1930m", "7Gi"), "m5.xlarge": ("3920m", "14Gi"), "m5.2xlarge": ("7910m", "28Gi")}
ASKS = ((100, 256), (250, 512), (500, 1024), (500, 2048), (1000, 1024), (1500, 3072))
"""cpu (milli) and memory (MiB) of the pods of each Deployment, in turn"""


def node(
    name: str,
    kind: str = "m5.xlarge",
    *,
    zone: str = "us-east-1a",
    labels: Mapping[str, str] | None = None,
    **fields: Any,
) -> Manifest:
    """Return a Node of a managed node group by default; `labels` with an empty value remove one."""
    cpu, memory = _SIZES.get(kind, ("3920m", "14Gi"))
    given = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": kind,
        "topology.kubernetes.io/zone": zone,
        "topology.kubernetes.io/region": zone[:-1],
        "eks.amazonaws.com/nodegroup": "general",
        "eks.amazonaws.com/capacityType": "ON_DEMAND",
        **(labels or {}),
    }
    room = {"cpu": cpu, "memory": memory, "pods": "58"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": CREATED,
            "labels": {key: value for key, value in given.items() if value},
            **fields.pop("metadata", {}),
        },
        "spec": {"providerID": f"aws:///{zone}/i-{crc32(name.encode()):017x}", **fields.pop("spec", {})},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": CREATED}],
            **fields,
        },
    }


def karpenter(pool: str = "default", sold: str = "on-demand") -> dict[str, str]:
    """Return the labels that make a node of `node` one of Karpenter's."""
    return {
        "eks.amazonaws.com/nodegroup": "",
        "eks.amazonaws.com/capacityType": "",
        "karpenter.sh/nodepool": pool,
        "karpenter.k8s.aws/ec2nodeclass": "default",
        "karpenter.sh/capacity-type": sold,
        "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true",
    }


def pod(
    name: str,
    on: str,
    app: str = "web",
    cpu: str = "500m",
    memory: str = "1Gi",
    *,
    owner: str = "ReplicaSet",
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Manifest:
    """Return a running pod of the ReplicaSet `app` by default."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "creationTimestamp": CREATED,
            "labels": {"app": app},
            "annotations": dict(annotations or {}),
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": owner, "name": app, "uid": f"uid-{app}", "controller": True}
            ],
        },
        "spec": {
            "nodeName": on,
            "containers": [
                {
                    "name": "main",
                    "image": "app",
                    "resources": {"requests": {"cpu": cpu, "memory": memory}},
                    "env": [{"name": "SECRET", "value": "x"}],
                }
            ],
            **spec,
        },
        "status": {
            "phase": "Running",
            "startTime": CREATED,
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": CREATED},
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": CREATED},
            ],
        },
    }


def nodepool(name: str = "default", sold: Sequence[str] = ("on-demand",), **spec: Any) -> Manifest:
    """Return a NodePool of c, m and r types of amd64."""
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": list(sold)},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
        {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["2"]},
    ]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": CREATED, "generation": 1},
        "spec": {
            "template": {"spec": {"nodeClassRef": reference, "requirements": requirements}},
            "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "1m"},
            **spec,
        },
    }


def budget(name: str, app: str, *, allowed: int, expected: int, **spec: Any) -> Manifest:
    """Return a PodDisruptionBudget of `app` with its status."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "creationTimestamp": CREATED,
        },
        "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
        "status": {
            "disruptionsAllowed": allowed,
            "currentHealthy": expected,
            "desiredHealthy": expected - allowed,
            "expectedPods": expected,
        },
    }


def zone_spread(app: str) -> Manifest:
    """Return a hard spread over zones, to be merged into a pod's spec."""
    return {"topologySpreadConstraints": spread(hard=True, app=app)}


def sparse(
    nodes: int,
    seed: int = 1,
    use: float = 0.45,
    labels: Mapping[str, str] | None = None,
    prefix: str = "n",
) -> list[Manifest]:
    """Return nodes in three zones that pods of six Deployments fill by about `use`, unevenly."""
    dice = random.Random(seed)  # noqa: S311
    found: list[Manifest] = []
    for number in range(nodes):
        name = f"{prefix}-{number:03d}"
        kind = dice.choice(sorted(_SIZES))
        found.append(node(name, kind, zone=f"us-east-1{'abc'[number % 3]}", labels=labels))
        room = float(_SIZES[kind][0].rstrip("m")) * min(1.0, max(0.1, dice.gauss(use, 0.2)))
        for place in range(40):
            app = dice.randrange(len(ASKS))
            cpu, memory = ASKS[app]
            if cpu > room:
                continue
            room -= cpu
            found.append(pod(f"{name}-{place:02d}", name, f"app-{app}", f"{cpu}m", f"{memory}Mi"))
    return found


def documents(manifests: Iterable[Manifest]) -> tuple[Document, ...]:
    """Return manifests as documents of a live cluster."""
    return tuple(Document(each, "test", n) for n, each in enumerate(manifests, start=1))


PATHS: Mapping[str, str] = {kind.kind: kind.path for kind in WATCHED}
"""The list path of each kind."""
