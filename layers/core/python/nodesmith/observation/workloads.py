"""Workloads: those that CapacityBuffers refer to, those that lack pods because they have just grown, and DaemonSets.

Proactive scale-up reads ReplicaSets, StatefulSets and Jobs of Namespaces that ask for it. Their controllers create pods
at a limited rate (20 a second by default), so the pods of a large growth come over minutes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from nodesmith.model.karpenter.bufferannotations import WARM_CAPACITY
from nodesmith.model.karpenter.capacitybuffers import (
    POD_TEMPLATE,
    SCALABLE_KINDS,
    kind_key,
    referred_kind,
)
from nodesmith.model.kubernetes.podannotations import PROACTIVE
from nodesmith.model.kubernetes.pods import GROWING, LACKING_FOR, Manifest
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.pods import ReducedPod
from nodesmith.observation.reduction.podspecs import with_default_requests, with_runtime_class

_UNJUDGED_SECONDS = 10
"""How old a pod may be that kube-scheduler has not judged yet and that still counts as missing."""
_UNTOLD = frozenset({"size", "owner", "created"})
"""What reduced workloads have for the forwarder alone."""
Owner = tuple[str, str, str]
"""Kind, namespace and name of a workload."""


def watched_kinds(buffers: Iterable[Manifest], namespaces: Iterable[Manifest]) -> frozenset[str]:
    """Return the kinds of workloads to read, given the reduced CapacityBuffers and Namespaces.

    A custom resource that a buffer refers to may create its pods through any of them.
    """
    referred = frozenset(kind for kind, _, _ in referred_objects(buffers))
    if referred - SCALABLE_KINDS.keys():
        referred = frozenset(SCALABLE_KINDS)
    return referred | frozenset(GROWING) if any(map(is_proactive, namespaces)) else referred


def referred_objects(buffers: Iterable[Manifest]) -> frozenset[Owner]:
    """Return `kind_key`, namespace and name of the workloads that reduced CapacityBuffers refer to."""
    found = set()
    for buffer in buffers:
        reference = buffer["spec"].get("scalableRef")
        if reference:
            name = str(reference.get("name"))
            found.add((referred_kind(reference), buffer["metadata"]["namespace"], name))
    return frozenset(found)


def templates_to_pull(buffers: Iterable[Manifest]) -> frozenset[tuple[str, str, str]]:
    """Return kind, namespace and name of the objects whose images reduced CapacityBuffers want pulled in advance."""
    warm = [each for each in buffers if each["spec"].get("provisioningStrategy") == WARM_CAPACITY]
    named = {
        (POD_TEMPLATE, each["metadata"]["namespace"], str(reference.get("name")))
        for each in warm
        if (reference := each["spec"].get("podTemplateRef"))
    }
    return referred_objects(warm) | named


def is_proactive(namespace: Manifest) -> bool:
    """Return whether a reduced Namespace asks for proactive scale-up."""
    return (namespace["metadata"].get("annotations") or {}).get(PROACTIVE) == "true"


def workloads(observed: Observed) -> Iterator[tuple[str, Manifest]]:
    """Yield all reduced workloads, each with its kind."""
    by_kind = {
        "Deployment": observed.deployments,
        "ReplicaSet": observed.replicasets,
        "StatefulSet": observed.statefulsets,
        "Job": observed.jobs,
    }
    yield from ((kind, each) for kind, objects in by_kind.items() for each in objects)


def is_concerned(workload: Manifest, kind: str, referred: Collection[Owner]) -> bool:
    """Return whether a reduced workload, or the custom resource that controls it, is one of those referred to."""
    about = workload["metadata"]
    owner, _, name = str(workload.get("owner") or "").partition("/")
    namespace = about["namespace"]
    return (kind, namespace, about["name"]) in referred or (owner, namespace, name) in referred


def controlled_templates(observed: Observed, referred: Iterable[Owner]) -> Iterator[dict[str, Any]]:
    """Yield a template for each object of another kind that controls workloads or pods, as for these kinds.

    The newest of its workloads that want pods has the template, or else its newest pod: the way of Cluster Autoscaler,
    which reads the scale subresource instead. How many pods it wants is what its workloads want, and the pods there are
    of those that it creates itself.
    """
    wanted_ones = {owner for owner in referred if owner[0] not in SCALABLE_KINDS}
    if not wanted_ones:
        return
    through: dict[Owner, list[Manifest]] = {}
    for _, each in workloads(observed):
        kind, _, name = str(each.get("owner") or "").partition("/")
        if (owner := (kind, each["metadata"]["namespace"], name)) in wanted_ones:
            through.setdefault(owner, []).append(each)
    own: dict[Owner, list[ReducedPod]] = {}
    for pod in observed.pods:
        owner = kind_key(pod.owner_kind, pod.owner_group), pod.namespace, pod.owner_name
        if owner in wanted_ones and not pod.deleting:
            own.setdefault(owner, []).append(pod)
    for owner in sorted(through.keys() | own.keys()):
        yield _controlled(owner, through.get(owner, []), own.get(owner, []))


def _controlled(owner: Owner, through: list[Manifest], own: list[ReducedPod]) -> dict[str, Any]:
    kind, namespace, name = owner
    about = {"kind": kind, "metadata": {"namespace": namespace, "name": name, "generation": 0}}
    replicas = sum(int(each["replicas"]) for each in through) + len(own)
    if through:
        newest = max(through, key=lambda w: (w["replicas"] > 0, w["created"], w["metadata"]["name"]))
        return {**about, "replicas": replicas, "pod": newest["pod"], "images": newest["images"]}
    pod = max(own, key=lambda pod: (pod.created, pod.name))
    made = {"namespace": namespace, "labels": dict(pod.labels)}
    return {**about, "replicas": replicas, "pod": {"metadata": made, "spec": json.loads(pod.shape)["spec"]}}


def owner_of(pod: ReducedPod) -> Owner | None:
    """Return the controller that counts a pod as one of its own; None for a pod without one, and one being deleted."""
    return (pod.owner_kind, pod.namespace, pod.owner_name) if pod.owner_name and not pod.deleting else None


def wanted(workload: Manifest | None) -> int:
    """Return how many pods a reduced workload wants, 0 if there is none or its pods cannot be planned."""
    return int(((workload or {}).get("size") or {}).get("wanted", 0))


def grown_workloads(observed: Observed, now: datetime) -> Iterator[dict[str, Any]]:
    """Yield the workloads that lack pods because they have just grown.

    `lacking` is how many, and `grown` is when it grew, in seconds since 1970. `pod` is the pod that would be created.
    If the workload has no pods yet, admission is still to change it.
    """
    asking = {str(each["metadata"]["name"]) for each in observed.namespaces if is_proactive(each)}
    if not asking:
        return
    growing: dict[Owner, tuple[int, Manifest]] = {}
    for kind, each in workloads(observed):
        owner = (kind, str(each["metadata"]["namespace"]), str(each["metadata"]["name"]))
        if owner[1] in asking and wanted(each):
            grown = observed.growths.get("/".join(owner), int(each["size"]["created"]))
            if grown > (now - LACKING_FOR).timestamp():
                growing[owner] = grown, each
    there = _there(observed.pods, growing, now.timestamp())
    for owner, (grown, each) in sorted(growing.items(), key=lambda item: item[0]):
        mine = there.get(owner, [])
        lacking = _lacking(each, mine)
        if lacking > 0:
            about = {"kind": owner[0], "metadata": each["metadata"], "lacking": lacking, "grown": grown}
            yield {**about, "pod": _pod(owner, each, mine)}


def _there(
    pods: Iterable[ReducedPod], growing: Collection[Owner], now: float
) -> dict[Owner, list[ReducedPod]]:
    """Return the pods of workloads that need not be planned: they have a node, or decisions see them waiting."""
    found: dict[Owner, list[ReducedPod]] = {}
    for pod in pods:
        owner = owner_of(pod)
        is_known = pod.bound_or_nominated_node or pod.unschedulable or now - pod.created > _UNJUDGED_SECONDS
        if owner is not None and owner in growing and is_known:
            found.setdefault(owner, []).append(pod)
    return found


def _lacking(workload: Manifest, there: list[ReducedPod]) -> int:
    """Return how many pods are to come: at most one of a workload that creates them one by one, once all are ready."""
    missing = wanted(workload) - len(there)
    if not workload["size"].get("serial"):
        return missing
    return min(missing, 1) if all(pod.ready for pod in there) else 0


def _pod(owner: Owner, workload: Manifest, there: list[ReducedPod]) -> dict[str, Any]:
    """Return the pod to plan: like the newest one, since webhooks may have changed it, or like the template.

    A StatefulSet's template may have changed since its newest pod was created.
    """
    kind, _, name = owner
    named = {"name": name} if kind != "Job" else {}
    pod = workload["pod"]
    about = {**pod["metadata"], "ownerReferences": [{"kind": kind, "controller": True, **named}]}
    if not there or kind == "StatefulSet":
        return {**pod, "metadata": about}
    newest = max(there, key=lambda pod: (pod.created, pod.name))
    return {"metadata": about, "spec": json.loads(newest.shape).get("spec") or {}}


def count_owned(counted: Counter[Owner], pod: ReducedPod, step: int) -> None:
    """Add `step` to the number of pods of a pod's controller."""
    owner = owner_of(pod)
    if owner is not None:
        counted[owner] += step
        if not counted[owner]:
            del counted[owner]


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
    newest, admitted = _newest(observed.pods), admission(observed)
    for daemonset in observed.daemonsets:
        known = newest.get(_key(daemonset))
        yield {**daemonset, "spec": _unpinned(known, daemonset["spec"])} if known else admitted(daemonset)


def pod_templates(observed: Observed) -> Iterator[dict[str, Any]]:
    """Yield the cluster's PodTemplates, and the workloads and custom resources that CapacityBuffers refer to.

    `pod` of each is the pod that the API server would admit.
    """
    admitted, wanted = admission(observed), referred_objects(observed.capacitybuffers)
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


def admission(observed: Observed) -> Callable[[Manifest], dict[str, Any]]:
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
