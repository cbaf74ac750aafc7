"""What could not be bought when it was tried: pods are not given domains again in which no node will be theirs.

Limits and minValues show only when nodes are bought, and a pod that is not where others count on it breaks their
spreads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.model.frozen import FrozenMap
from nodesmith.model.requirements import Requirements
from nodesmith.model.shapes import Shape

_Key = tuple[Shape, tuple[Requirements, ...], FrozenMap[str]]
"""what pods need, what they are bought for, and the labels of the domain"""


class Unsold:
    """How many pods could have nodes in domains where not all could."""

    def __init__(self) -> None:
        self._most: dict[_Key, int] = {}

    def learn(self, demands: Iterable[Demand], refused: Iterable[Demand]) -> bool:
        """Note what was demanded and refused; tell whether any of it was bound to a domain."""
        missing = _counted(refused)
        if missing:
            wanted = _counted(demands)
            self._most |= {key: wanted[key] - number for key, number in missing.items()}
        return bool(missing)

    def most(self, plain: Shape, bought_as: Shape, labels: Mapping[str, str]) -> int | None:
        """Give how many pods may be bought for in a domain, None for any number."""
        return self._most.get((plain, bought_as.terms, FrozenMap(labels))) if self._most else None


def _counted(demands: Iterable[Demand]) -> Counter[_Key]:
    return Counter((pod.shape, d.shape.terms, d.pins) for d in demands if d.pins for pod in d.pods)
