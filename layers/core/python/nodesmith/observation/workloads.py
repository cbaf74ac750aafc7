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
"""The fields of reduced workloads that only the forwarder needs."""
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
    owners = set()
    for buffer in buffers:
        reference = buffer["spec"].get("scalableRef")
        if reference:
            name = str(reference.get("name"))
            owners.add((referred_kind(reference), buffer["metadata"]["namespace"], name))
    return frozenset(owners)


def templates_to_pull(buffers: Iterable[Manifest]) -> frozenset[tuple[str, str, str]]:
    """Return kind, namespace and name of the objects whose images reduced CapacityBuffers want pulled in advance."""
    warm = [buffer for buffer in buffers if buffer["spec"].get("provisioningStrategy") == WARM_CAPACITY]
    templates = {
        (POD_TEMPLATE, buffer["metadata"]["namespace"], str(reference.get("name")))
        for buffer in warm
        if (reference := buffer["spec"].get("podTemplateRef"))
    }
    return referred_objects(warm) | templates


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
    yield from ((kind, workload) for kind, objects in by_kind.items() for workload in objects)


def is_concerned(workload: Manifest, kind: str, referred: Collection[Owner]) -> bool:
    """Return whether a reduced workload, or the custom resource that controls it, is one of those referred to."""
    about = workload["metadata"]
    owner, _, name = str(workload.get("owner") or "").partition("/")
    namespace = about["namespace"]
    return (kind, namespace, about["name"]) in referred or (owner, namespace, name) in referred


def controlled_templates(observed: Observed, referred: Iterable[Owner]) -> Iterator[dict[str, Any]]:
    """Yield a template for each object of another kind that controls workloads or pods, as for these kinds.

    The newest of its workloads that want pods has the template, or else its newest pod: the way of Cluster Autoscaler,
    which reads the scale subresource instead. It wants as many pods as its workloads want, plus the existing pods that
    it creates itself.
    """
    wanted_ones = {owner for owner in referred if owner[0] not in SCALABLE_KINDS}
    if not wanted_ones:
        return
    through: dict[Owner, list[Manifest]] = {}
    for _, workload in workloads(observed):
        kind, _, name = str(workload.get("owner") or "").partition("/")
        if (owner := (kind, workload["metadata"]["namespace"], name)) in wanted_ones:
            through.setdefault(owner, []).append(workload)
    owned_pods: dict[Owner, list[ReducedPod]] = {}
    for pod in observed.pods:
        owner = kind_key(pod.owner_kind, pod.owner_group), pod.namespace, pod.owner_name
        if owner in wanted_ones and not pod.deleting:
            owned_pods.setdefault(owner, []).append(pod)
    for owner in sorted(through.keys() | owned_pods.keys()):
        yield _controlled(owner, through.get(owner, []), owned_pods.get(owner, []))


def _controlled(owner: Owner, through: list[Manifest], owned_pods: list[ReducedPod]) -> dict[str, Any]:
    kind, namespace, name = owner
    about = {"kind": kind, "metadata": {"namespace": namespace, "name": name, "generation": 0}}
    replicas = sum(int(workload["replicas"]) for workload in through) + len(owned_pods)
    if through:
        newest = max(through, key=lambda w: (w["replicas"] > 0, w["created"], w["metadata"]["name"]))
        return {**about, "replicas": replicas, "pod": newest["pod"], "images": newest["images"]}
    pod = max(owned_pods, key=lambda pod: (pod.created, pod.name))
    metadata = {"namespace": namespace, "labels": dict(pod.labels)}
    return {
        **about,
        "replicas": replicas,
        "pod": {"metadata": metadata, "spec": json.loads(pod.shape)["spec"]},
    }


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
    proactive = {
        str(namespace["metadata"]["name"]) for namespace in observed.namespaces if is_proactive(namespace)
    }
    if not proactive:
        return
    growing: dict[Owner, tuple[int, Manifest]] = {}
    for kind, workload in workloads(observed):
        owner = (kind, str(workload["metadata"]["namespace"]), str(workload["metadata"]["name"]))
        if owner[1] in proactive and wanted(workload):
            grown = observed.growths.get("/".join(owner), int(workload["size"]["created"]))
            if grown > (now - LACKING_FOR).timestamp():
                growing[owner] = grown, workload
    pods_by_owner = _accounted_pods(observed.pods, growing, now.timestamp())
    for owner, (grown, workload) in sorted(growing.items(), key=lambda item: item[0]):
        mine = pods_by_owner.get(owner, [])
        lacking = _lacking(workload, mine)
        if lacking > 0:
            about = {"kind": owner[0], "metadata": workload["metadata"], "lacking": lacking, "grown": grown}
            yield {**about, "pod": _pod(owner, workload, mine)}


def _accounted_pods(
    pods: Iterable[ReducedPod], growing: Collection[Owner], now: float
) -> dict[Owner, list[ReducedPod]]:
    """Return the pods of workloads that need not be planned: they have a node, or decisions see them waiting."""
    pods_by_owner: dict[Owner, list[ReducedPod]] = {}
    for pod in pods:
        owner = owner_of(pod)
        is_known = pod.bound_or_nominated_node or pod.unschedulable or now - pod.created > _UNJUDGED_SECONDS
        if owner is not None and owner in growing and is_known:
            pods_by_owner.setdefault(owner, []).append(pod)
    return pods_by_owner


def _lacking(workload: Manifest, pods: list[ReducedPod]) -> int:
    """Return how many pods are to come: at most one of a workload that creates them one by one, once all are ready."""
    missing = wanted(workload) - len(pods)
    if not workload["size"].get("serial"):
        return missing
    return min(missing, 1) if all(pod.ready for pod in pods) else 0


def _pod(owner: Owner, workload: Manifest, pods: list[ReducedPod]) -> dict[str, Any]:
    """Return the pod to plan: like the newest one, since webhooks may have changed it, or like the template.

    A StatefulSet's template may have changed since its newest pod was created.
    """
    kind, _, name = owner
    name_field = {"name": name} if kind != "Job" else {}
    pod = workload["pod"]
    about = {**pod["metadata"], "ownerReferences": [{"kind": kind, "controller": True, **name_field}]}
    if not pods or kind == "StatefulSet":
        return {**pod, "metadata": about}
    newest = max(pods, key=lambda pod: (pod.created, pod.name))
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
        node_spec = newest.get(_key(daemonset))
        yield (
            {**daemonset, "spec": _unpinned(node_spec, daemonset["spec"])}
            if node_spec
            else admitted(daemonset)
        )


def pod_templates(observed: Observed) -> Iterator[dict[str, Any]]:
    """Yield the cluster's PodTemplates, and the workloads and custom resources that CapacityBuffers refer to.

    `pod` of each is the pod that the API server would admit.
    """
    admitted, referred = admission(observed), referred_objects(observed.capacitybuffers)
    pulled = templates_to_pull(observed.capacitybuffers)
    for template in observed.podtemplates:
        visible = _visible_template(template, "PodTemplate", pulled)
        yield {**visible, "kind": "PodTemplate", "pod": admitted(template["pod"])}
    for kind, workload in workloads(observed) if referred else ():
        if (kind, workload["metadata"]["namespace"], workload["metadata"]["name"]) in referred:
            told = {
                name: value
                for name, value in _visible_template(workload, kind, pulled).items()
                if name not in _UNTOLD
            }
            yield {**told, "kind": kind, "pod": admitted(workload["pod"])}
    for workload in controlled_templates(observed, referred):
        yield {**_visible_template(workload, workload["kind"], pulled), "pod": admitted(workload["pod"])}


def _visible_template(template: Manifest, kind: str, pulled: Collection[tuple[str, str, str]]) -> Manifest:
    """Return a template, without its images unless instances pull them."""
    about = template["metadata"]
    if template.get("images") and (kind, about["namespace"], about["name"]) in pulled:
        return template
    return {name: value for name, value in template.items() if name != "images"}


def admission(observed: Observed) -> Callable[[Manifest], dict[str, Any]]:
    """Return a function that makes the changes of admission to a reduced pod from a template."""
    defaults = _default_requests(observed.limitranges)
    classes = {
        str(runtime_class["metadata"]["name"]): runtime_class["spec"]
        for runtime_class in observed.runtimeclasses
    }

    def admitted(pod: Manifest) -> dict[str, Any]:
        template = {**pod["spec"]}
        runtime = classes.get(template.pop("runtimeClassName", ""), {})
        spec = with_default_requests(template, defaults.get(str(pod["metadata"]["namespace"]), {}))
        return {**pod, "spec": with_runtime_class(spec, runtime)}

    return admitted


def _default_requests(limit_ranges: Iterable[Manifest]) -> dict[str, Mapping[str, Any]]:
    """Return the default requests of containers by namespace. If several LimitRanges apply, the first by name wins."""
    requests_by_namespace: dict[str, Mapping[str, Any]] = {}
    for limit_range in sorted(limit_ranges, key=lambda limit_range: str(limit_range["metadata"]["name"])):
        namespace = str(limit_range["metadata"]["namespace"])
        requests_by_namespace[namespace] = {
            **limit_range["requests"],
            **requests_by_namespace.get(namespace, {}),
        }
    return requests_by_namespace


def _newest(pods: Iterable[ReducedPod]) -> dict[_Key, Manifest]:
    """Return the spec of the newest pod of each DaemonSet; if several have the same age, of the last by name."""
    youngest: dict[tuple[str, str], tuple[int, str]] = {}  # for each shape, since only shapes need parsing
    for pod in pods:
        if pod.owner_kind == "DaemonSet":
            alike, age = (pod.namespace, pod.shape), (pod.created, pod.name)
            youngest[alike] = max(age, youngest.get(alike, age))
    newest: dict[_Key, Manifest] = {}
    for (_, shape), _ in sorted(youngest.items(), key=lambda item: item[1]):
        manifest = json.loads(shape)
        newest[_key(manifest)] = manifest.get("spec") or {}
    return newest


def _unpinned(spec: Manifest, template: Manifest) -> Mapping[str, Any]:
    affinity = {"affinity": template["affinity"]} if template.get("affinity") else {}
    return {**spec, **affinity}


def _key(manifest: Manifest) -> _Key:
    metadata = manifest["metadata"]
    return str(metadata["namespace"]), str(metadata["ownerReferences"][0]["name"])
