"""Room on nodes that is reserved for nominated pods."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from nodesmith_local.cluster.scheduler.queue import Waiting


class Promises:
    """Pods with `status.nominatedNodeName`, until they are bound or gone."""

    def __init__(self) -> None:
        self._node: dict[str, str] = {}
        self._pods: defaultdict[str, dict[str, Waiting]] = defaultdict(dict)

    def keep(self, waiting: Waiting) -> bool:
        """Reserve room for a pod on its nominated node; return whether room elsewhere became free."""
        before = self.drop(waiting.uid)
        if waiting.nominated:
            self._node[waiting.uid] = waiting.nominated
            self._pods[waiting.nominated][waiting.uid] = waiting
        return before not in (None, waiting.nominated)

    def drop(self, uid: str) -> str | None:
        """Release the room of a pod; return its node, or None if no room was reserved."""
        node = self._node.pop(uid, None)
        if node is not None:
            del self._pods[node][uid]
        return node

    def kept_from(self, waiting: Waiting, node: str) -> Iterator[Waiting]:
        """Yield the pods whose reserved room `waiting` may not take: those of equal or higher priority."""
        for uid, other in self._pods.get(node, {}).items():
            if uid != waiting.uid and other.priority >= waiting.priority:
                yield other
