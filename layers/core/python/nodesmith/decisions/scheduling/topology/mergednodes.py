"""The existing nodes of a large cluster, reduced to those that matter to some pods.

Pods need the nodes that may take one of them. Of all others they need only how many pods run where, since spread and
affinity count them. These others are therefore merged: nodes that no rule can distinguish become one node without free
capacity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from math import inf

from nodesmith.decisions.scheduling.existing import ExistingNode
from nodesmith.model.apimachinery.labels import HOSTNAME, OS, Taint, Toleration
from nodesmith.model.apimachinery.quantities import NOTHING
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.kubernetes.pods import Shape

MOST_EXISTING_NODES = 160
"""The number of existing nodes that a trial may fill: those with the most free capacity that take any of its pods."""
_CPU_WORTH, _MEMORY_WORTH = 1 / 1000, 1 / 2**32
"""of a milli-cpu and a byte, in the size of free capacity: 1 cpu counts as much as 4 GiB"""
_Profile = tuple[tuple[Taint, ...], tuple[str | None, ...]]
_Asks = tuple[tuple[Requirements, ...], tuple[Toleration, ...]]


class ClusterNodes:
    """Existing nodes by name. Those in `closed` take no pods of disrupted nodes, whether or not they are full.

    `shapes` are those of pods that may be placed, and `others` those that these pods may meet on a node.
    """

    def __init__(
        self,
        existing_nodes: Iterable[ExistingNode],
        closed: Collection[str],
        shapes: Iterable[Shape],
        others: Iterable[Shape] = (),
    ) -> None:
        self.existing_nodes = {existing.name: existing for existing in existing_nodes}
        self.closed = set(closed)
        self._keys = (OS, *_distinguishing_labels(shapes, others))
        self._profiles: dict[str, _Profile] = {}
        self._alike: dict[_Profile, dict[str, ExistingNode]] = {}
        self._hosted: dict[_Profile, Counter[Shape]] = {}
        self._leaving: dict[_Profile, Counter[Shape]] = {}
        self._admitted: dict[tuple[_Asks, _Profile], bool] = {}
        for existing in self.existing_nodes.values():
            self._add(existing)

    def without(
        self, removed: Collection[str], shapes: Collection[Shape], most: int | None = MOST_EXISTING_NODES
    ) -> list[ExistingNode]:
        """Return the existing nodes for a trial with pods of these shapes, without the Nodes named in `removed`.

        They are copies, so the trial may fill them.
        """
        opened = self.nodes_for(shapes, frozenset(removed), most)
        apart: dict[_Profile, list[ExistingNode]] = {}
        for existing in (
            *opened,
            *(self.existing_nodes[name] for name in removed if name in self.existing_nodes),
        ):
            apart.setdefault(self._profiles[existing.name], []).append(existing)
        merged = [self._merged(profile, apart.get(profile, ())) for profile in self._alike]
        return [existing.copy() for existing in opened] + [
            existing for existing in merged if existing is not None
        ]

    def drop(self, name: str) -> None:
        """Remove an existing node, because it is gone."""
        existing = self.existing_nodes.pop(name, None)
        if existing is not None:
            profile = self._profiles.pop(name)
            del self._alike[profile][name]
            self._hosted[profile].subtract(existing.hosted)
            self._leaving[profile].subtract(existing.leaving)

    def put(self, existing: ExistingNode) -> None:
        """Add an existing node, or replace it by its present state."""
        self.drop(existing.name)
        self.existing_nodes[existing.name] = existing
        self._add(existing)

    def _add(self, existing: ExistingNode) -> None:
        profile = existing.taints, tuple(existing.labels.get(key) for key in self._keys)
        self._profiles[existing.name] = profile
        self._alike.setdefault(profile, {})[existing.name] = existing
        self._hosted.setdefault(profile, Counter()).update(existing.hosted)
        self._leaving.setdefault(profile, Counter()).update(existing.leaving)

    def nodes_for(
        self,
        shapes: Collection[Shape],
        removed: frozenset[str] = frozenset(),
        most: int | None = MOST_EXISTING_NODES,
    ) -> list[ExistingNode]:
        """Return the existing nodes that take a pod of one of these shapes, those with most free capacity first.

        There are at most `most` of them. With None, there may be any number, in the order in which they were given.
        """
        kinds: dict[_Asks, list[Shape]] = {}
        for shape in shapes:
            kinds.setdefault((shape.terms, shape.tolerations), []).append(shape)
        nodes: list[ExistingNode] = []
        for profile, alike in self._alike.items():
            admitted = [
                one for asks, mine in kinds.items() if self._admits(asks, profile, mine[0]) for one in mine
            ]
            if admitted:
                # A pod that requests nothing of a resource fits even where less than nothing is free.
                least = min(shape.requests.cpu_milli or -inf for shape in admitted)
                least_bytes = min(shape.requests.memory_bytes or -inf for shape in admitted)
                nodes += [
                    existing
                    for name, existing in alike.items()
                    if name not in removed
                    and name not in self.closed
                    and existing.free.cpu_milli >= least
                    and existing.free.memory_bytes >= least_bytes
                    and any(shape.requests.fits_in(existing.free) for shape in admitted)
                ]
        if most is None:
            names = {existing.name for existing in nodes}
            return [existing for name, existing in self.existing_nodes.items() if name in names]
        nodes.sort(key=_size)
        return nodes[:most]

    def _admits(self, asks: _Asks, profile: _Profile, shape: Shape) -> bool:
        key = asks, profile
        if key not in self._admitted:
            self._admitted[key] = any(
                existing.admits(shape) for existing in list(self._alike[profile].values())[:1]
            )
        return self._admitted[key]

    def _merged(self, profile: _Profile, apart: Sequence[ExistingNode]) -> ExistingNode | None:
        """Return one node without free capacity that stands for all nodes of this look except those in `apart`.

        Return None if no node is left.
        """
        alike = self._alike[profile]
        if len(alike) <= len(apart):
            return None
        hosted, leaving = Counter(self._hosted[profile]), Counter(self._leaving[profile])
        for existing in apart:
            hosted.subtract(existing.hosted)
            leaving.subtract(existing.leaving)
        apart_names = {existing.name for existing in apart}
        first = next(existing for name, existing in alike.items() if name not in apart_names)
        return replace(first, free=NOTHING, hosted=+hosted, leaving=+leaving, expected=())


def _distinguishing_labels(shapes: Iterable[Shape], others: Iterable[Shape]) -> tuple[str, ...]:
    """Return the labels by which rules distinguish nodes. The terms of `others` concern no pod that is placed."""
    keys: set[str] = set()
    own_shapes = dict.fromkeys(shapes)
    for shape in {**own_shapes, **dict.fromkeys(others)}:
        keys.update(spread.topology_key for spread in shape.spreads)
        keys.update(term.topology_key for term in shape.affinities)
    for shape in own_shapes:
        preferred = (term for _, term in shape.preferred_terms)
        keys.update(key for term in (*shape.terms, *shape.own_terms, *preferred) for key in term)
    is_hostname_used = any(
        HOSTNAME in term for shape in own_shapes for term in (*shape.terms, *shape.own_terms)
    )
    return tuple(sorted(keys if is_hostname_used else keys - {HOSTNAME}))


def _size(existing: ExistingNode) -> tuple[float, str]:
    free = existing.free
    return -(free.cpu_milli * _CPU_WORTH + free.memory_bytes * _MEMORY_WORTH), existing.name


FEW_NODES = 200
"""The number of existing nodes up to which none are merged: that would cost more than it saves."""


def condensed(
    existing_nodes: Sequence[ExistingNode], shapes: Collection[Shape], others: Iterable[Shape]
) -> Sequence[ExistingNode]:
    """Return existing nodes with all those merged that take no pod of these shapes, if there are many.

    Pods of these shapes have the same places on the result. `others` are shapes that they may meet on a node.
    """
    if len(existing_nodes) <= FEW_NODES:
        return existing_nodes
    return ClusterNodes(existing_nodes, (), shapes, others).without((), shapes, most=None)
