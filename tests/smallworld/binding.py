"""The scheduler of the small world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from nodesmith.model.apimachinery.labels import ZONE
from nodesmith.model.apimachinery.quantities import Resources, parse_resources, total

Manifest = dict[str, Any]


def bind_groups(
    pods: Mapping[str, Manifest], nodes: Mapping[str, Manifest], groups: Mapping[str, int]
) -> None:
    """Bind pods as the scheduler plugins would: those of a group if so many are bound then, all others as `bind`."""
    label = "scheduling.x-k8s.io/pod-group"
    grouped: dict[str, list[Manifest]] = {name: [] for name in groups}
    alone: list[Manifest] = []
    for pod in pods.values():
        grouped.get(pod["metadata"]["labels"].get(label, ""), alone).append(pod)
    bind(pods, nodes, alone)
    for name, members in grouped.items():
        before = [(pod, dict(pod["spec"]), dict(pod["status"])) for pod in members]
        bind(pods, nodes, members)
        if sum(bool(pod["spec"].get("nodeName")) for pod in members) < groups[name]:
            for pod, spec, status in before:
                pod["spec"], pod["status"] = spec, status


def bind(
    pods: Mapping[str, Manifest], nodes: Mapping[str, Manifest], these: Sequence[Manifest] | None = None
) -> None:
    """Bind pods, or only `these`, as the scheduler would: to Nodes that are Ready, untainted, and have room.

    It tries the nominated Node first, and clears the nomination whether it succeeds or not. Pods with a spread over
    zones go to the zone with the fewest of them that has room.
    """
    for pod in pods.values() if these is None else these:
        if pod["spec"].get("nodeName"):
            continue
        nominated = pod["status"].pop("nominatedNodeName", "")
        placed_in = _placed_by_zone(pod, pods, nodes)
        tried = sorted(
            nodes.items(),
            key=lambda item: (item[0] != nominated, placed_in[item[1]["metadata"]["labels"].get(ZONE, "")]),
        )
        found = next((name for name, node in tried if _takes(node, pod, pods)), None)
        if found is not None:
            pod["spec"]["nodeName"] = found
            pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]


def places(pod: Manifest) -> tuple[str, str]:
    """Return the Node that a pod runs on, and the Node on which it is nominated."""
    return pod["spec"].get("nodeName", ""), pod["status"].get("nominatedNodeName", "")


def _placed_by_zone(
    pod: Manifest, pods: Mapping[str, Manifest], nodes: Mapping[str, Manifest]
) -> Counter[str]:
    """Count a pod's peers by zone if the pod has a spread over zones; otherwise return an empty Counter."""
    spreads = pod["spec"].get("topologySpreadConstraints") or ()
    if not any(spread["topologyKey"] == ZONE for spread in spreads):
        return Counter()
    zones = {name: n["metadata"]["labels"].get(ZONE, "") for name, n in nodes.items()}
    labels = pod["metadata"]["labels"]
    alike = [
        p
        for p in pods.values()
        if p["metadata"]["labels"] == labels and not p["metadata"].get("deletionTimestamp")
    ]
    return Counter(zones.get(p["spec"].get("nodeName", ""), "") for p in alike)


def _takes(node: Manifest, pod: Manifest, pods: Mapping[str, Manifest]) -> bool:
    ready = any(c["status"] == "True" for c in node["status"]["conditions"])
    if not ready or node["spec"].get("taints") or node["spec"].get("unschedulable"):
        return False
    name = node["metadata"]["name"]
    mine = [p for p in pods.values() if p is not pod and name in places(p)]
    offered = _read(tuple(node["status"]["allocatable"].items()))
    return _requests(pod).fits_in(offered - total([_requests(p) for p in mine]))


def _requests(pod: Manifest) -> Resources:
    asked = pod["spec"]["containers"][0]["resources"]["requests"]
    return _read((*asked.items(), ("pods", "1")))


@lru_cache(maxsize=1000)
def _read(quantities: tuple[tuple[str, str], ...]) -> Resources:
    return parse_resources(dict(quantities))
