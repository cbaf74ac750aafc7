"""Workloads: pods of one controller with equal scheduling constraints, and how many of them stay off spot.

What is learned about a workload holds for its later pods too, since an evicted pod is replaced by another one.

Annotations on its pods split a workload. Of its pods, bound or not, at least the larger of `on-demand-base` and
`on-demand-percent` of them have their place on nodes that are not spot. Whenever pods get places, as many of them as
that lacks are narrowed: they ask for a node that is not spot, in addition to all that they ask for themselves. All
others go wherever it is cheapest.

kube-scheduler knows nothing of this. It may bind a narrowed pod to a spot node with free capacity, and another one to
the node that was bought for it. Pods count where they are, so the next decision makes up for it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

from nodesmith.decisions.scheduling.existing import is_closed, is_going, nominations
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, SPOT
from nodesmith.model.apimachinery.problems import Problem, at, shown
from nodesmith.model.apimachinery.requirements import Requirement, write_requirements
from nodesmith.model.ec2.capacity import ATTACHABLE
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.devices import DEVICES
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

_DIGITS = 8
_JSON = json.JSONEncoder(sort_keys=True)


class Workloads:
    """Names workloads: `controller-constraints`, both as digests. Each shape is processed once."""

    def __init__(self) -> None:
        self._asked: dict[Shape, str] = {}
        self._alike: dict[tuple[object, ...], str] = {}
        self._owners: dict[tuple[str, str], str] = {}

    def of(self, pod: Pod) -> str:
        """Return the name of a pod's workload. A pod without a controller is a workload of its own."""
        digest = self._asked.get(pod.shape)
        if digest is None:
            digest = self._asked[pod.shape] = self._digest_of(pod.shape)
        return f"{self.controller_of(pod)}-{digest}"

    def _digest_of(self, shape: Shape) -> str:
        """Return the digest of a shape's constraints; shapes that differ only in labels and selectors share it."""
        alike = (
            tuple(shape.requests.items()),
            shape.own_terms,
            shape.tolerations,
            shape.host_ports,
            tuple([(s.topology_key, s.max_skew, s.hard) for s in shape.spreads]),
            tuple([(a.topology_key, a.anti, a.weight) for a in shape.affinities]),
            shape.priority,
        )
        if alike not in self._alike:
            self._alike[alike] = _digest(_placement_fields(shape))
        return self._alike[alike]

    def controller_of(self, pod: Pod) -> str:
        """Return the first part of the names of all workloads of a pod's controller (see `controller`)."""
        owner = pod.shape.namespace, pod.shape.owner or pod.key
        name = self._owners.get(owner)
        if name is None:
            text = ", ".join(map(encode_basestring_ascii, owner))  # several times faster than the encoder
            name = self._owners[owner] = _hashed(f"[{text}]")
        return name


def controller(workload: str) -> str:
    """Return the part of a workload's name that identifies its controller."""
    return workload.partition("-")[0]


def _digest(value: object) -> str:
    return _hashed(_JSON.encode(value))


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _placement_fields(shape: Shape) -> dict[str, Any]:
    """Return what determines where pods may run, except what differs between pods: volumes and labels with names."""
    requests = shape.requests.nonzero().items()
    return {
        "requests": {name: amount for name, amount in requests if not name.startswith((ATTACHABLE, DEVICES))},
        "terms": [write_requirements(term) for term in shape.own_terms],
        "tolerations": [[t.key, t.operator, t.value, t.effect] for t in shape.tolerations],
        "ports": shape.host_ports,
        "spreads": [[s.topology_key, s.max_skew, s.hard] for s in shape.spreads],
        "affinities": [[a.topology_key, a.anti, a.weight] for a in shape.affinities],
        "priority": shape.priority,
    }


_OFF_SPOT = Requirement(CAPACITY_TYPE, frozenset((SPOT,)), complement=True)
_MOST_PROBLEMS = 20


class SplitWorkload(NamedTuple):
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
class NarrowedPods:
    """Pods with the shapes by which they get places. `splits` has for each narrowed pod the split that it serves."""

    pods: list[Pod]
    splits: Mapping[str, str]

    def first(self, pods: Iterable[str]) -> str:
        """Return the split of the first of these pods that is narrowed, or else of any; empty if none is."""
        reasons = (self.splits[key] for key in (*pods, *self.splits) if key in self.splits)
        return next(reasons, "")

    def explained(self, pod: Pod, reason: Reason) -> Reason:
        """Return why a pod has no place, with its split if it is narrowed."""
        return (
            replace(reason, text=f"{self.splits[pod.key]}: {reason.text}")
            if pod.key in self.splits
            else reason
        )


class Splits:
    """The splits of the workloads of a snapshot: where their pods are, and how many more must be off spot.

    A bound pod counts on its node while that stays. Any other pod counts on the node that was bought for it.
    """

    def __init__(self, snapshot: Snapshot, claims: Sequence[NodeClaim], now: datetime) -> None:
        self._asking = list(filter(_asks, dict.fromkeys(pod.shape for pod in snapshot.pods)))
        self._workloads = {
            shape: SplitWorkload(shape.namespace, shape.owner, split)
            for shape in self._asking
            if (split := split_of(shape)) is not None
        }
        self._variants = {shape: _off_spot(shape) for shape in self._workloads}
        self._pods: Counter[SplitWorkload] = Counter()
        self._kept: dict[SplitWorkload, set[str]] = {}
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

    def narrowed(self, pods: Sequence[Pod]) -> NarrowedPods:
        """Narrow as many of these pods, which need places, as their workloads lack off spot, the first by name.

        The pods do not count where they are now.
        """
        if not self._workloads:
            return NarrowedPods(list(pods), {})
        mine: dict[SplitWorkload, list[str]] = {}
        for pod in pods:
            if (workload := self._workloads.get(pod.shape)) is not None:
                mine.setdefault(workload, []).append(pod.key)
        lacking = {workload: self._lacking(workload, keys) for workload, keys in mine.items()}
        reasons: dict[str, str] = {}
        for pod in sorted(pods, key=lambda pod: pod.key):
            workload = self._workloads.get(pod.shape)
            if workload is not None and lacking[workload] > 0 and self._variants[pod.shape] is not pod.shape:
                lacking[workload] -= 1
                reasons[pod.key] = self._reason(workload)
        narrowed_pods = [
            replace(pod, shape=self._variants[pod.shape]) if pod.key in reasons else pod for pod in pods
        ]
        return NarrowedPods(narrowed_pods, reasons)

    def leave(self, pods: Iterable[Pod]) -> None:
        """Note that pods leave their nodes, and count there no more."""
        keys = {pod.key for pod in pods}
        for kept_keys in self._kept.values():
            kept_keys -= keys

    def _lacking(self, workload: SplitWorkload, leaving: Iterable[str]) -> int:
        kept = self._kept.get(workload, set())
        staying = len(kept) - sum(key in kept for key in leaving)
        return max(0, workload.split.wanted(self._pods[workload]) - staying)

    def _reason(self, workload: SplitWorkload) -> str:
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
