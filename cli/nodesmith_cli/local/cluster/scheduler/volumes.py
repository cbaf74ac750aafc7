"""Volumes that decide where a pod may be: its claims must exist and be bound, or wait for the pod to be placed.

Nobody here makes volumes: a claim that waits for its first consumer counts as one that can be served on any node.
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
        claim = mirrors[CLAIMS].objects.get((pod["metadata"]["namespace"], name))
        volume = mirrors[VOLUMES].objects.get(("", str(dig(claim or {}, "spec", "volumeName"))))
        required = dig(volume or {}, "spec", "nodeAffinity", "required")
        if required:
            yield _reachable({"affinity": {"nodeAffinity": {_REQUIRED: required}}})


def _reachable(affinity: View) -> Filter:
    def reason(room: NodeRoom) -> str:
        return "" if node_matches(affinity, room.node) else "node(s) had volume node affinity conflict"

    return reason


def _unbound_reason(claim: View, mirrors: Mirrors) -> str:
    classes = {str(each["metadata"]["name"]): each for each in mirrors[CLASSES].objects.values()}
    name = dig(claim, "spec", "storageClassName")
    if name is None:
        name = next((known for known, each in classes.items() if _is_default(each)), "")
    if name and name not in classes:
        return f'storageclass.storage.k8s.io "{name}" not found'
    waits = name and classes[name].get("volumeBindingMode") == "WaitForFirstConsumer"
    return "" if waits else _UNBOUND


def _is_default(storage_class: View) -> bool:
    return bool(dig(storage_class, "metadata", "annotations", _IS_DEFAULT) == "true")
