"""Pods and PersistentVolumeClaims, created from templates as controllers do it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from nodesmith_cli.planning.existing import Existing, Key, Manifest

_HASH_LENGTH = 10
_MOST = 150_000
"""The most pods in a cluster, from the Kubernetes documentation on large clusters."""


def pods_from(
    owner: Manifest, template: Manifest, wanted: int, there: Existing, labels: Mapping[str, str] | None = None
) -> Iterator[Manifest]:
    """Yield `wanted` pods of a template. Their names are numbered, since real names are random."""
    name, namespace = str(owner["metadata"]["name"]), str(owner["metadata"]["namespace"])
    numbers = count(1)
    for _ in range(wanted):
        number = next(n for n in numbers if Key("Pod", namespace, f"{name}-{n}") not in there.names)
        yield pod_from(owner, template, f"{name}-{number}", labels or {})


def pod_from(owner: Manifest, template: Manifest, name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return one pod of a template, with additional labels and with `owner` as its controller."""
    about, given = owner["metadata"], template.get("metadata") or {}
    metadata = {
        "name": name,
        "namespace": about["namespace"],
        "uid": f"{about['uid']}-{name}",
        "creationTimestamp": about["creationTimestamp"],
        "labels": {**(given.get("labels") or {}), **labels},
        "annotations": dict(given.get("annotations") or {}),
        "ownerReferences": [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": about["name"],
                "uid": about["uid"],
                "controller": True,
            }
        ],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def claim_from(template: Manifest, namespace: str, name: str, owner: Manifest) -> dict[str, Any]:
    """Return the PersistentVolumeClaim of a StatefulSet's pod. It outlives the StatefulSet, so it has no owner."""
    about = owner["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            **template["metadata"],
            "name": name,
            "namespace": namespace,
            "uid": f"{about['uid']}-{name}",
            "creationTimestamp": about["creationTimestamp"],
        },
        "spec": template.get("spec") or {},
    }


def number(holder: Manifest, field: str, default: int) -> int:
    """Return a count in a field. Raises ValueError, naming the field, if it is invalid."""
    value = holder.get(field)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{field} is {value!r}: must be a whole number")
    if value > _MOST:
        raise ValueError(f"{field} is {value}: no cluster runs more than {_MOST} pods")
    return value


def template_hash(template: Manifest) -> str:
    """Return a hash of a template."""
    text = json.dumps(template, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
