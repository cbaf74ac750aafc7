"""Room that is held on a node for the pods that are nominated for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from nodesmith_cli.local.cluster.scheduler.queue import Waiting


class Promises:
    """Pods with `status.nominatedNodeName`, until they are bound or gone."""

    def __init__(self) -> None:
        self._node: dict[str, str] = {}
        self._pods: defaultdict[str, dict[str, Waiting]] = defaultdict(dict)

    def keep(self, waiting: Waiting) -> bool:
        """Hold room for a pod where it is nominated; tell whether room was let go elsewhere."""
        before = self.drop(waiting.uid)
        if waiting.nominated:
            self._node[waiting.uid] = waiting.nominated
            self._pods[waiting.nominated][waiting.uid] = waiting
        return before not in (None, waiting.nominated)

    def drop(self, uid: str) -> str | None:
        """Hold no room for a pod any more; gives the node where any was held."""
        node = self._node.pop(uid, None)
        if node is not None:
            del self._pods[node][uid]
        return node

    def kept_from(self, waiting: Waiting, node: str) -> Iterator[Waiting]:
        """Yield the pods whose room on a node another may not take: those of equal or higher priority."""
        for uid, other in self._pods.get(node, {}).items():
            if uid != waiting.uid and other.priority >= waiting.priority:
                yield other
