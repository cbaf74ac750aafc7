"""Pods' waiting times from the timeline: seconds of the cluster's time from pending to each step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from nodesmith_local.runs.timeline import BOUND, LAUNCHED, PENDING, READY, REGISTERED, Entry

STEPS = (LAUNCHED, REGISTERED, READY, BOUND)


@dataclass(frozen=True, slots=True)
class Latency:
    """The time from pending to one step, over the pods that reached a node."""

    step: str
    p50_seconds: float
    max_seconds: float
    pods: int


def latencies(timeline: Iterable[Entry], claim_of_node: Mapping[str, str]) -> tuple[Latency, ...]:
    """Measure each step for the pods that went from pending to a node with a NodeClaim.

    `launched` and `registered` are milestones of the pod's claim, `ready` of its node; they count as 0 seconds if they
    precede the pod. `claim_of_node` maps a node's name to its claim's. A step that no pod made is omitted.
    """
    first: dict[tuple[str, str], Entry] = {}
    for entry in timeline:
        first.setdefault((entry.object, entry.what), entry)
    waits: dict[str, list[float]] = {step: [] for step in STEPS}
    for (pod, milestone), pending in first.items():
        bound = first.get((pod, BOUND))
        if milestone == PENDING and bound and bound.detail in claim_of_node:
            node, claim = bound.detail, claim_of_node[bound.detail]
            for step, reached_at in _moments(first, pod, node, claim):
                waits[step].append(max(0.0, (reached_at - pending.at).total_seconds()))
    return tuple(
        Latency(s, median(seconds), max(seconds), len(seconds)) for s, seconds in waits.items() if seconds
    )


def _moments(
    first: Mapping[tuple[str, str], Entry], pod: str, node: str, claim: str
) -> Iterator[tuple[str, datetime]]:
    objects = {
        LAUNCHED: f"NodeClaim/{claim}",
        REGISTERED: f"NodeClaim/{claim}",
        READY: f"Node/{node}",
        BOUND: pod,
    }
    for step, name in objects.items():
        if (name, step) in first:
            yield step, first[name, step].at
