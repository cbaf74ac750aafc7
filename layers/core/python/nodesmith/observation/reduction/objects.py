"""Reduce Nodes, Namespaces, budgets, ProvisioningRequests and Karpenter's objects to what decisions read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from sys import intern
from typing import Any

from nodesmith.model.apimachinery.labels import AWS_DOMAIN, in_domain
from nodesmith.model.apimachinery.times import format_time, parse_time
from nodesmith.model.karpenter.ownership import KARPENTERS_LEASE, KARPENTERS_MANAGER, is_foreign
from nodesmith.model.kubernetes.evictions import parse_budget
from nodesmith.model.kubernetes.nodes import DELETION_DELAY
from nodesmith.model.kubernetes.podannotations import NODE_PROTECTIONS, PROACTIVE, with_do_not_disrupt
from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.observation.reduction.devices import text_of
from nodesmith.observation.reduction.podspecs import interned, without_empty

_NODE_ANNOTATION_DOMAINS = ("karpenter.sh", AWS_DOMAIN, DELETION_DELAY)
_DROPPED_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
_METADATA = (
    "name",
    "uid",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "finalizers",
    "labels",
    "ownerReferences",
)
_WHEN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
"""The format of times in managedFields, which the API server itself writes. Such texts sort by time."""
_DEEPEST_LEVEL = 40
"""Free-form fields may be nested 16 levels deep. Deeper nesting is detected and refused when manifests are parsed."""
_CONDITION = ("type", "status", "reason", "message", "lastTransitionTime", "observedGeneration")
_NODE_CONDITION = ("type", "status", "reason", "lastTransitionTime")
_LONGEST_SHARED = 40
"""Longer texts are seldom equal to others."""
_STATUS = (
    "used",
    "nodes",
    "nodeClassObservedGeneration",
    "resources",
    "subnets",
    "securityGroups",
    "amis",
    "instanceProfile",
    "capacityReservations",
    "providerID",
    "lastPodEventTime",
)


def reduce_node(manifest: Manifest) -> dict[str, Any]:
    """Keep a Node's labels, taints, capacity, conditions and NodeClaims, but not its images, addresses or heartbeats.

    So a kubelet's heartbeat is no change. Raises KeyError, TypeError or AttributeError for content that no API server
    accepts.
    """
    metadata, spec, status = manifest["metadata"], manifest.get("spec") or {}, manifest.get("status") or {}
    about = {
        "name": str(metadata["name"]),
        "creationTimestamp": metadata["creationTimestamp"],
        "deletionTimestamp": metadata.get("deletionTimestamp"),
        "finalizers": metadata.get("finalizers"),
        "ownerReferences": _nodeclaims_of(metadata.get("ownerReferences") or ()),
        "labels": interned(metadata.get("labels")),
        "annotations": _node_annotations(metadata.get("annotations") or {}),
    }
    shows = {
        "capacity": _shared(status.get("capacity")),
        "allocatable": _shared(status.get("allocatable")),
        "conditions": [
            _shared(without_empty({name: c.get(name) for name in _NODE_CONDITION}))
            for c in status.get("conditions") or ()
        ],
    }
    reduced = {
        "metadata": without_empty(about),
        "spec": without_empty({name: spec.get(name) for name in ("providerID", "unschedulable", "taints")}),
        "status": without_empty(shows),
    }
    return without_empty(reduced)


def _nodeclaims_of(owners: Sequence[Manifest]) -> list[dict[str, str]]:
    """Keep the names and uids of the NodeClaims that own a Node."""
    return [
        {name: str(owner[name]) for name in ("kind", "name", "uid")}
        for owner in owners
        if owner.get("kind") == "NodeClaim"
    ]


def reduce_namespace(manifest: Manifest) -> dict[str, Any]:
    """Keep a Namespace's name, its labels, by which pod affinity may select it, and whether it is scaled proactively.

    Raises KeyError, TypeError or AttributeError for content that no API server accepts.
    """
    metadata = manifest["metadata"]
    annotation = (metadata.get("annotations") or {}).get(PROACTIVE)
    about = {
        "name": str(metadata["name"]),
        "labels": dict(metadata.get("labels") or {}),
        "annotations": {PROACTIVE: annotation} if annotation == "true" else {},
    }
    return {"metadata": without_empty(about)}


def reduce_custom(manifest: Manifest) -> dict[str, Any]:
    """Keep the whole spec of an object of a custom kind, and parts of its metadata and status.

    A NodeClaim's nodeName is kept while it is being deleted, since the deletion may not come from the ledger.

    Raises KeyError, TypeError or AttributeError for content that no API server accepts.
    """
    metadata = manifest["metadata"]
    annotations = metadata.get("annotations") or {}
    about: dict[str, Any] = {name: metadata.get(name) for name in _METADATA}
    about |= {name: _shared(metadata.get(name)) for name in ("labels", "ownerReferences", "finalizers")}
    about["name"] = str(metadata["name"])
    about["annotations"] = {n: text for n, text in annotations.items() if n != _DROPPED_ANNOTATION}
    status = manifest.get("status") or {}
    leaving = {"nodeName": status.get("nodeName")} if metadata.get("deletionTimestamp") else {}
    own_fields = {name: status.get(name) for name in _STATUS}
    reduced = {
        "apiVersion": manifest.get("apiVersion"),
        "kind": manifest.get("kind"),
        "metadata": without_empty(about),
        "spec": _cut(manifest.get("spec"), _DEEPEST_LEVEL),
        "status": without_empty(
            {**own_fields, **leaving, "conditions": _conditions(status.get("conditions") or ())}
        ),
    }
    return without_empty(reduced)


_SIGN_STEP_SECONDS = 15
"""Karpenter renews its lease every two seconds. Signs of it advance in steps of this length, which divides a minute."""


def reduce_lease(manifest: Manifest) -> dict[str, Any] | None:
    """Keep the name of Karpenter's lease, and when it was last renewed or given up. Return None for any other lease.

    Raises KeyError, TypeError or ValueError for content that no API server accepts.
    """
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    if metadata["name"] != KARPENTERS_LEASE or not spec.get("renewTime"):
        return None
    seconds = int(parse_time(str(spec["renewTime"])).timestamp())
    if spec.get("holderIdentity"):
        seconds -= seconds % _SIGN_STEP_SECONDS
    return {
        "metadata": {"name": str(metadata["name"]), "namespace": str(metadata["namespace"])},
        "renewed": format_time(datetime.fromtimestamp(seconds, UTC)),
    }


def karpenter_wrote_at(manifest: Manifest) -> str:
    """Return when Karpenter last wrote an object, as its managedFields show; empty if it never did. Never raises."""
    fields = (manifest.get("metadata") or {}).get("managedFields") or ()
    entries = [entry for entry in fields if isinstance(entry, Mapping)]
    times = (str(entry.get("time") or "") for entry in entries if entry.get("manager") == KARPENTERS_MANAGER)
    latest = max((text for text in times if _WHEN.fullmatch(text)), default="")
    return (
        f"{latest[:-3]}{int(latest[-3:-1]) // _SIGN_STEP_SECONDS * _SIGN_STEP_SECONDS:02d}Z" if latest else ""
    )


def reduce_nodeclaim(manifest: Manifest) -> dict[str, Any] | None:
    """Reduce a NodeClaim like `reduce_custom`. Return None for a NodeClaim that other software serves.

    Raises KeyError, TypeError or AttributeError for content that no API server accepts.
    """
    if is_foreign(manifest):
        return None
    reduced = reduce_custom(manifest)
    spec = reduced.get("spec") or {}
    if isinstance(spec.get("requirements"), list):
        spec["requirements"] = [_one_of(text_of(item)) for item in spec["requirements"]]
    return reduced


@lru_cache(maxsize=8192)
def _one_of(requirement: str) -> Any:
    """Return the value of a JSON text. All NodeClaims with the same text share one value."""
    return json.loads(requirement)


_BUFFER_ANNOTATIONS = ("nodesmith.dev/buffer-", "nodesmith.dev/warm-")
_BUFFER_STATUS = ("replicas", "podTemplateRef", "podTemplateGeneration", "provisioningStrategy")


def reduce_buffer(manifest: Manifest) -> dict[str, Any]:
    """Keep the spec and status of a CapacityBuffer, and nodesmith's annotations on it.

    Raises KeyError, TypeError, AttributeError or ValueError for content that no API server accepts.
    """
    reduced, metadata, status = reduce_custom(manifest), manifest["metadata"], manifest.get("status") or {}
    spec = dict(reduced.get("spec") or {})
    for reference in ("podTemplateRef", "scalableRef"):
        if spec.get(reference) is not None:
            spec[reference] = dict(spec[reference])
    annotations = metadata.get("annotations") or {}
    about = {
        **{
            name: value
            for name, value in reduced["metadata"].items()
            if name not in ("labels", "annotations")
        },
        "namespace": str(metadata["namespace"]),
        "annotations": {n: text for n, text in annotations.items() if n.startswith(_BUFFER_ANNOTATIONS)},
    }
    shown_status = {**(reduced.get("status") or {}), **_set_fields(status, _BUFFER_STATUS)}
    return {**reduced, "metadata": without_empty(about), "spec": spec, "status": shown_status}


def reduce_request(manifest: Manifest) -> dict[str, Any]:
    """Keep a ProvisioningRequest's spec and conditions. Raises KeyError, TypeError or AttributeError."""
    metadata, spec, status = manifest["metadata"], manifest.get("spec") or {}, manifest.get("status") or {}
    names = ("namespace", "name", "uid", "generation", "creationTimestamp", "deletionTimestamp")
    reduced = {name: spec.get(name) for name in ("provisioningClassName", "podSets", "parameters")}
    return without_empty(
        {
            "apiVersion": str(manifest.get("apiVersion") or ""),
            "metadata": without_empty({name: metadata.get(name) for name in names}),
            "spec": _cut(without_empty(reduced), _DEEPEST_LEVEL),
            "status": without_empty({"conditions": _conditions(status.get("conditions") or ())}),
        }
    )


def _cut(value: Any, levels: int) -> Any:
    """Return a value without parts that are nested too deeply for readers of the snapshot, with shared texts."""
    match value:
        case dict():
            return {intern(key): _cut(inner, levels - 1) for key, inner in value.items()} if levels else None
        case list():
            return [_cut(inner, levels - 1) for inner in value] if levels else None
        case str() if len(value) <= _LONGEST_SHARED:
            return intern(value)
        case _:
            return value


def _shared(value: Any) -> Any:
    """Return a value whose texts are shared with equal ones of other objects."""
    return _cut(value, _DEEPEST_LEVEL)


def _conditions(conditions: Sequence[Manifest]) -> list[dict[str, Any]]:
    return [_shared(without_empty({name: c.get(name) for name in _CONDITION})) for c in conditions]


def _node_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in with_do_not_disrupt(annotations, NODE_PROTECTIONS).items()
        if any(in_domain(name, domain) for domain in _NODE_ANNOTATION_DOMAINS)
    }


_BUDGET_METADATA = ("namespace", "name", "generation")
_SPEC = ("selector", "minAvailable", "maxUnavailable", "unhealthyPodEvictionPolicy")
_BUDGET_STATUS = (
    "disruptionsAllowed",
    "currentHealthy",
    "desiredHealthy",
    "expectedPods",
    "observedGeneration",
)


def reduce_budget(manifest: Manifest) -> dict[str, Any]:
    """Keep a PodDisruptionBudget's spec and the counts in its status, but not the pods whose evictions are in progress.

    Raises KeyError, TypeError, AttributeError or ValueError for content that no API server accepts.
    """
    parse_budget(manifest)
    metadata, spec, status = manifest["metadata"], manifest.get("spec") or {}, manifest.get("status") or {}
    about = {"namespace": str(metadata["namespace"]), "name": str(metadata["name"])}
    return {
        "metadata": {**_set_fields(metadata, _BUDGET_METADATA), **about},
        "spec": _set_fields(spec, _SPEC),
        "status": _set_fields(status, _BUDGET_STATUS),
    }


def _set_fields(part: Manifest, names: tuple[str, ...]) -> dict[str, Any]:
    """Keep the fields that are set. Zero and an empty selector have a meaning here."""
    return {name: part[name] for name in names if part.get(name) is not None}
