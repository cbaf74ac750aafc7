"""Generated clusters of any size as the API server would show them, with realistic names and noise."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

Manifest = dict[str, Any]
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_CREATED = "2026-11-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}Z"


def node(number: int, dice: random.Random) -> Manifest:
    """Return a ready m5.xlarge as the kubelet and the cloud controller describe it."""
    zone = "us-east-1" + "abc"[number % 3]
    name = f"ip-10-{number % 3}-{number // 250}-{number % 250}.ec2.internal"
    instance = f"i-{dice.getrandbits(68):017x}"
    amounts = {
        "cpu": "4",
        "memory": "15910500Ki",
        "pods": "58",
        "ephemeral-storage": "20893676Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
    }
    conditions = [
        {
            "type": kind,
            "status": "True" if kind == "Ready" else "False",
            "reason": f"Kubelet{kind}",
            "message": f"kubelet says {kind} is fine",
            "lastHeartbeatTime": created(dice),
            "lastTransitionTime": created(dice),
        }
        for kind in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
    ]
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/instance-type": "m5.xlarge",
        "beta.kubernetes.io/os": "linux",
        "failure-domain.beta.kubernetes.io/region": "us-east-1",
        "failure-domain.beta.kubernetes.io/zone": zone,
        "karpenter.k8s.aws/ec2nodeclass": "default",
        "karpenter.k8s.aws/instance-category": "m",
        "karpenter.k8s.aws/instance-cpu": "4",
        "karpenter.k8s.aws/instance-family": "m5",
        "karpenter.k8s.aws/instance-memory": "16384",
        "karpenter.k8s.aws/instance-size": "xlarge",
        "karpenter.sh/capacity-type": "spot",
        "karpenter.sh/initialized": "true",
        "karpenter.sh/nodepool": "default",
        "karpenter.sh/registered": "true",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "m5.xlarge",
        "topology.k8s.aws/zone-id": f"use1-az{number % 3 + 1}",
        "topology.kubernetes.io/region": "us-east-1",
        "topology.kubernetes.io/zone": zone,
    }
    return {
        "metadata": {
            "name": name,
            "uid": uid(dice),
            "resourceVersion": str(dice.randrange(10**8)),
            "creationTimestamp": created(dice),
            "labels": labels,
            "annotations": {"karpenter.sh/nodepool-hash": "4512", "node.alpha.kubernetes.io/ttl": "0"},
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
        },
        "spec": {"providerID": f"aws:///{zone}/{instance}", "podCIDR": "10.0.0.0/24"},
        "status": {
            "capacity": amounts,
            "allocatable": {**amounts, "cpu": "3920m", "memory": "14893924Ki"},
            "conditions": conditions,
            "images": [{"names": [f"registry/app:{n}"], "sizeBytes": 10**8} for n in range(5)],
            "nodeInfo": {"kubeletVersion": "v1.36.3"},
        },
    }


def deployment_pod(app: int, dice: random.Random, node_name: str = "", **spec: Any) -> Manifest:
    """Return a pod of the Deployment `app`; without a node it is pending and unschedulable."""
    name, revision = f"{_WORDS[app % len(_WORDS)]}-{app}", suffix(rolled(app), 10)
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    if node_name:
        conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]
    labels = {"app.kubernetes.io/name": name, "pod-template-hash": revision}
    container = {
        "name": "main",
        "image": f"registry.example/{name}:1.2.3",
        "command": ["/bin/serve", "--token=s3cr3t-argument"],
        "env": [{"name": "PASSWORD", "value": "s3cr3t-value"}],
        "resources": {"requests": {"cpu": f"{100 + app}m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
    }
    return {
        "metadata": {
            "name": f"{name}-{revision}-{suffix(dice, 5)}",
            "namespace": f"team-{app % 20}",
            "uid": uid(dice),
            "creationTimestamp": created(dice),
            "labels": labels,
            "annotations": {"prometheus.io/scrape": "true"},
            "ownerReferences": [
                {"kind": "ReplicaSet", "name": f"{name}-{revision}", "uid": uid(dice), "controller": True}
            ],
        },
        "spec": {
            "containers": [container],
            "volumes": [{"name": "kube-api-access", "projected": {"sources": [{"secret": {"name": "x"}}]}}],
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
            ],
            "topologySpreadConstraints": [spread],
            **({"nodeName": node_name} if node_name else {}),
            **spec,
        },
        "status": {"phase": "Running" if node_name else "Pending", "conditions": conditions},
    }


def budget(app: int, pods: int) -> Manifest:
    """Return the PodDisruptionBudget of the Deployment `app`, which allows one pod in ten to be unavailable."""
    spare = -(-pods // 10)
    return {
        "metadata": {
            "name": f"{_WORDS[app % len(_WORDS)]}-{app}",
            "namespace": f"team-{app % 20}",
            "generation": 1,
            "managedFields": [{"manager": "helm", "fieldsV1": {"f:spec": {}}}],
        },
        "spec": {
            "maxUnavailable": "10%",
            "selector": {"matchLabels": {"app.kubernetes.io/name": f"{_WORDS[app % len(_WORDS)]}-{app}"}},
        },
        "status": {
            "observedGeneration": 1,
            "expectedPods": pods,
            "currentHealthy": pods,
            "desiredHealthy": pods - spare,
            "disruptionsAllowed": spare,
            "conditions": [{"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods"}],
        },
    }


def cluster(
    nodes: int, pods: int, deployments: int, *, pending_every: int = 20
) -> Mapping[str, list[Manifest]]:
    """Return `nodes` nodes, and `pods` pods of `deployments` Deployments; every `pending_every`th pod is pending.

    The result is deterministic. Every Deployment has one of the `poddisruptionbudgets`.
    """
    dice = rolled(nodes * pods * deployments)
    machines = [node(number, dice) for number in range(nodes)]
    made = []
    for number in range(pods):
        home = "" if number % pending_every == 0 else machines[dice.randrange(nodes)]["metadata"]["name"]
        made.append(deployment_pod(number % deployments, dice, home))
    budgets = [budget(app, pods // deployments) for app in range(deployments)]
    return {"nodes": machines, "pods": made, "poddisruptionbudgets": budgets}


def rolled(seed: int) -> random.Random:
    """Return a random generator with a fixed seed."""
    return random.Random(seed)  # noqa: S311


def suffix(dice: random.Random, length: int) -> str:
    """Return the random suffix of a name, in the letters that Kubernetes uses."""
    return "".join(dice.choices(_LETTERS, k=length))


def uid(dice: random.Random) -> str:
    """Return a UUID."""
    digits = f"{dice.getrandbits(128):032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def created(dice: random.Random) -> str:
    """Return a time in November 2026 in Kubernetes' format."""
    return _CREATED.format(
        day=dice.randrange(1, 21),
        hour=dice.randrange(24),
        minute=dice.randrange(60),
        second=dice.randrange(60),
    )


_WORDS = (
    "checkout",
    "catalog-search",
    "payments-gateway",
    "notification-worker",
    "web",
    "recommendation-engine",
)
