"""The number of pods on each node that would need another node if it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from nodesmith.observation.mirror import NODES, PODS, Change
from nodesmith.observation.reduction.pods import ReducedPod

_OF_THEIR_NODE = frozenset({"DaemonSet", "Node"})


class PlacedPods:
    """Counts pods by Node from changes. DaemonSets' pods, static pods and terminating pods do not count."""

    def __init__(self) -> None:
        self._pods: Counter[str] = Counter()
        self._nodes: dict[str, str] = {}
        """Names of Nodes by provider id."""

    def note(self, change: Change) -> None:
        """Record a change of a pod or a Node; ignore other kinds."""
        if change.kind == PODS:
            for pod, step in ((change.before, -1), (change.after, 1)):
                if pod is not None and _would_need_another(pod):
                    self._pods[pod.node] += step
                    if not self._pods[pod.node]:
                        del self._pods[pod.node]
        elif change.kind == NODES:
            for node in filter(None, (change.before, change.after)):
                self._nodes.pop(_provider_id(node.get("spec")), None)
            if change.after is not None:
                self._nodes[_provider_id(change.after.get("spec"))] = change.key

    def on_node_of(self, nodeclaim: Mapping[str, Any]) -> int:
        """Return the count for the Node of a NodeClaim; 0 if it has no Node."""
        provider_id = _provider_id(nodeclaim.get("status"))
        return self._pods[self._nodes.get(provider_id, "")] if provider_id else 0


def _would_need_another(pod: ReducedPod) -> bool:
    return bool(pod.node) and not pod.deleting and pod.owner_kind not in _OF_THEIR_NODE


def _provider_id(part: Mapping[str, Any] | None) -> str:
    return str((part or {}).get("providerID") or "")
