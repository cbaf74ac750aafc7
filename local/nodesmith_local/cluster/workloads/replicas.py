"""The code that all workload controllers share: changes of their pods, pods from templates, surplus pods, statuses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from math import ceil
from typing import ClassVar

from nodesmith_formats.kubernetes.errors import ApiError
from nodesmith_formats.kubernetes.objects import Object, View, controller_of, dig, name_of, parse_timestamp
from nodesmith_local.apiserver.storage.history import Key
from nodesmith_local.apiserver.storage.store import Store
from nodesmith_local.cluster.controller import Controller
from nodesmith_local.cluster.mirrors import Mirrors
from nodesmith_local.cluster.podfacts import is_ready, node_name
from nodesmith_local.cluster.records import record

_SAFE = "bcdfghjklmnpqrstvwxz2456789"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def template_hash(template: View) -> str:
    """Return a hash of a pod template, ten characters long."""
    digest = sha256(json.dumps(template, sort_keys=True).encode()).digest()
    return "".join(_SAFE[byte % len(_SAFE)] for byte in digest[:10])


def owner_reference(owner: View) -> Object:
    """Return the owner reference with which `owner` controls its dependents."""
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
    """Return a pod from the template; without `name`, the server generates one from the owner's name."""
    template_metadata = template.get("metadata") or {}
    metadata: Object = {
        "namespace": owner["metadata"]["namespace"],
        "labels": {**(template_metadata.get("labels") or {}), **(labels or {})},
        "ownerReferences": [owner_reference(owner)],
    }
    if template_metadata.get("annotations"):
        metadata["annotations"] = template_metadata["annotations"]
    metadata |= {"name": name} if name else {"generateName": f"{name_of(owner)}-"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def create_pod(store: Store, owner: View, pod: Object) -> bool:
    """Create a pod and return whether that succeeded. An Event records the reason for a refusal."""
    kind = f"{owner['kind'].lower()}-controller"
    try:
        created = store.create("pods", pod)
    except ApiError as error:
        record(store, owner, kind, "FailedCreate", f"Error creating: {error.message}", warning=True)
        return False
    record(store, owner, kind, "SuccessfulCreate", f"Created pod: {name_of(created)}")
    return True


def delete_pod(store: Store, owner: View, pod: View) -> None:
    """Delete a surplus pod and write an Event."""
    store.delete("pods", name_of(pod), pod["metadata"]["namespace"])
    kind = f"{owner['kind'].lower()}-controller"
    record(store, owner, kind, "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")


def surplus(pods: Iterable[View], count: int) -> list[View]:
    """Return the `count` pods to delete first.

    The order is unbound, pending, not ready, low deletion cost (an annotation), youngest.
    """

    def order(pod: View) -> tuple[object, ...]:
        cost = dig(pod, "metadata", "annotations", "controller.kubernetes.io/pod-deletion-cost") or "0"
        born = parse_timestamp(pod["metadata"]["creationTimestamp"]) or _LONG_AGO
        phase = _PHASES.get(dig(pod, "status", "phase") or "Pending", 1)
        return bool(node_name(pod)), phase, is_ready(pod), int(cost), -born.timestamp(), name_of(pod)

    return sorted(pods, key=order)[:count]


def share(value: object, of: int, *, up: bool) -> int:
    """Return an IntOrString as a number: a percentage refers to `of` and is rounded up or down."""
    if isinstance(value, str) and value.endswith("%"):
        exact = of * int(value[:-1]) / 100
        return ceil(exact) if up else int(exact)
    return int(str(value or 0))


class PodOwner(Controller):
    """Reconciles the objects of a `kind` that control pods, when they or their pods have changed."""

    kind: ClassVar[str]
    resource: ClassVar[str]

    def __init__(self, store: Store, mirrors: Mirrors) -> None:
        super().__init__(store, mirrors)
        mirrors[self.resource].listen(self.touch_object)
        mirrors["pods"].listen(self._touch_owner)

    def _touch_owner(self, before: View | None, after: View | None) -> None:
        self.touch(_owner_key(self.mirrors, self.kind, self.resource, after or before))


def _owner_key(mirrors: Mirrors, kind: str, resource: str, pod: View | None) -> Key | None:
    """Return the key of the pod's controller if it is of `kind` and still exists, else None."""
    owner = controller_of(pod) if pod is not None else None
    if owner is None or pod is None or owner.get("kind") != kind:
        return None
    key = (pod["metadata"]["namespace"], owner["name"])
    found = mirrors[resource].objects.get(key)
    return key if found is not None and found["metadata"]["uid"] == owner["uid"] else None


def set_status(store: Store, resource: str, obj: View, status: Object) -> bool:
    """Write the status if it differs from the current one, and return whether it did."""
    full = {**(obj.get("status") or {}), **status, "observedGeneration": obj["metadata"].get("generation", 0)}
    if full == obj.get("status"):
        return False
    store.patch(resource, name_of(obj), {"status": full}, obj["metadata"]["namespace"], subresource="status")
    return True
