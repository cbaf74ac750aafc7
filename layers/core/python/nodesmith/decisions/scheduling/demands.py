"""Which pods need nodes, what must be bought for them (`Demand`), the result (`Assignment`), and the choices behind it.

Nothing is bought for a pod before the end of its `cluster-autoscaler.kubernetes.io/pod-scale-up-delay`. Meanwhile,
kube-scheduler binds it if a node has room, even a new one.

A pod that kube-scheduler has nominated for a node (status.nominatedNodeName) is left alone: it will run there once the
pods that it preempts have ended, or once its volumes are bound. The scheduler writes the nomination in the same patch
as the verdict Unschedulable, so no snapshot shows one without the other. When the scheduler withdraws the nomination,
because a pod of higher priority came or nothing can be preempted any more, the pod is provisioned for again.

A choice is made before its cost is known, and another attempt may make it differently: which shape is placed first,
which domain comes first, how many pods a node gets. Every option is sound, but its cost shows only when everything is
bought. The caller names each choice and lists its options, the usual one first.

Limits and minValues take effect only when nodes are bought, and a pod missing from a domain where others count on it
breaks their spreads. At first, `UnavailableDomains` learns how many pods of a shape a domain can have. If that only
moves the problem from one domain to the next, the pods left over are no longer tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from nodesmith.decisions.scheduling.conflicts import UNLIMITED, Cap
from nodesmith.decisions.scheduling.existing import by_age
from nodesmith.model.apimachinery.frozen import NO_ITEMS, FrozenMap
from nodesmith.model.apimachinery.labels import ZONE
from nodesmith.model.apimachinery.quantities import format_amount
from nodesmith.model.apimachinery.requirements import Requirement, Requirements
from nodesmith.model.kubernetes.devices import UNKNOWN_DEVICES
from nodesmith.model.kubernetes.podannotations import SCALE_UP_DELAY, scale_up_delay
from nodesmith.model.kubernetes.pods import CONTRADICT, NOT_ALL_VOLUMES, Pod, Shape

_LAST = datetime.max.replace(tzinfo=UTC)
FLEXIBLE, NONE = "flexible", "none"
"""The values Karpenter reports for pods that allow several zones and for pods that allow none."""


def provisionable(
    pods: Iterable[Pod],
    going: Collection[str] = (),
    is_kept: Callable[[Pod], bool] = lambda _: False,
    cutoff: int | None = None,
) -> tuple[list[Pod], list[tuple[Pod, str]]]:
    """Return the pods to provision for, and the ignored pods with their reasons.

    Pods on nodes in `going` (being deleted or disrupted) will need another node and are provided for at once, unless
    they cannot be evicted (`is_kept`) or have no controller that recreates them. Pods whose priority is below `cutoff`
    are expendable: they only use room that is there. Neither list has DaemonSet pods, static pods, or pods being
    deleted, except those of StatefulSets: these come back only when they are gone, and their node can be ready.
    """
    accepted: list[Pod] = []
    ignored: list[tuple[Pod, str]] = []
    refusals: dict[Shape, str] = {}
    for pod in pods:
        if pod.node and pod.node not in going:  # nearly all pods
            continue
        if not pod.shape.moves or (pod.deleting and not (pod.node and pod.shape.comes_back)):
            continue
        if pod.node and (not pod.shape.owner or is_kept(pod)):
            continue
        reason = ("" if pod.node else _state_refusal(pod)) or _expendable(pod, cutoff) or pod.refusal
        if not reason:
            if pod.shape not in refusals:
                refusals[pod.shape] = shape_refusal(pod.shape)
            reason = refusals[pod.shape]
        if reason:
            ignored.append((pod, reason))
        else:
            accepted.append(pod)
    return accepted, ignored


def _state_refusal(pod: Pod) -> str:
    if pod.nominated_node:
        return (
            f"the scheduler has nominated it for {pod.nominated_node}: it waits for pods of lower priority to end"
            " there, or for its volumes"
        )
    if pod.unschedulable:
        return ""
    if gates := pod.shape.gates:
        noun = "scheduling gate" if len(gates) == 1 else "scheduling gates"
        return f"it waits behind the {noun} {', '.join(gates)}"
    return "the scheduler has not called it unschedulable yet"


def _expendable(pod: Pod, cutoff: int | None) -> str:
    if not is_expendable(pod.shape, cutoff):
        return ""
    return f"its priority {pod.shape.priority} is below {cutoff}, the cluster's EXPENDABLE_PRIORITY_CUTOFF"


def is_expendable(shape: Shape, cutoff: int | None) -> bool:
    """Return whether pods of a shape neither cause purchases nor keep nodes.

    Without a cutoff, none are expendable. Planned pods that keep room for others never are.
    """
    return cutoff is not None and shape.priority < cutoff and not shape.is_room


def shape_refusal(shape: Shape) -> str:
    """Return why no node can be bought for such pods whatever the NodePools offer; empty when one can."""
    if shape.refusal:
        return shape.refusal
    if shape.claims:
        return UNKNOWN_DEVICES
    negative = next((name for name, amount in sorted(shape.requests.items()) if amount < 0), None)
    if negative:
        return f"its request of {format_amount(negative, shape.requests[negative])} {negative} is negative"
    return ""


def delayed(pods: Iterable[Pod], now: datetime) -> tuple[list[Pod], list[tuple[Pod, datetime]]]:
    """Split pods into those that may get a node now and those that must wait, each with the end of its wait.

    Pods that still have a node have waited before, so their delay is over.
    """
    grown: list[Pod] = []
    young: list[tuple[Pod, datetime]] = []
    for pod in pods:
        until = buys_from(pod)
        if pod.node or until is None or until <= now:
            grown.append(pod)
        else:
            young.append((pod, until))
    return grown, young


def buys_from(pod: Pod) -> datetime | None:
    """Return from when a node may be bought for a pod that has a SCALE_UP_DELAY, None for a pod without a delay.

    A delay that cannot be read is none.
    """
    text = pod.shape.annotations.get(SCALE_UP_DELAY)
    delay = scale_up_delay(text) if text is not None else None
    return pod.created_at + min(delay, _LAST - pod.created_at) if delay else None


def unserved(pods: Iterable[Pod], nominated: Mapping[str, str]) -> tuple[list[Pod], list[Pod]]:
    """Split pods into those that no claim has been bought for yet and those that wait for their claim."""
    pods = list(pods)
    return [p for p in pods if p.key not in nominated], [p for p in pods if p.key in nominated]


def waiting_by_zone(pods: Iterable[Pod]) -> tuple[Counter[str], int]:
    """Count the pods that wait for a node by their only possible zone; also return how many pods no node can serve.

    A zone is taken from node selectors, required node affinity and volumes; rules about other pods do not count. A pod
    that allows no zone at all is in both counts, since no node can serve it.
    """
    waiting, refused = provisionable(pods)
    # Whether the devices of readable claims can be had is known only in a decision.
    claiming = [pod for pod, reason in refused if reason == UNKNOWN_DEVICES and _is_readable(pod.shape)]
    waiting += claiming
    keys = {pod.key for pod in claiming}
    known: dict[Shape, str] = {}
    zones: Counter[str] = Counter()
    for pod in waiting:
        if pod.shape not in known:
            known[pod.shape] = _zone(pod.shape)
        zones[known[pod.shape]] += 1
    ignored = [
        reason
        for pod, reason in refused
        if pod.unschedulable and not pod.nominated_node and pod.key not in keys
    ]
    nowhere = sum(
        NOT_ALL_VOLUMES in reason or (CONTRADICT in reason and ZONE in reason) for reason in ignored
    )
    return zones + Counter({NONE: nowhere}), len(ignored)


def _is_readable(shape: Shape) -> bool:
    """Return whether pods claim devices, and all their claims can be simulated."""
    return bool(shape.claims) and not any(claim.problem for claim in shape.claims)


def _zone(shape: Shape) -> str:
    """Return the only zone of pods, `flexible` if there may be several, and `none` if their rules exclude all."""
    zones: set[str] = set()
    for term in shape.terms:
        requirement = term.get(ZONE, Requirement(ZONE, complement=True))
        if requirement.complement:
            return FLEXIBLE
        zones |= requirement.values
    return zones.pop() if len(zones) == 1 else FLEXIBLE if zones else NONE


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
    node, see `Item`; `excluding_daemonsets` are DaemonSets that keep these pods off every node they run on. `fallback`
    is what to demand if this demand cannot be bought because part of it is only preferred; it has no pods of its own.
    Pods that must share a node are placed `unit` at a time, in their order: then `shape` stands for all of a unit
    together and `members` are the shapes of its pods.
    """

    shape: Shape
    pods: tuple[Pod, ...]
    pins: FrozenMap[str] = NO_ITEMS
    per_node: int = UNLIMITED
    groups: tuple[int, ...] = ()
    caps: tuple[Cap, ...] = ()
    excluding_daemonsets: tuple[Shape, ...] = ()
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


def grouped_by_shape(pods: Iterable[Pod]) -> dict[Shape, list[Pod]]:
    """Group pods by shape; groups and pods keep their order."""
    groups: dict[Shape, list[Pod]] = {}
    for pod in pods:
        groups.setdefault(pod.shape, []).append(pod)
    return groups


def by_shape(pods: Iterable[Pod]) -> list[tuple[Shape, list[Pod]]]:
    """Group pods by shape: largest cpu first, then largest memory, then the oldest pod (Karpenter's queue order)."""
    return sorted(
        grouped_by_shape(by_age(pods)).items(),
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

    def first(self, name: Name, items: Iterable[_T]) -> list[_T]:
        """Return `items` in their order, except for the one that the script puts first."""
        ordered = list(items)
        picked = self.pick(name, len(ordered))
        return [ordered[picked], *ordered[:picked], *ordered[picked + 1 :]] if picked else ordered

    def one(self, name: Name, items: Iterable[_T]) -> _T | None:
        """Return the one thing that the script selects; None usually."""
        ordered = list(items)
        picked = self.pick(name, len(ordered) + 1)
        return ordered[picked - 1] if picked else None

    def share_of(self, name: Name, count: int) -> int:
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
    def excluded(self) -> frozenset[Name]:
        """The names of all scripted choices that make a demand do without a source."""
        return frozenset(name for name in self.script if name[0] == _WITHOUT)


def _without(source: str, demand: Demand) -> Name:
    return _WITHOUT, source, demand.shape, demand.pins


_Key = tuple[Shape, tuple[Requirements, ...], FrozenMap[str]]
"""What pods need, what they are bought for, and the labels of the domain."""


class UnavailableDomains:
    """How many pods could get nodes in domains where not all could; `pods` (namespace/name) are not tried again.

    The preferences of the shapes in `without_preferences` are not tried again, but their pods are.
    """

    def __init__(self) -> None:
        self._most: dict[_Key, int] = {}
        self.pods: set[str] = set()
        self.without_preferences: set[Shape] = set()

    @property
    def is_empty(self) -> bool:
        """True while no purchase has failed in a domain."""
        return not self._most

    def learn(self, demands: Iterable[Demand], refused: Sequence[Demand], *, for_good: bool = False) -> bool:
        """Record which demands were refused; return whether any of them was pinned to a domain.

        With `for_good`, exclude their pods from further attempts instead, or first their preferences if they have any.
        """
        missing = _counted(refused)
        if missing and for_good:
            pinned = [(demand, pod) for demand in refused if demand.pins for pod in demand.pods]
            preferring = {pod.shape for d, pod in pinned if d.fallback is not None} - self.without_preferences
            self.pods |= {pod.key for _, pod in pinned if pod.shape not in preferring}
            self.without_preferences |= preferring
        elif missing:
            counts = _counted(demands)
            self._most |= {key: counts[key] - number for key, number in missing.items()}
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
