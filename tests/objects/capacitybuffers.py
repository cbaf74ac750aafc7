"""CapacityBuffers as the API server shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodesmith.model.karpenter.bufferannotations import WARM_CAPACITY

Manifest = dict[str, Any]
TEMPLATE: Mapping[str, Any] = {"podTemplateRef": {"name": "room"}}
"""The reference to the PodTemplate `room`."""


def capacitybuffer(name: str = "room", annotations: Mapping[str, str] | None = None, **spec: Any) -> Manifest:
    """Return a CapacityBuffer for two pods of the PodTemplate `room`, unless keywords replace its spec."""
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {
            "namespace": "default",
            "name": name,
            "generation": 1,
            "creationTimestamp": "2026-11-21T10:00:00Z",
            "annotations": dict(annotations or {}),
        },
        "spec": spec or {**TEMPLATE, "replicas": 2},
    }


def warm_buffer(replicas: int = 1, annotations: Mapping[str, str] | None = None, **spec: Any) -> Manifest:
    """Return a CapacityBuffer that keeps stopped instances; keywords are further fields of its spec."""
    warm = {**TEMPLATE, "replicas": replicas, "provisioningStrategy": WARM_CAPACITY}
    return capacitybuffer(annotations=annotations, **{**warm, **spec})
