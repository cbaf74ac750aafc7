"""A running cluster by recipe: nodes with their pods, and pending pods."""

from __future__ import annotations

import random
from typing import Any

from tests.benchmarks.packing.workloads import HOSTNAME, ZONE, owned, pod
from tests.builders import ZONES, anti_affinity, spread

Manifest = dict[str, Any]
_CPU, _MEMORY = 7910, 29317
"""allocatable resources of an m5.2xlarge, in milli-cpu and MiB"""


def existing(
    nodes: int = 2000, pods: int = 30_000, pending: int = 1000, shapes: int = 60, seed: int = 1
) -> list[Manifest]:
    """Return nodes of one type with the pods of 200 Deployments, and pending pods of `shapes` Deployments.

    The running pods are spread evenly over the nodes. Of the Deployments of pending pods, every third has a spread over
    zones (half of these required), and every fifth has anti-affinity to itself.
    """
    dice = random.Random(seed)  # noqa: S311
    found = [node(f"node-{n:05d}", ZONES[n % len(ZONES)]) for n in range(nodes)]
    for number in range(pods):
        app = f"old-{number * 7 % 200}"
        bound = pod(
            f"{app}-{number:05d}", dice.randint(2, 8) * 100, dice.choice((512, 1024, 2048)), {"app": app}
        )
        bound["spec"]["nodeName"] = found[number % nodes]["metadata"]["name"]
        bound["status"] = {"phase": "Running"}
        found.append(owned(bound, app))
    return found + [_waiting(number, shapes) for number in range(pending)]


def _waiting(number: int, shapes: int) -> Manifest:
    kind = number % shapes
    app, spec = f"new-{kind}", {}
    if kind % 3 == 0:
        spec["topologySpreadConstraints"] = spread(hard=kind % 2 == 0, app=app)
    if kind % 5 == 0:
        spec["affinity"] = anti_affinity(app)
    cpu, memory = 100 + kind * 137 % 3900, 128 + kind * 613 % 8000
    return owned(pod(f"{app}-{number:04d}", cpu, memory, {"app": app}, **spec), app)


def node(name: str, zone: str, **labels: str) -> Manifest:
    """Return a ready m5.2xlarge of NodePool `default`."""
    offered = {"cpu": f"{_CPU}m", "memory": f"{_MEMORY}Mi", "pods": "58", "ephemeral-storage": "17Gi"}
    known = {
        "karpenter.sh/nodepool": "default",
        "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true",
        "karpenter.sh/capacity-type": "on-demand",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "m5.2xlarge",
        "topology.kubernetes.io/region": zone[:-1],
        ZONE: zone,
        HOSTNAME: name,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**known, **labels}},
        "spec": {"providerID": f"aws:///{zone}/i-{name}"},
        "status": {
            "capacity": {**offered, "cpu": "8"},
            "allocatable": offered,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
