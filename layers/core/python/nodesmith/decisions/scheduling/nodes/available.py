"""The capacity left on existing and in-flight nodes, and which pods may still use it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from nodesmith.decisions.packing.sharing import Sharing
from nodesmith.decisions.scheduling.nodes.conflicts import PodConflicts
from nodesmith.decisions.scheduling.nodes.existing import ExistingNode
from nodesmith.decisions.scheduling.operatingsystems import WINDOWS
from nodesmith.model.apimachinery.labels import OS
from nodesmith.model.kubernetes.shapes import Shape


class AvailableCapacity:
    """Existing nodes, tightest first, so that large ones stay free for large pods; in-flight nodes come last."""

    def __init__(self, existing_nodes: Sequence[ExistingNode], conflicts: PodConflicts) -> None:
        self.existing_nodes = {existing.name: existing for existing in existing_nodes}
        self._conflicts = conflicts
        self._sharing: dict[str, Sharing] = {}
        self._order = sorted(_rank(existing) for existing in existing_nodes)
        self._admitted: dict[tuple[object, ...], dict[tuple[object, ...], bool]] = {}

    def candidates(self, shape: Shape) -> Iterator[ExistingNode]:
        """Yield the nodes that take at least one pod of a shape, tightest first.

        Placing pods during the iteration does not change the order.
        """
        cpu = max(0, shape.requests.cpu_milli)
        for in_flight in (False, True):
            start = bisect_left(self._order, (in_flight, cpu) if cpu else (in_flight,))
            end = bisect_left(self._order, (True,)) if not in_flight else len(self._order)
            for rank in self._order[start:end]:
                existing = self.existing_nodes[rank[-1]]
                if self.capacity(existing, shape, 1):
                    yield existing

    def capacity(self, existing: ExistingNode, shape: Shape, wanted: int) -> int:
        """Return how many of `wanted` pods a node takes by its resources, labels, taints and `PodConflicts`."""
        count = existing.fits(shape, wanted)
        if not count or not self._admits(existing, shape):
            return 0
        return self._sharing_of(existing).capacity(self._conflicts.rules(shape), count)

    def take(self, existing: ExistingNode, shape: Shape, count: int) -> None:
        """Assign pods of a shape to a node."""
        sharing = self._sharing_of(existing)
        del self._order[bisect_left(self._order, _rank(existing))]
        existing.take(shape, count)
        insort(self._order, _rank(existing))
        sharing.hold(self._conflicts.rules(shape), count)

    def _admits(self, existing: ExistingNode, shape: Shape) -> bool:
        """Return whether a node admits a shape; computed once for nodes whose relevant labels and taints are equal."""
        if not existing.taints and not any(shape.terms) and existing.labels.get(OS) != WINDOWS:
            return bool(shape.terms)
        known = self._admitted.setdefault((shape.terms, shape.tolerations), {})
        keys = {OS, *(key for term in shape.terms for key in term)}
        looks = existing.taints, *(existing.labels.get(key) for key in sorted(keys))
        if looks not in known:
            known[looks] = existing.admits(shape)
        return known[looks]

    def _sharing_of(self, existing: ExistingNode) -> Sharing:
        """Return which groups of pods a node holds. Computed on demand: most nodes are never needed."""
        known = self._sharing.get(existing.name)
        if known is not None:
            return known
        sharing = self._sharing[existing.name] = Sharing()
        for shape, count in existing.hosted.items():
            rules = self._conflicts.rules(shape, running=True)
            sharing.hold(rules, count)
            left = existing.leaving[shape]
            for group in rules.groups if left else ():
                if not self._conflicts.counts_leaving(group):
                    sharing.held[group] -= left
        for shape in existing.expected:
            sharing.hold(self._conflicts.rules(shape, running=True), 1)
        return sharing


def _rank(existing: ExistingNode) -> tuple[bool, int, int, str]:
    return existing.in_flight, existing.free.cpu_milli, existing.free.memory_bytes, existing.name
