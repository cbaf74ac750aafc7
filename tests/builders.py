"""Objects for tests. Each is valid by default; a test names only the fields that matter to it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.decisions.provisioning import Inputs, as_read
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import REGISTERED, TERMINATION_FINALIZER, Taint
from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.apimachinery.requirements import Requirements, requirement
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.karpenter.nodeclaims import NodeClaim, NodeClassRef, Phase
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.kubernetes.nodes import Condition, Node
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.kubernetes.shapereading import parse_shape
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass, parse_nodeclass
from nodesmith.model.nodeclasses.status import (
    ClusterInfo,
    Image,
    NodeClassStatus,
    SecurityGroup,
    StatusCondition,
    Subnet,
)
from nodesmith.model.policies import NodeSettings
from nodesmith.model.snapshot import Snapshot

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
CLUSTER = "test"
REGION = "us-east-1"
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
NODECLASS_REF = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
EXPRESS = (
    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]},
    {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
)


@lru_cache(maxsize=4)
def catalog(region: str = REGION) -> Catalog:
    """Return the catalogue in the package."""
    return embedded_catalog(region)


def nodepool_manifest(
    name: str = "default",
    *,
    requirements: Sequence[Mapping[str, Any]] = EXPRESS,
    weight: int | None = None,
    limits: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    startup_taints: Sequence[Mapping[str, str]] = (),
    nodeclass: str = "default",
) -> dict[str, Any]:
    """Return a NodePool's manifest."""
    spec: dict[str, Any] = {
        "nodeClassRef": {**NODECLASS_REF, "name": nodeclass},
        "requirements": [dict(r) for r in requirements],
    }
    if taints:
        spec["taints"] = [dict(t) for t in taints]
    if startup_taints:
        spec["startupTaints"] = [dict(t) for t in startup_taints]
    template: dict[str, Any] = {"spec": spec}
    if labels:
        template["metadata"] = {"labels": dict(labels)}
    body: dict[str, Any] = {"template": template}
    if weight is not None:
        body["weight"] = weight
    if limits is not None:
        body["limits"] = dict(limits)
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name, "uid": f"uid-{name}", "generation": 1},
        "spec": body,
    }


def content_of(nodepool: Mapping[str, object]) -> str:
    """Return the content hash of a NodePool's manifest."""
    parsed = parse_nodepool(nodepool)
    assert parsed.value is not None, parsed.problems
    return parsed.value.content


def nodeclass_manifest(name: str = "default", **spec: Any) -> dict[str, Any]:
    """Return an EC2NodeClass's manifest; keywords are fields of its spec."""
    selector = [{"tags": {"karpenter.sh/discovery": CLUSTER}}]
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": name, "uid": f"uid-nodeclass-{name}", "generation": 1},
        "spec": {
            "role": "nodes",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": selector,
            "securityGroupSelectorTerms": selector,
            **spec,
        },
    }


def nodeclass(name: str = "default", **spec: Any) -> EC2NodeClass:
    """Return a parsed EC2NodeClass."""
    parsed = parse_nodeclass(nodeclass_manifest(name, **spec))
    assert parsed.value is not None, parsed.problems
    return parsed.value


def cluster_info() -> ClusterInfo:
    """Return the cluster facts that a new node needs."""
    return ClusterInfo(CLUSTER, "https://api.test.example", "Q0EK", "10.100.0.0/16", "1.34")


def nodeclass_status(name: str = "default", zones: Sequence[str] = ZONES, **fields: Any) -> NodeClassStatus:
    """Return an EC2NodeClass's resolution that is ready, with one subnet per zone and one image per architecture."""
    images = tuple(
        Image(
            f"ami-{arch}",
            f"al2023-{arch}",
            Requirements.of(
                requirement("kubernetes.io/arch", "In", [arch]),
                requirement("karpenter.k8s.aws/instance-gpu-count", "DoesNotExist"),
                requirement("karpenter.k8s.aws/instance-accelerator-count", "DoesNotExist"),
            ),
        )
        for arch in ("amd64", "arm64")
    )
    ready: dict[str, Any] = {
        "generation": 1,
        "hash": nodeclass(name).hash,
        "content": nodeclass(name).content,
        "resolved_at": NOW,
        "subnets": tuple(Subnet(f"subnet-{z[-1]}", z, free_ips=4000) for z in zones),
        "security_groups": (SecurityGroup("sg-1", "nodes"),),
        "images": images,
        "instance_profile": "profile",
        "conditions": (StatusCondition("Ready", "True", "Ready"),),
    }
    return NodeClassStatus(name, **(ready | fields))


def ledger(**fields: Any) -> Ledger:
    """Return a ledger in which the EC2NodeClass `default` and the cluster are resolved."""
    known: dict[str, Any] = {
        "nodeclasses": {"default": nodeclass_status()},
        "cluster": cluster_info(),
        "contents": {"NodePool/default": content_of(nodepool_manifest())},
    }
    return Ledger(**(known | fields))


def shape(
    cpu: str = "1",
    memory: str = "64Mi",
    *,
    app: str = "web",
    namespace: str = "default",
    owner: str = "",
    requests: Mapping[str, str] | None = None,
    **spec: Any,
) -> Shape:
    """Return the shape of a one-container pod; keywords are fields of the pod's spec."""
    kind, _, name = (owner or f"ReplicaSet/{app}").partition("/")
    asked = {"cpu": cpu, "memory": memory, **(requests or {})}
    return parse_shape(
        {
            "metadata": {
                "namespace": namespace,
                "labels": {"app": app},
                "ownerReferences": [{"kind": kind, "name": name, "controller": True}],
            },
            "spec": {"containers": [{"name": "main", "resources": {"requests": asked}}], **spec},
        }
    )


def spread(
    key: str = "topology.kubernetes.io/zone", *, hard: bool, app: str = "web", max_skew: int = 1
) -> Any:
    """Return the spec field of one topology spread constraint over pods of `app`."""
    return [
        {
            "topologyKey": key,
            "maxSkew": max_skew,
            "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": app}},
        }
    ]


def pods(
    of: Shape, count: int = 1, *, prefix: str = "", node: str = "", unschedulable: bool = True
) -> list[Pod]:
    """Return pods of one shape, unschedulable unless bound to a node."""
    name = prefix or of.labels.get("app", "pod")
    return [
        Pod(
            f"{of.namespace}/{name}-{index:04d}",
            of,
            NOW - timedelta(seconds=60),
            node=node,
            unschedulable=unschedulable and not node,
        )
        for index in range(count)
    ]


def node(
    name: str = "node-1",
    *,
    cpu: str = "4",
    memory: str = "16Gi",
    zone: str = ZONES[0],
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    **fields: Any,
) -> Node:
    """Return a Ready node with room for 58 pods; a registered node has our finalizer."""
    offered = parse_resources({"cpu": cpu, "memory": memory, "pods": "58"})
    held = {"finalizers": (TERMINATION_FINALIZER,)} if REGISTERED in (labels or {}) else {}
    known = {
        "topology.kubernetes.io/zone": zone,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
    }
    return Node(
        name,
        NOW - timedelta(hours=1),
        provider_id=fields.pop("provider_id", f"aws:///{zone}/i-{name}"),
        labels={**known, **(labels or {})},
        taints=tuple(taints),
        capacity=offered,
        allocatable=offered,
        conditions={"Ready": Condition("True")},
        **(held | fields),
    )


JOINED = {
    "karpenter.sh/registered": "true",
    "karpenter.sh/nodepool": "default",
    "karpenter.k8s.aws/ec2nodeclass": "default",
}
READY = {**JOINED, "karpenter.sh/initialized": "true"}
"""The labels of a Node that has joined, and of one that is initialized."""


def snapshot(*, pods: Sequence[Pod] = (), **fields: Any) -> Snapshot:
    """Return a snapshot with the NodePool and EC2NodeClass `default`, unless keywords replace them."""
    known: dict[str, Any] = {"nodepools": (nodepool_manifest(),), "nodeclasses": (nodeclass_manifest(),)}
    return Snapshot(CLUSTER, NOW, pods=tuple(pods), **(known | fields))


def inputs(**fields: Any) -> Inputs:
    """Return the inputs of a provisioning decision; keywords replace its parts, or the snapshot's pods.

    Readiness has read what the snapshot shows. Identical pods may share one node, so that tests of other features can
    rely on the cheapest plan.
    """
    known: dict[str, Any] = {
        "ledger": ledger(),
        "catalog": catalog(),
        "settings": NodeSettings(fragility_tolerance=0),
        "now": NOW,
        "decision": "20261121T120000Z-test",
    }
    if "snapshot" not in fields:
        known["snapshot"] = snapshot(pods=fields.pop("pods", ()))
    given = Inputs(**(known | fields))
    return replace(given, ledger=as_read(given.ledger, given.snapshot))


ACCOUNT = "123456789012"


def ec2_event(kind: str, detail: Mapping[str, Any], at: datetime = NOW, **fields: Any) -> str:
    """Return an event as EventBridge sends it; events with different content have different ids."""
    event = {
        "version": "0",
        "id": str(uuid5(NAMESPACE_URL, f"{kind} {sorted(detail.items())} {at} {sorted(fields.items())}")),
        "detail-type": kind,
        "source": "aws.ec2",
        "account": ACCOUNT,
        "time": f"{at:%Y-%m-%dT%H:%M:%SZ}",
        "region": REGION,
        "resources": [f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/{detail.get('instance-id')}"],
        "detail": detail,
    }
    return json.dumps({**event, **fields})


def spot_warning(instance_id: str, at: datetime = NOW) -> str:
    """Return EC2's warning that it will interrupt a spot instance in two minutes."""
    detail = {"instance-id": instance_id, "instance-action": "terminate"}
    return ec2_event("EC2 Spot Instance Interruption Warning", detail, at)


def state_change(instance_id: str, state: str, at: datetime = NOW) -> str:
    """Return EC2's notification that an instance has changed to a state."""
    return ec2_event(
        "EC2 Instance State-change Notification", {"instance-id": instance_id, "state": state}, at
    )


def claim(name: str = "default-x1", *, phase: Phase = Phase.LAUNCHED, **fields: Any) -> NodeClaim:
    """Return a NodeClaim of NodePool `default` with room for 4 cpu, 16 GiB and 58 pods."""
    offered = parse_resources({"cpu": "4", "memory": "16Gi", "pods": "58"})
    known: dict[str, Any] = {
        "nodepool": "default",
        "nodeclass": NodeClassRef("default"),
        "created_at": NOW - timedelta(minutes=1),
        "phase_since": NOW - timedelta(seconds=30),
        "labels": FrozenMap({"karpenter.sh/nodepool": "default", "topology.kubernetes.io/zone": ZONES[0]}),
        "capacity": offered,
        "allocatable": offered,
    }
    if phase is not Phase.PENDING:
        known["provider_id"] = f"aws:///{ZONES[0]}/i-{name}"
    return NodeClaim(name=name, phase=phase, **(known | fields))


def nodeclaim_manifest(
    requirements: Iterable[Mapping[str, Any]], name: str = "by-hand", **spec: Any
) -> dict[str, Any]:
    """Return a NodeClaim as a user creates it, a minute ago; keywords are further fields of its spec."""
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "generation": 1,
            "creationTimestamp": "2026-11-21T11:59:00Z",
        },
        "spec": {"nodeClassRef": NODECLASS_REF, "requirements": list(requirements), **spec},
    }


def daemon(name: str = "agent", cpu: str = "100m", memory: str = "128Mi", **spec: Any) -> Shape:
    """Return the pod template of a DaemonSet; keywords are fields of the pod's spec."""
    return shape(cpu, memory, app=name, namespace="kube-system", owner=f"DaemonSet/{name}", **spec)


def bind(of: Shape, node: str, count: int = 1, **fields: Any) -> list[Pod]:
    """Return pods of a shape that run on a node."""
    return [replace(pod, **fields) for pod in pods(of, count, prefix=f"on-{node}", node=node)]


def anti_affinity(app: str = "web", key: str = "kubernetes.io/hostname", **term: Any) -> dict[str, Any]:
    """Return the spec field `affinity` with a required anti-affinity to pods of `app`."""
    required = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **term}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [required]}}


def node_affinity(*terms: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the spec field `affinity` that requires one of these terms, each a list of match expressions."""
    raw = [{"matchExpressions": [dict(e) for e in term]} for term in terms]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": raw}}}


def expression(key: str, operator: str, *values: str, **also: Any) -> dict[str, Any]:
    """Return a requirement in the form that NodePools and node affinity use."""
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {}), **also}
