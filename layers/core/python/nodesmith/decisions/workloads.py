"""Workloads: pods of one controller with equal scheduling constraints.

What is learned about a workload holds for its later pods too, since an evicted pod is replaced by another one.
"""

from __future__ import annotations

import hashlib
import json
from json.encoder import encode_basestring_ascii
from typing import Any

from nodesmith.model.apimachinery.requirements import write_requirements
from nodesmith.model.ec2.capacity import ATTACHABLE
from nodesmith.model.kubernetes.devices import DEVICES
from nodesmith.model.kubernetes.pods import Pod, Shape

_DIGITS = 8
_JSON = json.JSONEncoder(sort_keys=True)


class Workloads:
    """Names workloads: `controller-constraints`, both as digests. Each shape is processed once."""

    def __init__(self) -> None:
        self._asked: dict[Shape, str] = {}
        self._alike: dict[tuple[object, ...], str] = {}
        self._owners: dict[tuple[str, str], str] = {}

    def of(self, pod: Pod) -> str:
        """Return the name of a pod's workload. A pod without a controller is a workload of its own."""
        asked = self._asked.get(pod.shape)
        if asked is None:
            asked = self._asked[pod.shape] = self._digest_of(pod.shape)
        return f"{self.controller_of(pod)}-{asked}"

    def _digest_of(self, shape: Shape) -> str:
        """Return the digest of a shape's constraints; shapes that differ only in labels and selectors share it."""
        alike = (
            tuple(shape.requests.items()),
            shape.own_terms,
            shape.tolerations,
            shape.host_ports,
            tuple([(s.topology_key, s.max_skew, s.hard) for s in shape.spreads]),
            tuple([(a.topology_key, a.anti, a.weight) for a in shape.affinities]),
            shape.priority,
        )
        if alike not in self._alike:
            self._alike[alike] = _digest(_asked(shape))
        return self._alike[alike]

    def controller_of(self, pod: Pod) -> str:
        """Return the first part of the names of all workloads of a pod's controller (see `controller`)."""
        owner = pod.shape.namespace, pod.shape.owner or pod.key
        found = self._owners.get(owner)
        if found is None:
            text = ", ".join(map(encode_basestring_ascii, owner))  # several times faster than the encoder
            found = self._owners[owner] = _hashed(f"[{text}]")
        return found


def controller(workload: str) -> str:
    """Return the part of a workload's name that identifies its controller."""
    return workload.partition("-")[0]


def _digest(value: object) -> str:
    return _hashed(_JSON.encode(value))


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _asked(shape: Shape) -> dict[str, Any]:
    """Return what determines where pods may run, except what differs between pods: volumes and labels with names."""
    requests = shape.requests.nonzero().items()
    return {
        "requests": {name: amount for name, amount in requests if not name.startswith((ATTACHABLE, DEVICES))},
        "terms": [write_requirements(term) for term in shape.own_terms],
        "tolerations": [[t.key, t.operator, t.value, t.effect] for t in shape.tolerations],
        "ports": shape.host_ports,
        "spreads": [[s.topology_key, s.max_skew, s.hard] for s in shape.spreads],
        "affinities": [[a.topology_key, a.anti, a.weight] for a in shape.affinities],
        "priority": shape.priority,
    }
