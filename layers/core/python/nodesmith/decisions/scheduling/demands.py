"""What must be bought (`Demand`), the result for all pending pods (`Assignment`), and the choices behind it.

A choice is made before its cost is known, and another attempt may make it differently: which shape is placed first,
which domain comes first, how many pods a node gets. Every option is sound, but its cost shows only when everything is
bought. The caller names each choice and lists its options, the usual one first.

Limits and minValues take effect only when nodes are bought, and a pod missing from a domain where others count on it
breaks their spreads. At first, `UnavailableDomains` learns how many pods of a shape a domain can have. If that only
moves the problem from one domain to the next, the pods left over are no longer tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from nodesmith.decisions.scheduling.conflicts import UNLIMITED, Cap
from nodesmith.decisions.scheduling.existing import by_age
from nodesmith.model.apimachinery.frozen import NO_ITEMS, FrozenMap
from nodesmith.model.apimachinery.labels import ZONE
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.kubernetes.pods import Pod, Shape

_T = TypeVar("_T")
Name = tuple[object, ...]
Script = Mapping[Name, int]
"""The number of the option to take instead of the usual one, by name of the choice."""
_WITHOUT = "without"
LAST = "last"
"""The kind of choice that places a shape after all others. It only helps where pods find no place."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Pods of one kind that need new nodes.

    `pins` are labels that their nodes must have in addition to what the shape asks; an empty value means that the nodes
    must lack the label. One node takes at most `per_node` of the pods. `groups` and `caps` limit who may share the
    node, see `Item`; `apart` are DaemonSets that keep these pods off every node they run on. `fallback` is what to
    demand if this demand cannot be bought because part of it is only preferred; it has no pods of its own. Pods that
    must share a node are placed `unit` at a time, in their order: then `shape` stands for all of a unit together and
    `members` are the shapes of its pods.
    """

    shape: Shape
    pods: tuple[Pod, ...]
    pins: FrozenMap[str] = NO_ITEMS
    per_node: int = UNLIMITED
    groups: tuple[int, ...] = ()
    caps: tuple[Cap, ...] = ()
    apart: tuple[Shape, ...] = ()
    fallback: Demand | None = None
    unit: int = 1
    members: tuple[Shape, ...] = ()

    @property
    def zone(self) -> str | None:
        """The zone that the pods are pinned to; None for any."""
        return self.pins.get(ZONE)

    @property
    def is_settled(self) -> bool:
        """Whether more has been decided about the nodes than the pods themselves ask for."""
        return bool(self.pins or self.fallback or self.unit > 1)


@dataclass(slots=True)
class Assignment:
    """The result for the pending pods.

    `placed` is pods (namespace/name) by node name, `demands` are for new nodes, `stuck` is pods with the reason.
    `given_up` counts preferences that pods did not get, and pods spread over existing domains only. `last` counts pods
    on existing nodes where the spreads of other pods hold only until these pods arrive.
    """

    placed: dict[str, list[str]] = field(default_factory=dict)
    demands: list[Demand] = field(default_factory=list)
    stuck: list[tuple[tuple[Pod, ...], str]] = field(default_factory=list)
    given_up: int = 0
    last: int = 0


def by_shape(pods: Iterable[Pod]) -> list[tuple[Shape, list[Pod]]]:
    """Group pods by shape: largest cpu first, then largest memory, then the oldest pod (Karpenter's queue order)."""
    groups: dict[Shape, list[Pod]] = {}
    for pod in by_age(pods):
        groups.setdefault(pod.shape, []).append(pod)
    return sorted(
        groups.items(),
        key=lambda g: (
            -g[0].requests.cpu_milli,
            -g[0].requests.memory_bytes,
            g[1][0].created_at,
            g[1][0].key,
        ),
    )


class Choices:
    """The choices of one attempt, made by a script.

    `met` has the number of options of each choice, in the order encountered. It stays empty for an `is_single` attempt,
    which no other follows.
    """

    __slots__ = ("is_single", "met", "script")

    def __init__(self, script: Script | None = None, *, is_single: bool = False) -> None:
        self.script: Script = script or {}
        self.met: dict[Name, int] = {}
        self.is_single = is_single

    def pick(self, name: Name, options: int) -> int:
        """Return the number of the option to take."""
        if self.is_single or options < 2:
            return 0
        self.met.setdefault(name, options)
        picked = self.script.get(name, 0)
        return picked if picked < options else 0

    def first(self, name: Name, things: Iterable[_T]) -> list[_T]:
        """Return `things` in their order, except for the one that the script puts first."""
        ordered = list(things)
        picked = self.pick(name, len(ordered))
        return [ordered[picked], *ordered[:picked], *ordered[picked + 1 :]] if picked else ordered

    def one(self, name: Name, things: Iterable[_T]) -> _T | None:
        """Return the one thing that the script selects; None usually."""
        ordered = list(things)
        picked = self.pick(name, len(ordered) + 1)
        return ordered[picked - 1] if picked else None

    def some(self, name: Name, count: int) -> int:
        """Return how many of `count` to take: all usually; by script none, all but one, or one."""
        if self.is_single or not count:
            return count
        options: Sequence[int] = tuple(dict.fromkeys((count, 0, count - 1, 1)))
        return options[self.pick(name, len(options))]

    def used(self, source: str, demand: Demand) -> None:
        """Note that nodes for a demand were bought from a source that others may need more, so it might do without."""
        if not self.is_single:
            self.met.setdefault(_without(source, demand), 2)

    def bars(self, source: str, demand: Demand) -> bool:
        """Return whether a demand must do without a source of nodes."""
        return _without(source, demand) in self.script

    @property
    def barred(self) -> frozenset[Name]:
        """The names of all scripted choices that make a demand do without a source."""
        return frozenset(name for name in self.script if name[0] == _WITHOUT)


def _without(source: str, demand: Demand) -> Name:
    return _WITHOUT, source, demand.shape, demand.pins


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
