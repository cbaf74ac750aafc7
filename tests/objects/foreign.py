"""EKS Auto Mode and Karpenter next to nodesmith: their objects as the API server shows them.

The built-in NodePools are those of AWS's documentation (eks/latest/userguide/set-builtin-node-pools).
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from nodesmith.model.apimachinery.labels import REGISTERED, TERMINATION_FINALIZER
from nodesmith.model.apimachinery.times import format_time
from tests import builders
from tests.builders import NOW, ZONES
from tests.objects.manifests import owned_by

Manifest = dict[str, Any]
AUTO_MODE, KARPENTER = "eks.amazonaws.com", "karpenter.k8s.aws"
BUILT_IN = ("general-purpose", "system")
CRITICAL_ADDONS = {"key": "CriticalAddonsOnly", "effect": "NoSchedule"}


def _expression(key: str, *values: str) -> Manifest:
    return {"key": key, "operator": "In", "values": list(values)}


def auto_mode_nodepool(name: str = "general-purpose") -> Manifest:
    """Return a built-in NodePool of EKS Auto Mode, including its status."""
    archs = ("amd64",) if name == "general-purpose" else ("amd64", "arm64")
    spec: Manifest = {
        "expireAfter": "336h",
        "nodeClassRef": {"group": AUTO_MODE, "kind": "NodeClass", "name": "default"},
        "requirements": [
            _expression("karpenter.sh/capacity-type", "on-demand"),
            _expression("eks.amazonaws.com/instance-category", "c", "m", "r"),
            {"key": "eks.amazonaws.com/instance-generation", "operator": "Gt", "values": ["4"]},
            _expression("kubernetes.io/arch", *archs),
            _expression("kubernetes.io/os", "linux"),
        ],
        "terminationGracePeriod": "24h0m0s",
    }
    if name == "system":
        spec["taints"] = [CRITICAL_ADDONS]
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "generation": 1,
            "creationTimestamp": format_time(NOW),
            "labels": {"app.kubernetes.io/managed-by": "eks"},
            "annotations": {"karpenter.sh/nodepool-hash": "4012513481623584108"},
        },
        "spec": {
            "disruption": {
                "budgets": [{"nodes": "10%"}],
                "consolidateAfter": "30s",
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
            },
            "template": {"metadata": {}, "spec": spec},
        },
        "status": {"conditions": [_true("NodeClassReady"), _true("ValidationSucceeded"), _true("Ready")]},
    }


def nodeclaim(
    name: str, pool: str, group: str = AUTO_MODE, instance: str = "", *, kind: str = "NodeClass"
) -> Manifest:
    """Return a NodeClaim made by the controller of `group`; without an instance it is not launched yet."""
    label = f"{group}/{kind.lower()}"
    claim: Manifest = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "generation": 1,
            "creationTimestamp": format_time(NOW),
            "finalizers": [TERMINATION_FINALIZER],
            "labels": {"karpenter.sh/nodepool": pool, label: "default"},
            "annotations": {"karpenter.sh/nodepool-hash-version": "v3"},
            "ownerReferences": [owned_by("NodePool", pool, f"uid-{pool}")],
        },
        "spec": {
            "expireAfter": "336h",
            "nodeClassRef": {"group": group, "kind": kind, "name": "default"},
            "requirements": [_expression("kubernetes.io/arch", "amd64")],
            "resources": {"requests": {"cpu": "1"}},
        },
    }
    if instance:
        claim["status"] = {
            "nodeName": instance,
            "providerID": provider_id(instance),
            "conditions": [_true(each) for each in ("Launched", "Registered", "Initialized", "Ready")],
        }
    return claim


def karpenters_nodeclaim(name: str, pool: str = "default", instance: str = "") -> Manifest:
    """Return a NodeClaim made by Karpenter's AWS provider."""
    return nodeclaim(name, pool, KARPENTER, instance, kind="EC2NodeClass")


def node(instance: str, pool: str, *, cpu: str = "4", taints: tuple[Mapping[str, str], ...] = ()) -> Manifest:
    """Return a Node of EKS Auto Mode, named after its instance as Auto Mode does."""
    room = {"cpu": cpu, "memory": "16Gi", "pods": "27", "ephemeral-storage": "80Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": instance,
            "uid": f"uid-{instance}",
            "creationTimestamp": format_time(NOW),
            "finalizers": [TERMINATION_FINALIZER],
            "labels": {
                "karpenter.sh/nodepool": pool,
                "karpenter.sh/capacity-type": "on-demand",
                REGISTERED: "true",
                "karpenter.sh/initialized": "true",
                "eks.amazonaws.com/nodeclass": "default",
                "eks.amazonaws.com/compute-type": "auto",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "kubernetes.io/hostname": instance,
                "node.kubernetes.io/instance-type": "m5.xlarge",
                "topology.kubernetes.io/zone": ZONES[0],
                "topology.kubernetes.io/region": builders.REGION,
            },
        },
        "spec": {"providerID": provider_id(instance), "taints": [dict(taint) for taint in taints]},
        "status": {"capacity": room, "allocatable": dict(room), "conditions": [_true("Ready")]},
    }


def provider_id(instance: str) -> str:
    """Return the provider id of an instance in the first zone."""
    return f"aws:///{ZONES[0]}/{instance}"


def changed(before: Mapping[str, Manifest], after: Mapping[str, Manifest]) -> list[str]:
    """Return the names of the objects that are gone, new or different."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def copied(objects: Mapping[str, Manifest]) -> dict[str, Manifest]:
    """Return a copy that later writes do not change."""
    return deepcopy(dict(objects))


def _true(kind: str) -> Manifest:
    return {
        "type": kind,
        "status": "True",
        "reason": kind,
        "message": "",
        "lastTransitionTime": format_time(NOW),
    }


def karpenters_deployment(namespace: str = "kube-system", replicas: int = 1) -> Manifest:
    """Return the Deployment of Karpenter's controller."""
    labels = {"app.kubernetes.io/name": "karpenter"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "controller", "image": "karpenter/controller"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "karpenter", "namespace": namespace, "labels": labels},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }
