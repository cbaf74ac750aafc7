"""Pods reduced to what a decision reads: no environment, command, image or volume content passes here.

A reduced pod is the little that is its own, plus the text of its shape's manifest. Pods whose texts are equal are alike
to the scheduler; see `selection` for the labels, which are cut down only when all pods are known.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodesmith.model.labels import DO_NOT_DISRUPT
from nodesmith.model.pods import Manifest
from nodesmith.model.times import parse_time
from nodesmith.observation.volumereduction import Mount, mounts

ANNOTATIONS = (DO_NOT_DISRUPT, "controller.kubernetes.io/pod-deletion-cost")
_NAMED_OWNERS = frozenset({"DaemonSet", "ReplicaSet", "ReplicationController", "StatefulSet"})
_TERMINAL = frozenset({"Failed", "Succeeded"})


@dataclass(frozen=True, slots=True)
class ReducedPod:
    """One pod. `shape` is the canonical JSON of its manifest without labels, `created` in seconds since 1970.

    `claims` are those of its volumes.
    """

    name: str
    namespace: str
    uid: str
    shape: str
    labels: Mapping[str, str]
    created: int
    owner_kind: str = ""
    node: str = ""
    unschedulable: bool = False
    nominated_node: str = ""
    deleting: bool = False
    claims: tuple[Mount, ...] = ()

    @property
    def whereabouts(self) -> str:
        """The node it is on or promised; empty for none."""
        return self.node or self.nominated_node

    @property
    def is_provisionable(self) -> bool:
        """True where a new node could help, by what the pod itself shows (karpenter: IsProvisionable)."""
        return (
            self.unschedulable
            and not (self.node or self.nominated_node or self.deleting)
            and self.owner_kind not in {"DaemonSet", "Node"}
        )


def reduce_pod(manifest: Manifest) -> ReducedPod | None:
    """Reduce a pod as the API gives it; None once it is terminal, for then it takes nothing from any node.

    Raises KeyError, TypeError, AttributeError or ValueError on what no API server would hold.
    """
    metadata, spec, status = manifest["metadata"], manifest["spec"], manifest.get("status") or {}
    if status.get("phase") in _TERMINAL:
        return None
    owner = _controller(metadata.get("ownerReferences") or ())
    node = sys.intern(str(spec.get("nodeName") or ""))
    scheduled = (c for c in status.get("conditions") or () if c.get("type") == "PodScheduled")
    return ReducedPod(
        name=str(metadata["name"]),
        namespace=str(metadata["namespace"]),
        uid=str(metadata["uid"]),
        shape=_shape_text(metadata, _with_infeasible(spec, status), _statuses(status), owner),
        labels=dict(metadata.get("labels") or {}),
        created=int(parse_time(metadata["creationTimestamp"]).timestamp()),
        owner_kind=owner.get("kind", ""),
        node=node,
        unschedulable=any(c.get("reason") == "Unschedulable" for c in scheduled),
        nominated_node="" if node else str(status.get("nominatedNodeName") or ""),
        deleting=bool(metadata.get("deletionTimestamp")),
        claims=mounts(metadata, spec.get("volumes") or ()),
    )


def reduce_daemonset(manifest: Manifest) -> dict[str, Any]:
    """Give the pod that a DaemonSet would make, as a reduced manifest with its labels.

    Raises KeyError, TypeError or AttributeError on what no API server would hold.
    """
    metadata, template = manifest["metadata"], manifest["spec"]["template"]
    inner = template.get("metadata") or {}
    owner = {"kind": "DaemonSet", "name": str(metadata["name"]), "controller": True}
    about = {
        "namespace": str(metadata["namespace"]),
        "labels": dict(inner.get("labels") or {}),
        "annotations": _annotations(inner),
        "ownerReferences": [owner],
    }
    return {"metadata": without_empty(about), "spec": _spec(template["spec"])}


def without_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Drop what Kubernetes reads like an absent field, so that alike objects become equal."""
    return {name: value for name, value in fields.items() if value not in (None, "", 0, [], {})}


def _shape_text(metadata: Manifest, spec: Manifest, statuses: Sequence[Manifest], owner: Manifest) -> str:
    """Write the shape. A daemon pod's affinity is left out: its controller pins every one to a node of its own."""
    about = {
        "namespace": metadata["namespace"],
        "annotations": _annotations(metadata),
        "ownerReferences": [owner] if owner else [],
    }
    shape = {
        "metadata": without_empty(about),
        "spec": _spec(spec if owner.get("kind") != "DaemonSet" else {**spec, "affinity": None}),
        "status": without_empty({"containerStatuses": _resized(spec, statuses)}),
    }
    return sys.intern(json.dumps(without_empty(shape), sort_keys=True, separators=(",", ":")))


def _controller(references: Sequence[Manifest]) -> dict[str, Any]:
    """Give the owner; by name only where it makes many like pods, for a Job of one pod would be a shape of one."""
    for reference in references:
        if reference.get("controller"):
            kind = str(reference["kind"])
            named = {"name": str(reference["name"])} if kind in _NAMED_OWNERS else {}
            return {"kind": kind, "controller": True, **named}
    return {}


def _annotations(metadata: Manifest) -> dict[str, str]:
    given = metadata.get("annotations") or {}
    return {name: str(given[name]) for name in ANNOTATIONS if name in given}


def _spec(spec: Manifest) -> dict[str, Any]:
    kept = {
        "nodeSelector": spec.get("nodeSelector"),
        "affinity": spec.get("affinity"),
        "topologySpreadConstraints": spec.get("topologySpreadConstraints"),
        "tolerations": [
            without_empty({name: t.get(name) for name in ("key", "operator", "value", "effect")})
            for t in spec.get("tolerations") or ()
        ],
        "containers": [_container(c) for c in spec.get("containers") or ()],
        "initContainers": [_container(c) for c in spec.get("initContainers") or ()],
        "resources": _pod_level(spec),
        "overhead": spec.get("overhead"),
        "priority": spec.get("priority"),
    }
    return without_empty(kept)


def _container(container: Manifest) -> dict[str, Any]:
    kept = {
        "name": container.get("name"),
        "resources": _requests(container),
        "restartPolicy": container.get("restartPolicy"),
        "ports": [
            without_empty({name: port.get(name) for name in ("hostIP", "hostPort", "protocol")})
            for port in container.get("ports") or ()
            if port.get("hostPort")
        ],
    }
    return without_empty(kept)


def _pod_level(spec: Manifest) -> dict[str, Any]:
    resources = spec.get("resources") or {}
    return without_empty({name: resources.get(name) for name in ("limits", "requests")})


def _requests(holder: Manifest) -> dict[str, Any]:
    """Keep the requests; a limit without a request is the request (pods of the API have it so, templates not)."""
    resources = holder.get("resources") or {}
    requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {"requests": requests} if requests else {}


def _resized(spec: Manifest, statuses: Sequence[Manifest]) -> list[dict[str, Any]]:
    """Keep what containers are allocated only where it differs from what they ask: while resized in place."""
    asked = {c.get("name"): _requests(c).get("requests") or {} for c in _containers(spec)}
    kept = []
    for status in statuses:
        allocated = status.get("allocatedResources") or {}
        actual = (status.get("resources") or {}).get("requests") or {}
        wanted = asked.get(status.get("name"), {})
        if any(amount != wanted.get(name) for part in (allocated, actual) for name, amount in part.items()):
            kept.append(
                {"name": status["name"], "allocatedResources": allocated, "resources": {"requests": actual}}
            )
    return kept


def _with_infeasible(spec: Manifest, status: Manifest) -> Manifest:
    """Take back a resize in place that the kubelet has called infeasible: what is allocated counts, as asked before."""
    conditions = status.get("conditions") or ()
    if not any(c.get("type") == "PodResizePending" and c.get("reason") == "Infeasible" for c in conditions):
        return spec
    allocated = {s["name"]: s["allocatedResources"] for s in _statuses(status) if s.get("allocatedResources")}
    taken_back = {
        part: [
            {**c, "resources": {"requests": allocated[c["name"]]}} if c.get("name") in allocated else c
            for c in spec.get(part) or ()
        ]
        for part in ("containers", "initContainers")
    }
    return {**spec, **taken_back}


def _statuses(status: Manifest) -> list[Manifest]:
    return [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]


def _containers(spec: Manifest) -> list[Manifest]:
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
