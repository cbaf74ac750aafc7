"""The pods that DaemonSets will make on new nodes, as those show that they have made already.

Webhooks, a vertical autoscaler and the namespace's LimitRanges change what a pod asks for after its template was
written. The newest pod of a DaemonSet shows all of that at once (karpenter: GetDaemonSetPod).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nodesmith.model.pods import Manifest
from nodesmith.observation.podreduction import ReducedPod

_Key = tuple[str, str]
"""A DaemonSet's namespace and name."""


def expected_pods(daemonsets: Iterable[Manifest], pods: Iterable[ReducedPod]) -> Iterator[dict[str, Any]]:
    """Give the pod that each DaemonSet would make: like its newest one, and where there is none, like its template.

    Its affinity is always the template's, for the controller pins every pod to a node of its own.
    """
    newest = _newest(pods)
    for daemonset in daemonsets:
        known = newest.get(_key(daemonset))
        yield {**daemonset, "spec": _unpinned(known, daemonset["spec"])} if known else {**daemonset}


def _newest(pods: Iterable[ReducedPod]) -> dict[_Key, Manifest]:
    """Give the spec of the newest pod of each DaemonSet; of two of one age, of the later name."""
    youngest: dict[tuple[str, str], tuple[int, str]] = {}  # of each shape, for only shapes need to be read
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
