"""What purchases of this decision could not buy, so that pods do not get domains again where no node will be theirs.

Limits and minValues take effect only when nodes are bought, and a pod missing from a domain where others count on it
breaks their spreads. At first, `UnavailableDomains` learns how many pods of a shape a domain can have. If that only
moves the problem from one domain to the next, the pods left over are no longer tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.kubernetes.pods import Shape

_Key = tuple[Shape, tuple[Requirements, ...], FrozenMap[str]]
"""What pods need, what they are bought for, and the labels of the domain."""


class UnavailableDomains:
    """How many pods could get nodes in domains where not all could; `pods` (namespace/name) are not tried again."""

    def __init__(self) -> None:
        self._most: dict[_Key, int] = {}
        self.pods: set[str] = set()

    @property
    def is_empty(self) -> bool:
        """True while no purchase has failed in a domain."""
        return not self._most

    def learn(self, demands: Iterable[Demand], refused: Sequence[Demand], *, for_good: bool = False) -> bool:
        """Record which demands were refused; return whether any of them was pinned to a domain.

        With `for_good`, exclude their pods from further attempts instead.
        """
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
        """Return how many pods may be bought for in a domain in addition to those demanded; None for any number."""
        key = plain, bought_as.terms, FrozenMap(labels)
        if key not in self._most:
            return None
        return max(0, self._most[key] - _counted(demanded)[key])


def _counted(demands: Iterable[Demand]) -> Counter[_Key]:
    return Counter((pod.shape, d.shape.terms, d.pins) for d in demands if d.pins for pod in d.pods)
