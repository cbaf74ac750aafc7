"""Volumes that decide where a pod may be: its claims must exist and be bound, or wait for the pod to be placed.

A claim that waits for its first consumer can be served on any node that its class allows: its volume is made there
afterwards (`volumemaker`).
"""

from __future__ import annotations

from collections.abc import Iterator

from nodesmith_cli.local.apiserver.objects import View, dig
from nodesmith_cli.local.cluster.mirrors import Mirrors
from nodesmith_cli.local.cluster.podfacts import node_matches
from nodesmith_cli.local.cluster.scheduler.census import NodeRoom
from nodesmith_cli.local.cluster.scheduler.filters import Filter
from nodesmith_cli.local.cluster.scheduler.needs import claims_of

CLAIMS, VOLUMES, CLASSES = "persistentvolumeclaims", "persistentvolumes", "storageclasses.storage.k8s.io"
_IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
_CONFLICT = "node(s) had volume node affinity conflict"
_NOT_ALLOWED = "node(s) didn't find available persistent volumes to bind"


def claim_reason(pod: View, mirrors: Mirrors) -> str:
    """Say in kube-scheduler's words why no node at all will do; empty where the claims stand in nobody's way."""
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
    """Yield a filter for each volume that can be reached from some nodes only."""
    for name in claims_of(pod["spec"]):
        claim = mirrors[CLAIMS].objects.get((pod["metadata"]["namespace"], name)) or {}
        volume = mirrors[VOLUMES].objects.get(("", str(dig(claim, "spec", "volumeName"))))
        required = dig(volume or {}, "spec", "nodeAffinity", "required")
        allowed = dig(class_of(claim, mirrors) or {}, "allowedTopologies")
        if required:
            yield _reachable(required, _CONFLICT)
        elif allowed and not volume:
            yield _reachable({"nodeSelectorTerms": [_term(each) for each in allowed]}, _NOT_ALLOWED)


def _term(topology: View) -> View:
    return {"matchExpressions": [{**each, "operator": "In"} for each in topology["matchLabelExpressions"]]}


def _reachable(required: View, otherwise: str) -> Filter:
    affinity = {"affinity": {"nodeAffinity": {_REQUIRED: required}}}

    def reason(room: NodeRoom) -> str:
        return "" if node_matches(affinity, room.node) else otherwise

    return reason


def _unbound_reason(claim: View, mirrors: Mirrors) -> str:
    known, name = class_of(claim, mirrors), dig(claim, "spec", "storageClassName")
    if name and known is None:
        return f'storageclass.storage.k8s.io "{name}" not found'
    return "" if known and known.get("volumeBindingMode") == "WaitForFirstConsumer" else _UNBOUND


def class_of(claim: View, mirrors: Mirrors) -> View | None:
    """Return a claim's StorageClass; the default one for a claim that names none."""
    classes = {str(each["metadata"]["name"]): each for each in mirrors[CLASSES].objects.values()}
    name = dig(claim, "spec", "storageClassName")
    if name is None:
        return next((each for each in classes.values() if _is_default(each)), None)
    return classes.get(name)


def _is_default(storage_class: View) -> bool:
    return bool(dig(storage_class, "metadata", "annotations", _IS_DEFAULT) == "true")
