"""Workloads: pods of one controller with equal scheduling constraints. An evicted pod is replaced by another one."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from nodesmith.model.ec2.attachablevolumes import ATTACHABLE
from nodesmith.model.karpenter.nodeclaims import write_requirements
from nodesmith.model.kubernetes.pods import Pod, Shape

_DIGITS = 8


class Workloads:
    """Names workloads: `controller-constraints`, both as digests. Each shape is processed once."""

    def __init__(self) -> None:
        self._asked: dict[Shape, str] = {}
        self._owners: dict[tuple[str, str], str] = {}

    def of(self, pod: Pod) -> str:
        """Return the name of a pod's workload. A pod without a controller is a workload of its own."""
        if pod.shape not in self._asked:
            self._asked[pod.shape] = _digest(_asked(pod.shape))
        return f"{self.controller_of(pod)}-{self._asked[pod.shape]}"

    def controller_of(self, pod: Pod) -> str:
        """Return the first part of the names of all workloads of a pod's controller (see `controller`)."""
        owner = pod.shape.namespace, pod.shape.owner or pod.key
        if owner not in self._owners:
            self._owners[owner] = _digest(owner)
        return self._owners[owner]


def controller(workload: str) -> str:
    """Return the part of a workload's name that identifies its controller."""
    return workload.partition("-")[0]


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:_DIGITS]


def _asked(shape: Shape) -> dict[str, Any]:
    """Return what determines where pods may run, except what differs between pods: volumes and labels with names."""
    requests = shape.requests.nonzero().items()
    return {
        "requests": {name: amount for name, amount in requests if not name.startswith(ATTACHABLE)},
        "terms": [write_requirements(term) for term in shape.own_terms],
        "tolerations": [[t.key, t.operator, t.value, t.effect] for t in shape.tolerations],
        "ports": shape.host_ports,
        "spreads": [[s.topology_key, s.max_skew, s.hard] for s in shape.spreads],
        "affinities": [[a.topology_key, a.anti, a.weight] for a in shape.affinities],
        "priority": shape.priority,
    }
