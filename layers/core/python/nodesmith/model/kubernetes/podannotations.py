"""Annotations on pods, workloads and Nodes that say how they are served, and how they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import NamedTuple

from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT
from nodesmith.model.apimachinery.problems import Problem, at, shown
from nodesmith.model.apimachinery.times import go_duration
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.policies import NODE_SURCHARGE, read_surcharge

SCALE_UP_DELAY = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay"
"""On a pod: how long after its creation no node is bought for it, as a Go duration."""
ON_DEMAND_BASE = "nodesmith.dev/on-demand-base"
"""On a pod: how many pods of its controller stay off spot."""
ON_DEMAND_PERCENT = "nodesmith.dev/on-demand-percent"
"""On a pod: how many percent of the pods of its controller stay off spot; the larger of both numbers counts."""
PROACTIVE = "nodesmith.dev/proactive-scale-up"
"""On a Namespace: `true` if its workloads' pods are planned before they exist. On a workload: `false` leaves it out."""
DAEMON_EVICTION = "cluster-autoscaler.kubernetes.io/enable-ds-eviction"
"""On a pod of a DaemonSet: whether it is evicted when its node is drained."""


def scale_up_delay(text: str | None) -> timedelta | None:
    """Return the length of a SCALE_UP_DELAY, zero without one; None if it is not a Go duration.

    A negative duration is no delay, as in Cluster Autoscaler.
    """
    if text is None or text in _ZEROS:
        return timedelta()
    delay = go_duration(text) if len(text) <= _LONGEST_DELAY else None
    return None if delay is None else max(delay, timedelta())


_ZEROS = frozenset({"0", "+0", "-0"})
"""The durations that need no unit in Go."""
_LONGEST_DELAY = 64
# Annotations that protect from disruption in addition to Karpenter's current one. Two others of Cluster Autoscaler have
# no meaning here: `safe-to-evict: "true"` and `safe-to-evict-local-volumes` remove protections that only Cluster
# Autoscaler has.
POD_PROTECTIONS: Mapping[str, str] = {
    "karpenter.sh/do-not-evict": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
"""Annotation on a pod → the value with the meaning of DO_NOT_DISRUPT."""
NODE_PROTECTIONS: Mapping[str, str] = {
    "karpenter.sh/do-not-consolidate": "true",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
}


def surcharge_of(shape: Shape) -> float:
    """Return what each node with a DaemonSet's pod costs beyond its instance, USD an hour; 0 if it cannot be read."""
    text = shape.annotations.get(NODE_SURCHARGE)
    try:
        return read_surcharge(text) if text is not None else 0.0
    except ValueError:
        return 0.0


def surcharge_problems(daemonsets: Iterable[Shape]) -> Iterator[Problem]:
    """Yield the surcharges of DaemonSets that cannot be read."""
    for shape in daemonsets:
        text = shape.annotations.get(NODE_SURCHARGE)
        try:
            read_surcharge("0" if text is None else text)
        except ValueError as error:
            name = f"DaemonSet/{shape.namespace}/{shape.owner.removeprefix('DaemonSet/')}"
            yield Problem(name, at("metadata.annotations", NODE_SURCHARGE), shown(text), str(error), False)


SPLITS = frozenset((ON_DEMAND_BASE, ON_DEMAND_PERCENT))
_MOST_OF_SPLIT = {ON_DEMAND_BASE: 1_000_000, ON_DEMAND_PERCENT: 100}
_RIGHT_SPLIT = {
    ON_DEMAND_BASE: "must be a whole number of pods, such as 2",
    ON_DEMAND_PERCENT: "must be a whole number from 0 to 100, without a percent sign, such as 30",
}


class Split(NamedTuple):
    """How many pods of a workload stay off spot: at least `base`, and at least `percent` of all."""

    base: int
    percent: int

    def wanted(self, pods: int) -> int:
        """Return how many of so many pods stay off spot."""
        return min(pods, max(self.base, -(-pods * self.percent // 100)))

    def __str__(self) -> str:
        given = ((ON_DEMAND_BASE, self.base), (ON_DEMAND_PERCENT, self.percent))
        return ", ".join(f"{key}: {value}" for key, value in given if value)


def split_of(shape: Shape) -> Split | None:
    """Return the split of a workload with pods of this shape, None if there is none or it cannot be read."""
    base, percent = (
        _split_number(key, shape.annotations.get(key)) for key in (ON_DEMAND_BASE, ON_DEMAND_PERCENT)
    )
    return Split(base or 0, percent or 0) if base or percent else None


def split_fault(key: str, value: object) -> str:
    """Return what is wrong with the value of an annotation of splits, empty if nothing is."""
    return (
        ""
        if isinstance(value, str) and _split_number(key, value) is not None
        else f"{_RIGHT_SPLIT[key]}; it is ignored"
    )


def _split_number(key: str, text: str | None) -> int | None:
    if text is None:
        return 0
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_MOST_OF_SPLIT[key]))
    return int(text) if is_number and int(text) <= _MOST_OF_SPLIT[key] else None


def with_do_not_disrupt(annotations: Mapping[str, str], others: Mapping[str, str]) -> Mapping[str, str]:
    """Return the annotations with DO_NOT_DISRUPT added if one of `others` implies it. An existing value wins."""
    is_protected = any(annotations.get(name) == value for name, value in others.items())
    return {DO_NOT_DISRUPT: "true", **annotations} if is_protected else annotations
