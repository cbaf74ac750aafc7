"""Small clusters, catalogues and plans for the audit's tests, written by hand rather than by the solver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.ec2.catalog import Catalog, Offering, StatedFacts
from nodesmith_cli.audit import Kind, audit

Object = dict[str, Any]
ZONE, HOST, NODEPOOL = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "karpenter.sh/nodepool"
ZONES = ("z-a", "z-b", "z-c")
SIZES = {"m.small": (2, 8), "m.large": (4, 16), "m.huge": (16, 64), "g.large": (4, 16)}
"""Cpu and GiB of memory, all of it allocatable; g.large has a GPU, too."""
DOLLARS = {"m.small": 0.1, "m.large": 0.2, "m.huge": 0.8, "g.large": 1.0}
SPOT_SHARE = 0.25
DRIVER = "ebs.csi.aws.com"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@lru_cache(maxsize=1)
def catalog() -> Catalog:
    """Return four types in three zones, on-demand and spot; g.large only in z-a, and m.huge sold out in z-c."""
    facts: dict[str, Any] = {}
    offerings: dict[str, tuple[Offering, ...]] = {}
    for name, (cpu, gib) in SIZES.items():
        room = {"cpu": str(cpu), "memory": f"{gib}Gi", "pods": "10", "ephemeral-storage": "20Gi"}
        if name == "g.large":
            room["nvidia.com/gpu"] = "1"
        room[f"attachable-volumes-csi-{DRIVER}"] = "2"
        labels: dict[str, str | None] = {
            "example.com/size": name.partition(".")[2],
            "example.com/cpu": str(cpu),
        }
        facts[name] = StatedFacts(
            name, "amd64", ("linux",), parse_resources(room), parse_resources({}), labels
        )
        offerings[name] = tuple(
            Offering(zone, capacity_type, DOLLARS[name] * share, available=(name, zone) != ("m.huge", "z-c"))
            for zone in (ZONES if name != "g.large" else ("z-a",))
            for capacity_type, share in (("on-demand", 1.0), ("spot", SPOT_SHARE))
        )
    return Catalog.of("r", datetime(2026, 1, 1, tzinfo=UTC), facts, offerings)


def nodepool(name: str = "default", **spec: Any) -> Object:
    """Return a NodePool; `requirements`, `taints` and `labels` go to its template, other keywords to its spec."""
    inner = {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}
    inner["requirements"] = spec.pop("requirements", [])
    inner["taints"] = spec.pop("taints", [])
    template = {"metadata": {"labels": spec.pop("labels", {})}, "spec": inner}
    return {"kind": "NodePool", "metadata": {"name": name}, "spec": {"template": template, **spec}}


def nodeclass(**status: Any) -> Object:
    """Return the EC2NodeClass of all NodePools; keywords are fields of its status."""
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {},
        "status": status,
    }


def pod(name: str, cpu: str = "1", memory: str = "1Gi", **fields: Any) -> Object:
    """Return a pod; `labels`, `namespace`, `node`, `owner`, `requests`, `ports` are special, others go to its spec."""
    requests = {"cpu": cpu, "memory": memory, **fields.pop("requests", {})}
    about: Object = {
        "name": name,
        "namespace": fields.pop("namespace", "default"),
        "labels": fields.pop("labels", {}),
    }
    owner = fields.pop("owner", None)
    if owner:
        kind, _, owner_name = owner.partition("/")
        about["ownerReferences"] = [{"kind": kind, "name": owner_name, "controller": True}]
    container: Object = {"name": "main", "resources": {"requests": requests}}
    container["ports"] = [{"hostPort": port} for port in fields.pop("ports", ())]
    node = fields.pop("node", None)
    spec = {"containers": [container], **({"nodeName": node} if node else {}), **fields}
    return {"kind": "Pod", "metadata": about, "spec": spec}


def node(name: str, zone: str = "z-a", cpu: str = "4", **fields: Any) -> Object:
    """Return a Node with 16 GiB for ten pods; `labels` and `about` extend its metadata, other keywords its spec."""
    labels = {ZONE: zone, HOST: name, **fields.pop("labels", {})}
    room = {"cpu": cpu, "memory": "16Gi", "pods": "10"}
    about = {"name": name, "labels": labels, **fields.pop("about", {})}
    return {
        "kind": "Node",
        "metadata": about,
        "spec": fields,
        "status": {"allocatable": room, "capacity": room},
    }


def daemonset(name: str = "agent", cpu: str = "500m", **spec: Any) -> Object:
    """Return a DaemonSet of one container; keywords are fields of its pods' spec."""
    requests = {"cpu": cpu, "memory": "1Gi"}
    container = {"name": "main", "resources": {"requests": requests}, "ports": spec.pop("ports", [])}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **spec}}
    return {
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"template": template},
    }


def spread(key: str = ZONE, skew: int = 1, app: str = "web", **more: Any) -> list[Object]:
    """Return topologySpreadConstraints: one, hard, over the pods of an app."""
    selector = {"matchLabels": {"app": app}}
    action = "DoNotSchedule"
    return [
        {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": action, "labelSelector": selector, **more}
    ]


def near(app: str, key: str = ZONE, kind: str = "podAffinity", **more: Any) -> Object:
    """Return an affinity to pods of an app in the same domain, or with kind podAntiAffinity an anti-affinity."""
    return {kind: {_REQUIRED: [{"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}]}}


def apart(app: str, key: str = HOST, **more: Any) -> Object:
    """Return an anti-affinity to the pods of an app."""
    return near(app, key, "podAntiAffinity", **more)


def on_nodes(*terms: Sequence[Mapping[str, Any]], field: str = "matchExpressions") -> Object:
    """Return a node affinity that requires one of these terms."""
    return {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [{field: list(term)} for term in terms]}}}


def wants(key: str, operator: str, *values: str) -> Object:
    """Return one expression or requirement."""
    return {"key": key, "operator": operator, "values": list(values)}


def buys(
    name: str,
    cpu: str,
    pods: Sequence[str],
    types: Sequence[str] = ("m.large",),
    zone: str = "z-a",
    **fields: Any,
) -> Object:
    """Return a node of a plan, each of whose pods has 1 GiB of memory; `cpu` is the total of the requests."""
    capacity_type = fields.pop("capacityType", "on-demand")
    share = 1.0 if capacity_type == "on-demand" else SPOT_SHARE
    names = [key if "/" in key else f"default/{key}" for key in pods]
    daemons = fields.pop("daemons", 0)
    total = len(pods) + daemons
    return {
        "name": name,
        "nodePool": "default",
        "instanceType": types[0],
        "instanceTypes": list(types),
        "zone": zone,
        "capacityType": capacity_type,
        "priceHourly": DOLLARS[types[0]] * share,
        "requests": {"cpu": cpu, "memory": f"{total}Gi", "pods": str(total)},
        "pods": names,
        **fields,
    }


def plan(
    *nodes: Object,
    existing: Mapping[str, Sequence[str]] | None = None,
    unplaced: Mapping[str, str] | None = None,
) -> Object:
    """Return a plan whose price and lower bound are the price of its nodes."""
    price = sum(each["priceHourly"] for each in nodes)
    left = ((f"default/{key}", why) for key, why in (unplaced or {}).items())
    return {
        "nodes": list(nodes),
        "existing": [
            {"node": n, "pods": [f"default/{k}" for k in keys]} for n, keys in (existing or {}).items()
        ],
        "unplaced": [{"pod": k, "reason": why, "nodePool": "", "blocking": "", "fix": ""} for k, why in left],
        "priceHourly": price,
        "lowerBoundHourly": price,
        "seconds": 0.01,
        "steps": 1,
    }


def found(manifests: Sequence[Mapping[str, Any]], of: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Audit a plan; return kind and subject of each violation."""
    return [(str(v.kind), v.subject) for v in audit(manifests, catalog(), of)]


def kinds(manifests: Sequence[Mapping[str, Any]], of: Mapping[str, Any]) -> set[Kind]:
    """Audit a plan; return the kinds of its violations."""
    return {v.kind for v in audit(manifests, catalog(), of)}
