"""Volume rules of the scheduler: claims must exist and be bound, or wait for their first consumer.

A claim that waits for its first consumer fits any node that its class allows; `volumemaker` creates its volume there
after the pod is bound.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodesmith_formats.kubernetes.objects import View, dig
from nodesmith_local.cluster.mirrors import Mirrors
from nodesmith_local.cluster.podfacts import node_matches
from nodesmith_local.cluster.scheduler.filters import Filter
from nodesmith_local.cluster.scheduler.needs import claims_of
from nodesmith_local.cluster.scheduler.podcounts import NodeRoom

CLAIMS, VOLUMES, CLASSES = "persistentvolumeclaims", "persistentvolumes", "storageclasses.storage.k8s.io"
_IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
_CONFLICT = "node(s) had volume node affinity conflict"
_NOT_ALLOWED = "node(s) didn't find available persistent volumes to bind"


def claim_reason(pod: View, mirrors: Mirrors) -> str:
    """Return kube-scheduler's reason why a pod's claims rule out every node, or "" if they do not."""
    for name in claims_of(pod["spec"]):
        claim = mirrors[CLAIMS].objects.get((pod["metadata"]["namespace"], name))
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if "deletionTimestamp" in claim["metadata"]:
            return f'persistentvolumeclaim "{name}" is being deleted'
        if not dig(claim, "spec", "volumeName") and (reason := _unbound_reason(claim, mirrors)):
            return reason
    return ""


def volume_filters(pod: View, mirrors: Mirrors) -> Iterator[Filter]:
    """Yield a filter for each volume that only some nodes can reach."""
    for name in claims_of(pod["spec"]):
        claim = mirrors[CLAIMS].objects.get((pod["metadata"]["namespace"], name)) or {}
        volume = mirrors[VOLUMES].objects.get(("", str(dig(claim, "spec", "volumeName"))))
        required = dig(volume or {}, "spec", "nodeAffinity", "required")
        allowed = dig(class_of(claim, mirrors) or {}, "allowedTopologies")
        if required:
            yield _reachable(required, _CONFLICT)
        elif allowed and not volume:
            yield _reachable({"nodeSelectorTerms": [_term(topology) for topology in allowed]}, _NOT_ALLOWED)


def _term(topology: View) -> View:
    return {
        "matchExpressions": [
            {**expression, "operator": "In"} for expression in topology["matchLabelExpressions"]
        ]
    }


def _reachable(required: View, otherwise: str) -> Filter:
    affinity = {"affinity": {"nodeAffinity": {_REQUIRED: required}}}

    def reason(room: NodeRoom) -> str:
        return "" if node_matches(affinity, room.node) else otherwise

    return reason


def _unbound_reason(claim: View, mirrors: Mirrors) -> str:
    storage_class, name = class_of(claim, mirrors), dig(claim, "spec", "storageClassName")
    if name and storage_class is None:
        return f'storageclass.storage.k8s.io "{name}" not found'
    return (
        "" if storage_class and storage_class.get("volumeBindingMode") == "WaitForFirstConsumer" else _UNBOUND
    )


def class_of(claim: View, mirrors: Mirrors) -> View | None:
    """Return a claim's StorageClass, or None; a claim that names none gets the default class."""
    classes = {
        str(storage_class["metadata"]["name"]): storage_class
        for storage_class in mirrors[CLASSES].objects.values()
    }
    name = dig(claim, "spec", "storageClassName")
    if name is None:
        return next((storage_class for storage_class in classes.values() if _is_default(storage_class)), None)
    return classes.get(name)


def _is_default(storage_class: View) -> bool:
    return bool(dig(storage_class, "metadata", "annotations", _IS_DEFAULT) == "true")
