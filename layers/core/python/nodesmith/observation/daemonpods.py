"""The pods that DaemonSets will create on new nodes, derived from their existing pods.

Webhooks, a vertical autoscaler and the namespace's LimitRanges change the requests in a pod's template. The newest pod
of a DaemonSet shows the result of all of these (karpenter: GetDaemonSetPod).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nodesmith.model.kubernetes.pods import Manifest
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.limitranges import with_default_requests, with_runtime_class
from nodesmith.observation.reduction.pods import ReducedPod

_Key = tuple[str, str]
"""A DaemonSet's namespace and name."""


def expected_pods(observed: Observed) -> Iterator[dict[str, Any]]:
    """Yield the pod that each DaemonSet would create.

    It is like the DaemonSet's newest pod. If there is none, it is the template with the changes that admission makes.
    Its affinity is always the template's, because the controller pins every existing pod to its node.
    """
    newest, defaults = _newest(observed.pods), _default_requests(observed.limitranges)
    classes = {str(each["metadata"]["name"]): each["spec"] for each in observed.runtimeclasses}
    for daemonset in observed.daemonsets:
        known, (namespace, _) = newest.get(_key(daemonset)), _key(daemonset)
        template = {**daemonset["spec"]}
        runtime = classes.get(template.pop("runtimeClassName", ""), {})
        if known:
            yield {**daemonset, "spec": _unpinned(known, template)}
        else:
            spec = with_default_requests(template, defaults.get(namespace, {}))
            yield {**daemonset, "spec": with_runtime_class(spec, runtime)}


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
