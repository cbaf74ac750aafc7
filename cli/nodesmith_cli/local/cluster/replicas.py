"""Pods from templates, and which of them to give up first: what all workload controllers share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from math import ceil

from nodesmith_cli.local.apiserver.errors import ApiError
from nodesmith_cli.local.apiserver.objects import Object, View, controller_of, dig, name_of, parse_timestamp
from nodesmith_cli.local.apiserver.store import Store
from nodesmith_cli.local.cluster.mirrors import Mirrors
from nodesmith_cli.local.cluster.podfacts import is_ready, node_name
from nodesmith_cli.local.cluster.records import record

_SAFE = "bcdfghjklmnpqrstvwxz2456789"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def template_hash(template: View) -> str:
    """Return ten characters that stand for a pod template."""
    digest = sha256(json.dumps(template, sort_keys=True).encode()).digest()
    return "".join(_SAFE[byte % len(_SAFE)] for byte in digest[:10])


def owner_reference(owner: View) -> Object:
    """Return the reference by which `owner` controls what it makes."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_from(
    owner: View, template: View, *, name: str = "", labels: Mapping[str, str] | None = None
) -> Object:
    """Return a pod of the template; without a name the server makes one up from the owner's."""
    given = template.get("metadata") or {}
    metadata: Object = {
        "namespace": owner["metadata"]["namespace"],
        "labels": {**(given.get("labels") or {}), **(labels or {})},
        "ownerReferences": [owner_reference(owner)],
    }
    if given.get("annotations"):
        metadata["annotations"] = given["annotations"]
    metadata |= {"name": name} if name else {"generateName": f"{name_of(owner)}-"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def create_pod(store: Store, owner: View, pod: Object) -> bool:
    """Create a pod and tell; an Event says why where the server refuses it."""
    kind = f"{owner['kind'].lower()}-controller"
    try:
        created = store.create("pods", pod)
    except ApiError as error:
        record(store, owner, kind, "FailedCreate", f"Error creating: {error.message}", warning=True)
        return False
    record(store, owner, kind, "SuccessfulCreate", f"Created pod: {name_of(created)}")
    return True


def delete_pod(store: Store, owner: View, pod: View) -> None:
    """Delete a pod that is one too many."""
    store.delete("pods", name_of(pod), pod["metadata"]["namespace"])
    kind = f"{owner['kind'].lower()}-controller"
    record(store, owner, kind, "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")


def surplus(pods: Iterable[View], count: int) -> list[View]:
    """Return the `count` pods to delete first: unbound, pending, not ready, cheap by annotation, youngest."""

    def order(pod: View) -> tuple[object, ...]:
        cost = dig(pod, "metadata", "annotations", "controller.kubernetes.io/pod-deletion-cost") or "0"
        born = parse_timestamp(pod["metadata"]["creationTimestamp"]) or _LONG_AGO
        phase = _PHASES.get(dig(pod, "status", "phase") or "Pending", 1)
        return bool(node_name(pod)), phase, is_ready(pod), int(cost), -born.timestamp(), name_of(pod)

    return sorted(pods, key=order)[:count]


def share(value: object, of: int, *, up: bool) -> int:
    """Return an IntOrString as a number: a percentage is taken of `of` and rounded up or down."""
    if isinstance(value, str) and value.endswith("%"):
        exact = of * int(value[:-1]) / 100
        return ceil(exact) if up else int(exact)
    return int(str(value or 0))


def owner_key(mirrors: Mirrors, kind: str, resource: str, pod: View | None) -> tuple[str, str] | None:
    """Return the key of the `kind` that controls the pod, if it is still there."""
    owner = controller_of(pod) if pod is not None else None
    if owner is None or pod is None or owner.get("kind") != kind:
        return None
    key = (pod["metadata"]["namespace"], owner["name"])
    found = mirrors[resource].objects.get(key)
    return key if found is not None and found["metadata"]["uid"] == owner["uid"] else None


def set_status(store: Store, resource: str, obj: View, status: Object) -> bool:
    """Write the status if it says something new."""
    full = {**(obj.get("status") or {}), **status, "observedGeneration": obj["metadata"].get("generation", 0)}
    if full == obj.get("status"):
        return False
    store.patch(resource, name_of(obj), {"status": full}, obj["metadata"]["namespace"], subresource="status")
    return True
