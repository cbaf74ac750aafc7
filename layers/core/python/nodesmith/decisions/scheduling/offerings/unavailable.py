"""What could not be bought when it was tried: pods are not given domains again in which no node will be theirs.

Limits and minValues show only when nodes are bought, and a pod that is not where others count on it breaks their
spreads. First it is learned how many pods of a shape may have a domain; where that leads from one domain to the next,
the pods that are left are no longer tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.kubernetes.shapes import Shape

_Key = tuple[Shape, tuple[Requirements, ...], FrozenMap[str]]
"""what pods need, what they are bought for, and the labels of the domain"""


class UnavailableDomains:
    """How many pods could have nodes in domains where not all could; `pods` (namespace/name) are not tried again."""

    def __init__(self) -> None:
        self._most: dict[_Key, int] = {}
        self.pods: set[str] = set()

    @property
    def is_empty(self) -> bool:
        """True where everything is for sale, as far as is known."""
        return not self._most

    def learn(self, demands: Iterable[Demand], refused: Sequence[Demand], *, for_good: bool = False) -> bool:
        """Note what was demanded and refused; tell whether any of it was bound to a domain."""
        missing = _counted(refused)
        if missing and for_good:
            self.pods |= {pod.key for demand in refused if demand.pins for pod in demand.pods}
        elif missing:
            wanted = _counted(demands)
            self._most |= {key: wanted[key] - number for key, number in missing.items()}
        return bool(missing)

    def most(
        self, plain: Shape, bought_as: Shape, labels: Mapping[str, str], demanded: Iterable[Demand] = ()
    ) -> int | None:
        """Return how many pods may be bought for in a domain beside those that are demanded, None for any number."""
        key = plain, bought_as.terms, FrozenMap(labels)
        if key not in self._most:
            return None
        return max(0, self._most[key] - _counted(demanded)[key])


def _counted(demands: Iterable[Demand]) -> Counter[_Key]:
    return Counter((pod.shape, d.shape.terms, d.pins) for d in demands if d.pins for pod in d.pods)
