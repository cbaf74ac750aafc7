"""First fit as in Karpenter, by resources alone: the reference for nodesmith's prices in the same run.

Pods are placed largest first (cpu, then memory). Each goes to the open node with the fewest pods on which it fits, as
long as some type would hold them all; otherwise it opens a node that may still become any type. Prices matter only at
the end, when each node becomes the cheapest type that holds its pods.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Vector = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """A type with its allocatable resources and its lowest price in USD an hour."""

    name: str
    capacity: Vector
    price: float


@dataclass(frozen=True, slots=True)
class Bought:
    """A bought node, and the pods on it."""

    kind: Kind
    pods: tuple[Vector, ...]


@dataclass(slots=True)
class _Open:
    taken: Vector
    kinds: Sequence[Kind]
    pods: list[Vector]


def first_fit(pods: Iterable[Vector], kinds: Sequence[Kind]) -> list[Kind]:
    """Return the types of the bought nodes, see `first_fit_nodes`."""
    return [node.kind for node in first_fit_nodes(pods, kinds)]


def first_fit_nodes(pods: Iterable[Vector], kinds: Sequence[Kind]) -> list[Bought]:
    """Return the bought nodes. Vectors are cpu, memory, then any others; a pod that fits no type is left out."""
    opened: list[_Open] = []
    order: list[tuple[int, int]] = []  # for open nodes: number of pods, number of the node
    for pod in sorted(pods, key=lambda p: (-p[0], -p[1], p)):
        refused: set[Vector] = set()
        for place, (count, number) in enumerate(order):
            node = opened[number]
            if node.taken in refused:
                continue
            if _add(node, pod):
                del order[place]
                insort(order, (count + 1, number))
                break
            refused.add(node.taken)
        else:
            fresh = _Open((0,) * len(pod), kinds, [])
            if _add(fresh, pod):
                order.insert(bisect_left(order, (1, len(opened))), (1, len(opened)))
                opened.append(fresh)
    return [Bought(min(n.kinds, key=lambda k: (k.price, k.name)), tuple(n.pods)) for n in opened]


def _add(node: _Open, pod: Vector) -> bool:
    taken = tuple(map(sum, zip(node.taken, pod, strict=True)))
    fitting = [k for k in node.kinds if all(t <= r for t, r in zip(taken, k.capacity, strict=True))]
    if fitting:
        node.taken, node.kinds = taken, fitting
        node.pods.append(pod)
    return bool(fitting)
