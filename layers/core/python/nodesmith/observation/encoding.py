"""Write a snapshot: pods are grouped by shape, and volumes are resolved to what they require of nodes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from nodesmith.model.ec2.capacity import ATTACHABLE
from nodesmith.model.karpenter.nodeclaimobjects import shown_pod_event
from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.model.kubernetes.shapereading import NAME_LABEL
from nodesmith.observation.devices import DeviceClaims
from nodesmith.observation.observed import (
    DELETING,
    FORMAT,
    NOMINATED,
    NOT_READY,
    UNSCHEDULABLE,
    VERSION,
    Observed,
    ending_nodes,
    held_volumes,
)
from nodesmith.observation.olderversions import todays
from nodesmith.observation.reduction.pods import ReducedPod
from nodesmith.observation.reduction.podspecs import with_default_requests, with_runtime_class
from nodesmith.observation.volumes import Attachments, Reach, Volumes
from nodesmith.observation.workloads import (
    controlled_templates,
    grown_workloads,
    referred_objects,
    templates_to_pull,
    workloads,
)

_COMPRESSION = 6
_UNTOLD = frozenset({"size", "owner", "created"})
"""What reduced workloads have for the forwarder alone."""


def encode(cluster: str, taken_at: datetime, observed: Observed) -> bytes:
    """Write a snapshot. `taken_at` is kept to the millisecond."""
    volumes = Volumes(observed.persistentvolumeclaims, observed.persistentvolumes, observed.storageclasses)
    attachments = Attachments(observed.pods, volumes, observed.csinodes, observed.nodes)
    names = sorted({*map(_name, observed.nodes), *(p.whereabouts for p in observed.pods if p.whereabouts)})
    index_of = {name: index for index, name in enumerate(names)}
    ending = ending_nodes(observed.nodes, observed.nodeclaims)
    daemons = list(expected_pods(observed))
    templates = list(pod_templates(observed))
    admitted = _admission(observed)
    grown = [{**each, "pod": admitted(each["pod"])} for each in grown_workloads(observed, taken_at)]
    planned = [each["pod"] for each in (*templates, *grown)]
    shapes = {*(pod.shape for pod in observed.pods), *map(_text, (*daemons, *planned))}
    nodes = sorted(observed.nodes, key=_name)
    karpenters = todays(observed)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "cluster": cluster,
        "takenAt": taken_at.astimezone(UTC).isoformat(timespec="milliseconds"),
        "nodeNames": names,
        "nodes": [_node(node, attachments.offered(node)) for node in nodes],
        "podEvents": _pod_events(observed, nodes),
        "pods": list(_groups(observed, volumes, attachments, _kept_keys(observed, shapes), index_of)),
        "daemonsets": sorted(daemons, key=_text),
        "podtemplates": sorted(templates, key=_text),
        "capacitybuffers": sorted(observed.capacitybuffers, key=_text),
        "nodepools": sorted(karpenters.nodepools, key=_name),
        "nodeclasses": sorted(karpenters.nodeclasses, key=_name),
        "nodeclaims": sorted(observed.nodeclaims, key=_name),
        "capacityquotas": sorted(observed.capacityquotas, key=_name),
        "namespaces": _namespaces(observed, selected_namespace_keys(shapes)),
        "poddisruptionbudgets": sorted(observed.poddisruptionbudgets, key=_text),
        "attachLimits": {driver: dict(known) for driver, known in attachments.of_new_nodes.stated.items()},
        "volumeattachments": list(held_volumes(observed.volumeattachments, ending, observed.pods, volumes)),
        **_requests(observed),
        "problems": sorted((*observed.problems, *karpenters.problems)),
    }
    if any(pod.devices for pod in observed.pods):
        document["devices"] = _device_claims(observed).document()
    if observed.nodeoverlays:
        document["nodeoverlays"] = sorted(observed.nodeoverlays, key=_name)
    signs = [(str(each["renewed"]), _held(each)) for each in observed.leases]
    if observed.karpenter_wrote[0]:
        at, what = observed.karpenter_wrote
        signs.append((at, f"wrote objects of kind {what}"))
    if signs:
        document["karpenter"] = dict(zip(("seenAt", "sign"), max(signs), strict=True))
    if grown:
        document["grownworkloads"] = grown
    return gzip.compress(_text(document).encode(), _COMPRESSION, mtime=0)


def _device_claims(observed: Observed) -> DeviceClaims:
    return DeviceClaims(
        observed.resourceclaims,
        observed.resourceclaimtemplates,
        observed.deviceclasses,
        observed.resourceslices,
    )


def _held(lease: Manifest) -> str:
    metadata = lease["metadata"]
    return f"held the lease {metadata['namespace']}/{metadata['name']}"


def _requests(observed: Observed) -> dict[str, Any]:
    """Return the ProvisioningRequests and groups of pods as a part of the document, empty if there are none."""
    found = {
        "provisioningrequests": sorted(observed.provisioningrequests, key=_text),
        "podgroups": sorted(
            (*observed.podgroups, *observed.workloads, *observed.schedulerpodgroups), key=_text
        ),
    }
    return {name: objects for name, objects in found.items() if objects}


def _namespaces(observed: Observed, keys: Collection[str]) -> Mapping[str, Mapping[str, str]]:
    """Return the namespaces with the labels that affinity terms select by, empty if no term selects namespaces."""
    if not keys:
        return {}
    pods = (pod.namespace for pod in observed.pods)
    others = (*observed.daemonsets, *observed.podtemplates, *observed.capacitybuffers)
    owners = (str(each["metadata"]["namespace"]) for each in others)
    labels: dict[str, dict[str, str]] = {name: {NAME_LABEL: name} for name in (*pods, *owners)}
    labels.update({_name(n): n["metadata"].get("labels") or {} for n in observed.namespaces})
    return {name: {k: v for k, v in own.items() if k in keys} for name, own in labels.items()}


def _pod_events(observed: Observed, nodes: Iterable[Manifest]) -> list[int]:
    """Return when a pod last came to each node, began to leave it or left it, in seconds since 1970; 0 if unknown.

    Departures from before the watch began are known from the NodeClaims, in whose status they were recorded.
    """
    latest = dict(observed.departures)
    for pod in observed.pods:
        if pod.moved > latest.get(pod.node, 0):
            latest[pod.node] = pod.moved
    written = {
        provider_id: int(at.timestamp())
        for claim in observed.nodeclaims
        if (at := shown_pod_event(claim)) is not None and (provider_id := claim["status"].get("providerID"))
    }
    ids = ((node, (node.get("spec") or {}).get("providerID")) for node in nodes)
    return [max(latest.get(_name(node), 0), written.get(provider_id, 0)) for node, provider_id in ids]


class _Kind(NamedTuple):
    """What pods of a group have in common: shape, selected labels, reach and numbers of volumes, claimed devices."""

    shape: str
    labels: tuple[tuple[str, str], ...]
    terms: str
    volumes: tuple[tuple[str, int], ...]
    devices: str


def _groups(
    observed: Observed,
    volumes: Volumes,
    attachments: Attachments,
    selected: frozenset[str],
    index_of: Mapping[str, int],
) -> Iterator[Mapping[str, Any]]:
    others = sorted(selected)
    guarded = {
        name: sorted(selected | keys) for name, keys in guarded_keys(observed.poddisruptionbudgets).items()
    }
    groups: dict[_Kind, list[tuple[ReducedPod, str]]] = {}
    claims = _device_claims(observed)
    for pod in observed.pods:
        keys = guarded.get(pod.namespace, others)
        labels = tuple((key, pod.labels[key]) for key in keys if key in pod.labels)
        mounts = bool(pod.claims)  # also for pods on a node: the node may end, but their volumes stay
        reach = volumes.reach(pod) if mounts else Reach()
        refusal = reach.refusal or (attachments.refusal(pod) if mounts else "")
        devices = claims.resolved(pod.namespace, pod.devices, is_bound=bool(pod.node)) if pod.devices else ""
        kind = _Kind(pod.shape, labels, reach.terms, attachments.count(pod), devices)
        groups.setdefault(kind, []).append((pod, refusal))
    for kind, members in sorted(groups.items(), key=lambda item: item[0]):
        members.sort(key=lambda member: member[0].name)
        refusals = {pod.name: why for pod, why in members if why}
        pods = [pod for pod, _ in members]
        deletions = {pod.name: pod.deletion for pod in pods if pod.deletion is not None}
        started = {pod.name: pod.started for pod in pods if pod.started is not None}
        startups = {pod.name: pod.startup_minutes for pod in pods if pod.startup_minutes}
        rare = {"refusals": refusals, "deletions": deletions, "started": started, "startups": startups}
        yield {
            "shape": _manifest(kind),
            **_columns(pods, index_of),
            **{name: values for name, values in rare.items() if values},
        }


def _manifest(kind: _Kind) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(kind.shape)
    if kind.labels:
        manifest["metadata"]["labels"] = dict(kind.labels)
    if kind.terms:
        manifest["spec"]["volumeNodeAffinity"] = json.loads(kind.terms)
    if kind.volumes:
        manifest["spec"]["attachments"] = {ATTACHABLE + driver: n for driver, n in kind.volumes}
    if kind.devices:
        manifest["spec"]["deviceClaims"] = json.loads(kind.devices)
    return manifest


def _node(node: Manifest, attachable: Mapping[str, int]) -> Manifest:
    if not attachable:
        return node
    status = node.get("status") or {}
    return {**node, "status": {**status, "allocatable": {**(status.get("allocatable") or {}), **attachable}}}


def _columns(pods: Sequence[ReducedPod], index_of: Mapping[str, int]) -> dict[str, Any]:
    return {
        "names": [pod.name for pod in pods],
        "created": [pod.created for pod in pods],
        "nodes": [index_of.get(pod.whereabouts, -1) for pod in pods],
        "flags": [_flags(pod) for pod in pods],
    }


def _flags(pod: ReducedPod) -> int:
    flags = UNSCHEDULABLE * pod.unschedulable | NOMINATED * bool(pod.nominated_node)
    return flags | DELETING * pod.deleting | NOT_READY * (not pod.ready)


def _name(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


# Labels that no selector in the cluster uses (`job-name`, `statefulset.kubernetes.io/pod-name`, `pod-template-
# hash`, a workflow's run id …) cannot affect decisions, but would give every pod a shape of its own.
_KEY_LISTS = ("matchLabelKeys", "mismatchLabelKeys")


def _kept_keys(observed: Observed, shapes: Iterable[str]) -> frozenset[str]:
    return selected_keys(shapes) | frozenset(observed.labels_kept)


def selected_keys(shapes: Iterable[str]) -> frozenset[str]:
    """Return the pod label keys that any spread constraint or pod (anti-)affinity term in these manifests uses."""
    return frozenset().union(*map(_keys_of, shapes))


def guarded_keys(budgets: Iterable[Mapping[str, Any]]) -> Mapping[str, frozenset[str]]:
    """Return the pod label keys that PodDisruptionBudgets use, by namespace, since they only select in their own."""
    found: dict[str, frozenset[str]] = {}
    for budget in budgets:
        namespace = budget["metadata"]["namespace"]
        selector = (budget.get("spec") or {}).get("selector") or {}
        found[namespace] = found.get(namespace, frozenset()).union(_selector_keys(selector))
    return found


def selected_namespace_keys(shapes: Iterable[str]) -> frozenset[str]:
    """Return the namespace label keys that any namespaceSelector in these manifests uses."""
    return frozenset().union(*map(_namespace_keys_of, shapes))


@lru_cache(maxsize=8192)
def _keys_of(shape: str) -> frozenset[str]:
    spec = json.loads(shape).get("spec") or {}
    return frozenset(key for constraint in _constraints(spec) for key in _keys(constraint))


@lru_cache(maxsize=8192)
def _namespace_keys_of(shape: str) -> frozenset[str]:
    if "namespaceSelector" not in shape:
        return frozenset()
    spec = json.loads(shape).get("spec") or {}
    selectors = (term.get("namespaceSelector") for term in _constraints(spec))
    return frozenset(key for selector in selectors for key in _selector_keys(selector or {}))


def _constraints(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from spec.get("topologySpreadConstraints") or ()
    for part in ("podAffinity", "podAntiAffinity"):
        affinity = (spec.get("affinity") or {}).get(part) or {}
        yield from affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for preferred in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield preferred.get("podAffinityTerm") or {}


def _keys(constraint: Mapping[str, Any]) -> Iterator[str]:
    yield from _selector_keys(constraint.get("labelSelector") or {})
    for name in _KEY_LISTS:
        yield from constraint.get(name) or ()


def _selector_keys(selector: Mapping[str, Any]) -> Iterator[str]:
    yield from selector.get("matchLabels") or ()
    yield from (str(expression.get("key")) for expression in selector.get("matchExpressions") or ())


# The pods that DaemonSets will create on new nodes are derived from their existing pods. Webhooks, a vertical
# autoscaler and the namespace's LimitRanges change the requests in a pod's template. The newest pod of a DaemonSet
# shows the result of all of these (karpenter: GetDaemonSetPod).
_Key = tuple[str, str]
"""A DaemonSet's namespace and name."""


def expected_pods(observed: Observed) -> Iterator[dict[str, Any]]:
    """Yield the pod that each DaemonSet would create.

    It is like the DaemonSet's newest pod. If there is none, it is the template with the changes that admission makes.
    Its affinity is always the template's, because the controller pins every existing pod to its node.
    """
    newest, admitted = _newest(observed.pods), _admission(observed)
    for daemonset in observed.daemonsets:
        known = newest.get(_key(daemonset))
        yield {**daemonset, "spec": _unpinned(known, daemonset["spec"])} if known else admitted(daemonset)


def pod_templates(observed: Observed) -> Iterator[dict[str, Any]]:
    """Yield the cluster's PodTemplates, and the workloads and custom resources that CapacityBuffers refer to.

    `pod` of each is the pod that the API server would admit.
    """
    admitted, wanted = _admission(observed), referred_objects(observed.capacitybuffers)
    pulled = templates_to_pull(observed.capacitybuffers)
    for template in observed.podtemplates:
        seen = _seen(template, "PodTemplate", pulled)
        yield {**seen, "kind": "PodTemplate", "pod": admitted(template["pod"])}
    for kind, each in workloads(observed) if wanted else ():
        if (kind, each["metadata"]["namespace"], each["metadata"]["name"]) in wanted:
            kept = {name: value for name, value in _seen(each, kind, pulled).items() if name not in _UNTOLD}
            yield {**kept, "kind": kind, "pod": admitted(each["pod"])}
    for each in controlled_templates(observed, wanted):
        yield {**_seen(each, each["kind"], pulled), "pod": admitted(each["pod"])}


def _seen(template: Manifest, kind: str, pulled: Collection[tuple[str, str, str]]) -> Manifest:
    """Return a template, without its images unless instances pull them."""
    about = template["metadata"]
    if template.get("images") and (kind, about["namespace"], about["name"]) in pulled:
        return template
    return {name: value for name, value in template.items() if name != "images"}


def _admission(observed: Observed) -> Callable[[Manifest], dict[str, Any]]:
    """Return a function that makes the changes of admission to a reduced pod from a template."""
    defaults = _default_requests(observed.limitranges)
    classes = {str(each["metadata"]["name"]): each["spec"] for each in observed.runtimeclasses}

    def admitted(pod: Manifest) -> dict[str, Any]:
        template = {**pod["spec"]}
        runtime = classes.get(template.pop("runtimeClassName", ""), {})
        spec = with_default_requests(template, defaults.get(str(pod["metadata"]["namespace"]), {}))
        return {**pod, "spec": with_runtime_class(spec, runtime)}

    return admitted


def _default_requests(limit_ranges: Iterable[Manifest]) -> dict[str, Mapping[str, Any]]:
    """Return the default requests of containers by namespace. If several LimitRanges apply, the first by name wins."""
    found: dict[str, Mapping[str, Any]] = {}
    for each in sorted(limit_ranges, key=lambda each: str(each["metadata"]["name"])):
        namespace = str(each["metadata"]["namespace"])
        found[namespace] = {**each["requests"], **found.get(namespace, {})}
    return found


def _newest(pods: Iterable[ReducedPod]) -> dict[_Key, Manifest]:
    """Return the spec of the newest pod of each DaemonSet; if several have the same age, of the last by name."""
    youngest: dict[tuple[str, str], tuple[int, str]] = {}  # for each shape, since only shapes need parsing
    for pod in pods:
        if pod.owner_kind == "DaemonSet":
            alike, age = (pod.namespace, pod.shape), (pod.created, pod.name)
            youngest[alike] = max(age, youngest.get(alike, age))
    found: dict[_Key, Manifest] = {}
    for (_, shape), _ in sorted(youngest.items(), key=lambda item: item[1]):
        manifest = json.loads(shape)
        found[_key(manifest)] = manifest.get("spec") or {}
    return found


def _unpinned(spec: Manifest, template: Manifest) -> Mapping[str, Any]:
    affinity = {"affinity": template["affinity"]} if template.get("affinity") else {}
    return {**spec, **affinity}


def _key(manifest: Manifest) -> _Key:
    metadata = manifest["metadata"]
    return str(metadata["namespace"]), str(metadata["ownerReferences"][0]["name"])
