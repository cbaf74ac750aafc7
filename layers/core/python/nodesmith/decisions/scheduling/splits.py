"""Splits: how many pods of a workload stay off spot, by annotations on its pods.

A workload is the pods of one controller. Of its pods, bound or not, at least the larger of `on-demand-base` and
`on-demand-percent` of them have their place on nodes that are not spot. Whenever pods get places, as many of them as
that lacks are narrowed: they ask for a node that is not spot, in addition to all that they ask for themselves. All
others go wherever it is cheapest.

kube-scheduler knows nothing of this. It may bind a narrowed pod to a spot node with free capacity, and another one to
the node that was bought for it. Pods count where they are, so the next decision makes up for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from nodesmith.decisions.scheduling.existing import is_closed, is_going, nominations
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, SPOT
from nodesmith.model.apimachinery.problems import Problem, at, shown
from nodesmith.model.apimachinery.requirements import Requirement
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.podannotations import (
    ON_DEMAND_BASE,
    ON_DEMAND_PERCENT,
    SPLITS,
    Split,
    split_fault,
    split_of,
)
from nodesmith.model.kubernetes.pods import Pod, Reason, Shape
from nodesmith.model.snapshot import Snapshot

_OFF_SPOT = Requirement(CAPACITY_TYPE, frozenset((SPOT,)), complement=True)
_MOST_PROBLEMS = 20


class Workload(NamedTuple):
    """The pods that a split counts together: those of one controller with the same split."""

    namespace: str
    owner: str
    split: Split

    @property
    def name(self) -> str:
        """Its name in messages: `ReplicaSet default/web-5d8f`, or `pods of Jobs in default`."""
        kind, _, name = self.owner.partition("/")
        return (
            f"{kind} {self.namespace}/{name}"
            if name
            else f"pods of {kind or 'no controller'} in {self.namespace}"
        )


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Pods with the shapes by which they get places. `why` says for each narrowed pod which split it serves."""

    pods: list[Pod]
    why: Mapping[str, str]

    def first(self, pods: Iterable[str]) -> str:
        """Return the split of the first of these pods that is narrowed, or else of any; empty if none is."""
        found = (self.why[key] for key in (*pods, *self.why) if key in self.why)
        return next(found, "")

    def explained(self, pod: Pod, reason: Reason) -> Reason:
        """Return why a pod has no place, with its split if it is narrowed."""
        return replace(reason, text=f"{self.why[pod.key]}: {reason.text}") if pod.key in self.why else reason


class Splits:
    """The splits of the workloads of a snapshot: where their pods are, and how many more must be off spot.

    A bound pod counts on its node while that stays. Any other pod counts on the node that was bought for it.
    """

    def __init__(self, snapshot: Snapshot, claims: Sequence[NodeClaim], now: datetime) -> None:
        self._asking = list(filter(_asks, dict.fromkeys(pod.shape for pod in snapshot.pods)))
        self._workloads = {
            shape: Workload(shape.namespace, shape.owner, split)
            for shape in self._asking
            if (split := split_of(shape)) is not None
        }
        self._variants = {shape: _off_spot(shape) for shape in self._workloads}
        self._pods: Counter[Workload] = Counter()
        self._kept: dict[Workload, set[str]] = {}
        if self._workloads:
            self._count(snapshot, claims, now)

    def _count(self, snapshot: Snapshot, claims: Sequence[NodeClaim], now: datetime) -> None:
        staying = {node.name: node for node in snapshot.nodes if not (is_going(node) or is_closed(node))}
        nominated, by_name = nominations(claims, now), {claim.name: claim for claim in claims}
        for pod in snapshot.pods:
            workload = self._workloads.get(pod.shape)
            if workload is None or pod.deleting:
                continue
            self._pods[workload] += 1
            node = staying.get(pod.node or pod.nominated_node)
            claim = by_name.get(nominated.get(pod.key, "")) if node is None else None
            capacity_type = node.labels.get(CAPACITY_TYPE) if node else claim.capacity_type if claim else SPOT
            if capacity_type != SPOT and (claim is None or not claim.is_ending):
                self._kept.setdefault(workload, set()).add(pod.key)

    @property
    def variants(self) -> list[Shape]:
        """The shapes of narrowed pods."""
        return list(self._variants.values())

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the annotations of workloads, each in a sentence, as far as it is worth reading."""
        conflicting = (
            f"{workload.name}: its pods may only run on spot nodes, so {workload.split} has no effect"
            for shape, workload in self._workloads.items()
            if self._variants[shape] is shape
        )
        return tuple(sorted({*conflicting, *_faults(self._asking)})[:_MOST_PROBLEMS])

    def narrowed(self, pods: Sequence[Pod]) -> Narrowed:
        """Narrow as many of these pods, which need places, as their workloads lack off spot, the first by name.

        The pods do not count where they are now.
        """
        if not self._workloads:
            return Narrowed(list(pods), {})
        mine: dict[Workload, list[str]] = {}
        for pod in pods:
            if (workload := self._workloads.get(pod.shape)) is not None:
                mine.setdefault(workload, []).append(pod.key)
        lacking = {workload: self._lacking(workload, keys) for workload, keys in mine.items()}
        chosen: dict[str, str] = {}
        for pod in sorted(pods, key=lambda pod: pod.key):
            workload = self._workloads.get(pod.shape)
            if workload is not None and lacking[workload] > 0 and self._variants[pod.shape] is not pod.shape:
                lacking[workload] -= 1
                chosen[pod.key] = self._why(workload)
        found = [replace(pod, shape=self._variants[pod.shape]) if pod.key in chosen else pod for pod in pods]
        return Narrowed(found, chosen)

    def leave(self, pods: Iterable[Pod]) -> None:
        """Note that pods leave their nodes, and count there no more."""
        keys = {pod.key for pod in pods}
        for kept in self._kept.values():
            kept -= keys

    def _lacking(self, workload: Workload, leaving: Iterable[str]) -> int:
        kept = self._kept.get(workload, set())
        there = len(kept) - sum(key in kept for key in leaving)
        return max(0, workload.split.wanted(self._pods[workload]) - there)

    def _why(self, workload: Workload) -> str:
        pods = self._pods[workload]
        return (
            f"{workload.name} keeps {workload.split.wanted(pods)} of {pods} pods off spot ({workload.split})"
        )


def _off_spot(shape: Shape) -> Shape:
    """Return the shape of pods that must not run on spot; the same object if their own constraints allow spot only."""
    terms = tuple(
        term.adding(_OFF_SPOT)
        for term in shape.terms
        if CAPACITY_TYPE not in term or term[CAPACITY_TYPE].intersects(_OFF_SPOT)
    )
    return replace(shape, terms=terms) if terms else shape


def _asks(shape: Shape) -> bool:
    """Return whether pods of a shape have annotations of splits, and are not bound to one node."""
    return shape.moves and not SPLITS.isdisjoint(shape.annotations)


def splits_for(pods: Iterable[Pod], snapshot: Snapshot, claims: Sequence[NodeClaim], now: datetime) -> Splits:
    """Return the splits of a snapshot as far as they concern these pods: nothing is counted if they have none."""
    concerned = any(map(_asks, {pod.shape for pod in pods}))
    return Splits(snapshot if concerned else replace(snapshot, pods=()), claims, now)


def _faults(shapes: Iterable[Shape]) -> Iterator[str]:
    """Yield the annotations of splits that cannot be read, each in a sentence."""
    for shape in shapes:
        for key in (ON_DEMAND_BASE, ON_DEMAND_PERCENT):
            value = shape.annotations.get(key)
            if value is not None and (fault := split_fault(key, value)):
                name = f"Pod/{shape.namespace}/{shape.owner.partition('/')[2] or shape.owner or '*'}"
                yield str(Problem(name, at("metadata.annotations", key), shown(value), fault, fatal=False))
