"""Pure functions that compute an object's new state, and the patch to it, from the current and the wanted state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery.labels import REGISTERED
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.karpenter.nodeclaimobjects import LAUNCHED, SHOWN_WHILE_TRUE
from nodesmith.model.karpenter.nodeclaims import write_taints
from nodesmith.model.kubernetes.nodes import NodePatch
from nodesmith.model.schema.nodeclaims import NODE_CLAIM

Manifest = Mapping[str, Any]


def merged_status(current: Manifest, wanted: Manifest, now: datetime) -> dict[str, Any]:
    """Return the current status with wanted fields replaced and conditions merged by type."""
    merged = {**current, **wanted}
    if "conditions" in wanted:
        merged["conditions"] = merged_conditions(current.get("conditions") or (), wanted["conditions"], now)
    return merged


def merged_conditions(
    current: Iterable[Manifest], wanted: Iterable[Manifest], now: datetime
) -> list[Manifest]:
    """Return the merged conditions. Those of other writers are kept.

    Conditions are sorted by lastTransitionTime, with Ready last, as in Karpenter's objects. lastTransitionTime changes
    only with the status. If the status changes and the wanted condition has its own lastTransitionTime, that is used.

    The API requires a message, which may be empty, and a reason, which defaults to the type, as in Karpenter.
    Conditions that are shown only while they are true are removed if wanted as False. Once Launched is true, it stays
    true.
    """
    by_type = {str(condition["type"]): dict(condition) for condition in current}
    for condition in wanted:
        if condition["type"] in SHOWN_WHILE_TRUE and condition.get("status") == "False":
            by_type.pop(str(condition["type"]), None)
            continue
        known = by_type.get(str(condition["type"]), {})
        if condition["type"] == LAUNCHED and known.get("status") == "True" and condition["status"] != "True":
            continue
        since = condition.get("lastTransitionTime") or format_time(now)
        if known.get("status") == condition.get("status"):
            since = known.get("lastTransitionTime") or since
        by_type[str(condition["type"])] = {
            **condition,
            "reason": condition.get("reason") or condition["type"],
            "message": condition.get("message") or "",
            "lastTransitionTime": since,
        }
    return sorted(by_type.values(), key=lambda c: (c["type"] == "Ready", str(c.get("lastTransitionTime"))))


def patched_node(
    node: Manifest, patch: NodePatch, nodeclaim: Manifest | None = None
) -> dict[str, Any] | None:
    """Return a Node with `patch` applied, or None if the patch is meant for another Node.

    `nodeclaim` is the object that `patch` names as owner, if it exists. Other taints, owners and labels stay.
    """
    metadata, spec = node["metadata"], node.get("spec") or {}
    if not is_of(node, patch.provider_id):
        return None
    if patch.provider_id:
        spec = {**spec, "providerID": patch.provider_id}
    taints = _taints(spec.get("taints") or (), patch)
    labels = {**(metadata.get("labels") or {}), **patch.labels}
    return {
        **node,
        "metadata": {
            **_owned(with_finalizers(metadata, patch.add_finalizers), nodeclaim),
            "labels": {key: labels[key] for key in labels if key not in patch.remove_labels},
            "annotations": {**(metadata.get("annotations") or {}), **patch.annotations},
        },
        "spec": {**_cordoned(spec, patch), **({"taints": taints} if taints or spec.get("taints") else {})},
    }


def _owned(metadata: Manifest, nodeclaim: Manifest | None) -> Manifest:
    """Return a Node's metadata with a NodeClaim as owner. It replaces an earlier NodeClaim of that name."""
    if nodeclaim is None:
        return metadata
    name, uid = nodeclaim["metadata"]["name"], nodeclaim["metadata"]["uid"]
    kind = NODE_CLAIM.name
    owners = list(metadata.get("ownerReferences") or ())
    if any((owner["kind"], owner["uid"]) == (kind, uid) for owner in owners):
        return metadata
    own = {"apiVersion": NODE_CLAIM.api_version, "kind": kind, "name": name, "uid": uid}
    others = [owner for owner in owners if (owner["kind"], owner["name"]) != (kind, name)]
    return {**metadata, "ownerReferences": [*others, {**own, "blockOwnerDeletion": True}]}


def _cordoned(spec: Manifest, patch: NodePatch) -> Manifest:
    if patch.unschedulable is None:
        return spec
    rest = {name: value for name, value in spec.items() if name != "unschedulable"}
    return {**rest, "unschedulable": True} if patch.unschedulable else rest


def with_finalizers(metadata: Manifest, wanted: Iterable[str]) -> dict[str, Any]:
    """Return metadata with the wanted finalizers added, unless the object is being deleted."""
    there = list(metadata.get("finalizers") or ())
    missing = [finalizer for finalizer in wanted if finalizer not in there]
    if not missing or metadata.get("deletionTimestamp"):
        return dict(metadata)
    return {**metadata, "finalizers": [*there, *missing]}


def without_finalizer(obj: Manifest, finalizer: str) -> dict[str, Any]:
    """Return an object without this finalizer. Other finalizers stay."""
    there = obj["metadata"].get("finalizers") or []
    if finalizer not in there:
        return dict(obj)
    kept = [each for each in there if each != finalizer]
    return {**obj, "metadata": {**obj["metadata"], "finalizers": kept}}


def is_of(node: Manifest, provider_id: str) -> bool:
    """Return whether a Node belongs to an instance. An empty `provider_id` matches any Node.

    A Node that was restored without a provider id belongs to its claim by name: see `Node.is_restored`.
    """
    own = _provider_id(node)
    is_restored = not own and (node["metadata"].get("labels") or {}).get(REGISTERED) == "true"
    return own == provider_id or is_restored or not provider_id


def is_left_of(node: Manifest, provider_id: str) -> bool:
    """Return whether a Node is left over from an instance. An empty `provider_id` matches only Nodes without one."""
    return is_of(node, provider_id) and bool(provider_id or not _provider_id(node))


def _provider_id(node: Manifest) -> str:
    return (node.get("spec") or {}).get("providerID") or ""


def _taints(current: Iterable[Manifest], patch: NodePatch) -> list[Manifest]:
    removed = {taint.identity for taint in patch.remove_taints}
    kept = [raw for raw in current if (raw["key"], raw["effect"]) not in removed]
    held = {(raw["key"], raw["effect"]) for raw in kept}
    added = {taint.identity: taint for taint in patch.add_taints if taint.identity not in held}
    return [*kept, *write_taints(added.values())]


def difference(current: Manifest, wanted: Manifest) -> dict[str, Any]:
    """Return the JSON merge patch (RFC 7396) from `current` to `wanted`, empty if they are equal."""
    patch: dict[str, Any] = {key: None for key in current if key not in wanted}
    for key, value in wanted.items():
        known = current.get(key)
        if isinstance(value, Mapping) and isinstance(known, Mapping):
            inner = difference(known, value)
            if inner:
                patch[key] = inner
        elif key not in current or known != value:
            patch[key] = value
    return patch
