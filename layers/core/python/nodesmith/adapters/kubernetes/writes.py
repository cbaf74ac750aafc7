"""Writes to the API server: patches to the wanted state, and nominations of pods for nodes, many in parallel."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote

from nodesmith.adapters.kubernetes.apiserver import ApiServer, Manifest, Unfit
from nodesmith.errors import Conflict, Transient
from nodesmith.model.apimachinery.labels import REGISTERED
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.karpenter.nodeclaimobjects import END, LAUNCHED, SHOWN_WHILE_TRUE
from nodesmith.model.karpenter.nodeclaims import write_taints
from nodesmith.model.kubernetes.nodes import NodePatch
from nodesmith.model.schema.nodeclaims import NODE_CLAIM
from nodesmith.observation.mirror import WATCHED


def merged_status(current: Manifest, new: Manifest, now: datetime, generation: int = 0) -> dict[str, Any]:
    """Return the current status with wanted fields replaced and conditions merged by type.

    Conditions of a NodeClaim's end, and those that come and go, are of the object's `generation`, if it has one. Empty
    lists are left out, as in Karpenter's objects.
    """
    merged = {name: value for name, value in {**current, **new}.items() if value != []}
    if "conditions" in new:
        wanted = [_of_generation(condition, generation) for condition in new["conditions"]]
        merged["conditions"] = merged_conditions(current.get("conditions") or (), wanted, now)
    return merged


def _of_generation(condition: Manifest, generation: int) -> Manifest:
    # A deletion increments the generation, and `kubectl wait` ignores conditions of an earlier one.
    is_current = condition["type"] in END or condition["type"] in SHOWN_WHILE_TRUE
    return {**condition, "observedGeneration": generation} if is_current and generation else condition


def generation_of(manifest: Manifest) -> int:
    """Return an object's generation, 0 if the API server has not given it one."""
    return int(manifest["metadata"].get("generation") or 0)


def merged_conditions(current: Iterable[Manifest], new: Iterable[Manifest], now: datetime) -> list[Manifest]:
    """Return the merged conditions. Those of other writers are kept.

    Conditions are sorted by lastTransitionTime, with Ready last, as in Karpenter's objects. lastTransitionTime changes
    only with the status. If the status changes and the wanted condition has its own lastTransitionTime, that is used.

    The API requires a message, which may be empty, and a reason, which defaults to the type, as in Karpenter.
    Conditions that are shown only while they are true are removed if wanted as False. Once Launched is true, it stays
    true.
    """
    by_type = {str(condition["type"]): dict(condition) for condition in current}
    for condition in new:
        if condition["type"] in SHOWN_WHILE_TRUE and condition.get("status") == "False":
            by_type.pop(str(condition["type"]), None)
            continue
        before = by_type.get(str(condition["type"]), {})
        if condition["type"] == LAUNCHED and before.get("status") == "True" and condition["status"] != "True":
            continue
        since = condition.get("lastTransitionTime") or format_time(now)
        if before.get("status") == condition.get("status"):
            since = before.get("lastTransitionTime") or since
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
    reference = {"apiVersion": NODE_CLAIM.api_version, "kind": kind, "name": name, "uid": uid}
    others = [owner for owner in owners if (owner["kind"], owner["name"]) != (kind, name)]
    return {**metadata, "ownerReferences": [*others, {**reference, "blockOwnerDeletion": True}]}


def _cordoned(spec: Manifest, patch: NodePatch) -> Manifest:
    if patch.unschedulable is None:
        return spec
    remaining = {name: value for name, value in spec.items() if name != "unschedulable"}
    return {**remaining, "unschedulable": True} if patch.unschedulable else remaining


def with_finalizers(metadata: Manifest, finalizers: Iterable[str]) -> dict[str, Any]:
    """Return metadata with the wanted finalizers added, unless the object is being deleted."""
    current = list(metadata.get("finalizers") or ())
    missing = [finalizer for finalizer in finalizers if finalizer not in current]
    if not missing or metadata.get("deletionTimestamp"):
        return dict(metadata)
    return {**metadata, "finalizers": [*current, *missing]}


def without_finalizer(obj: Manifest, finalizer: str) -> dict[str, Any]:
    """Return an object without this finalizer. Other finalizers stay."""
    finalizers = obj["metadata"].get("finalizers") or []
    if finalizer not in finalizers:
        return dict(obj)
    kept = [name for name in finalizers if name != finalizer]
    return {**obj, "metadata": {**obj["metadata"], "finalizers": kept}}


def is_of(node: Manifest, provider_id: str) -> bool:
    """Return whether a Node belongs to an instance. An empty `provider_id` matches any Node.

    A Node that was restored without a provider id belongs to its claim by name: see `Node.is_restored`.
    """
    own_id = _provider_id(node)
    is_restored = not own_id and (node["metadata"].get("labels") or {}).get(REGISTERED) == "true"
    return own_id == provider_id or is_restored or not provider_id


def is_left_of(node: Manifest, provider_id: str) -> bool:
    """Return whether a Node is left over from an instance. An empty `provider_id` matches only Nodes without one."""
    return is_of(node, provider_id) and bool(provider_id or not _provider_id(node))


def _provider_id(node: Manifest) -> str:
    return (node.get("spec") or {}).get("providerID") or ""


def _taints(current: Iterable[Manifest], patch: NodePatch) -> list[Manifest]:
    removed = {taint.identity for taint in patch.remove_taints}
    remaining = [raw for raw in current if (raw["key"], raw["effect"]) not in removed]
    identities = {(raw["key"], raw["effect"]) for raw in remaining}
    added = {taint.identity: taint for taint in patch.add_taints if taint.identity not in identities}
    return [*remaining, *write_taints(added.values())]


def difference(current: Manifest, new: Manifest) -> dict[str, Any]:
    """Return the JSON merge patch (RFC 7396) from `current` to `new`, empty if they are equal."""
    patch: dict[str, Any] = {key: None for key in current if key not in new}
    for key, value in new.items():
        before = current.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            inner = difference(before, value)
            if inner:
                patch[key] = inner
        elif key not in current or before != value:
            patch[key] = value
    return patch


PATHS = {each.kind: each.path for each in WATCHED}
"""The collection path by kind."""
OLDER_PATHS = {each.kind: each.older for each in WATCHED if each.older}
"""The collection path of the version before, by kind."""


def object_path(kind: str, name: str, *, older: bool = False) -> str:
    """Return the path of an object, which for objects in a namespace is named `namespace/name`.

    With `older` it is the path in the older version of the kind.
    """
    path = OLDER_PATHS[kind] if older else PATHS[kind]
    namespace, _, short_name = name.rpartition("/")
    if not namespace:
        return f"{path}/{quote(short_name, safe='')}"
    version, _, plural = path.rpartition("/")
    return f"{version}/namespaces/{quote(namespace, safe='')}/{plural}/{quote(short_name, safe='')}"


def pod_path(pod: str, subresource: str = "") -> str:
    """Return the path of a pod (`namespace/name`) or of one of its subresources."""
    path = object_path("Pod", pod)
    return f"{path}/{subresource}" if subresource else path


READ_SECONDS = 5.0
"""Read timeout of one write, short because others wait for it."""
_AT_ONCE = 8
_ROUNDS = 2  # in the first, connections may be dead because the function was frozen

Item = TypeVar("Item", bound=Hashable)
Answer = TypeVar("Answer")


def for_each(
    items: Sequence[Item], write: Callable[[Item], Answer], failed: str, at_once: int = _AT_ONCE
) -> dict[Item, Answer]:
    """Call `write` for each distinct item, mostly a pod's `namespace/name`, and return the results in order.

    Raises Transient if items remain after two rounds. `failed` describes them in its message: `pods not evicted`.
    """
    answers: dict[Item, Answer] = {}
    remaining = list(dict.fromkeys(items))
    with ThreadPoolExecutor(at_once) as threads:
        for _ in range(_ROUNDS):
            error = _round(remaining, write, answers, threads, at_once)
            if error is None:
                return {item: answers[item] for item in dict.fromkeys(items)}
            remaining = [item for item in remaining if item not in answers]
            failure = Transient(f"{len(remaining)} {failed}, {remaining[0]} first: {error}", error.code)
    raise failure


def _round(
    items: Sequence[Item],
    write: Callable[[Item], Answer],
    answers: dict[Item, Answer],
    threads: Executor,
    most_failures: int,
) -> Transient | None:
    """Try each item once and return the first failure, if any. Stop after `most_failures` failures."""
    errors: list[Transient] = []

    def attempt(item: Item) -> None:
        if len(errors) >= most_failures:
            return
        try:
            answers[item] = write(item)
        except Transient as error:
            errors.append(error)

    for _ in threads.map(attempt, items):
        pass
    return next(iter(errors), None)


# kube-scheduler tries the node in `status.nominatedNodeName` first, and reserves the pod's resources there against
# pods of equal or lower priority (KEP-5278). The write needs no prior read: it applies only to a pod without a
# node and without a nomination. So a nomination that kube-scheduler makes by preemption always stays.
_PATH = "/status/nominatedNodeName"
_NOT_BOUND: Manifest = {"op": "test", "path": "/spec/nodeName", "value": None}


def nominate(server: ApiServer, node: str, pods: Sequence[str]) -> None:
    """Nominate pods (namespace/name) for a node. Raises Transient if pods remain after two rounds."""
    add = {"op": "add", "path": _PATH, "value": node}
    _write(server, (_NOT_BOUND, _unchanged(None), add), pods, f"pods not nominated for Node {node}")


def clear_nominations(server: ApiServer, node: str, pods: Sequence[str]) -> None:
    """Clear nominations of pods (namespace/name) for a node. Raises Transient if pods remain after two rounds."""
    remove = {"op": "remove", "path": _PATH}
    _write(server, (_NOT_BOUND, _unchanged(node), remove), pods, f"nominations for Node {node} not cleared")


def _unchanged(node: str | None) -> Manifest:
    return {"op": "test", "path": _PATH, "value": node}


def _write(server: ApiServer, operations: Sequence[Manifest], pods: Sequence[str], failed: str) -> None:
    def write(pod: str) -> None:
        try:
            server.patch_if(pod_path(pod, "status"), operations, read_seconds=READ_SECONDS)
        except (Unfit, Conflict):
            return  # bound or nominated for another node meanwhile

    for_each(pods, write, failed)
