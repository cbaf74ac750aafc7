"""Slots from pods: a pod that replaces another of the same workload continues its place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from nodesmith.model.kubernetes.pods import Shape
from nodesmith_local.simulation.trace import Slot

HANDOVER = timedelta(minutes=2)
"""How long after the end of a pod its replacement may be created: Jobs and ReplicaSets back off after failures."""
_JOB = "Job/"


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """One pod as it was observed. It ended between the two times of `ended`; None while it was still there."""

    key: str
    shape: Shape
    created_at: datetime
    ended: tuple[datetime, datetime] | None = None
    node: str = ""
    bound_at: datetime | None = None


def slots(observed_pods: Iterable[ObservedPod], start: datetime) -> list[Slot]:
    """Return the slots of pods. DaemonSets' and static pods have none: they come with their nodes.

    Of pods of the same shape and owner, one that is created while another ends continues the other's slot: it
    replaces a pod that was evicted, deleted or has failed. Each pod of a Job is a slot of its own, and runs for as long
    as it was observed to.
    """
    groups: dict[tuple[int, str], list[ObservedPod]] = {}
    for observed in observed_pods:
        if observed.shape.moves:
            groups.setdefault((id(observed.shape), observed.shape.owner), []).append(observed)
    all_slots: list[Slot] = []
    for (_, owner), group in groups.items():
        group.sort(key=lambda life: (life.created_at, life.key))
        if owner.startswith(_JOB):
            all_slots += [_of_job(life, start) for life in group]
        else:
            all_slots += (_of_chain(chain, start) for chain in _chains(group))
    return sorted(all_slots, key=lambda slot: (slot.arrives, slot.key))


def workload_of(shape: Shape) -> str:
    """Return `namespace/Kind/name` of what a pod belongs to; a pod of its own is `namespace/Pod`."""
    return f"{shape.namespace}/{shape.owner or 'Pod'}"


def _chains(group: Sequence[ObservedPod]) -> list[list[ObservedPod]]:
    """Join the pods of one workload, in the order of their creation, into chains of replacements."""
    chains: list[list[ObservedPod]] = []
    for observed in group:
        ended = ((chain, chain[-1].ended) for chain in chains)
        fitting = [
            (last, number, chain)
            for number, (chain, ends) in enumerate(ended)
            if ends is not None and ends[0] <= observed.created_at <= (last := ends[1]) + HANDOVER
        ]
        replaced = min(fitting, key=lambda each: each[:2])[2] if fitting and observed.shape.owner else None
        if replaced is None:
            chains.append([observed])
        else:
            replaced.append(observed)
    return chains


def _of_chain(chain: Sequence[ObservedPod], start: datetime) -> Slot:
    first, last = chain[0], chain[-1]
    node = first.node if first.created_at <= start else ""
    arrives = max(first.created_at, start)
    return Slot(first.key, workload_of(first.shape), first.shape, arrives, last.ended, node=node)


def _of_job(observed: ObservedPod, start: datetime) -> Slot:
    slot = _of_chain([observed], start)
    if observed.ended is None:
        return slot
    began = max(observed.bound_at or observed.created_at, start)
    middle = observed.ended[0] + (observed.ended[1] - observed.ended[0]) / 2
    return replace(slot, runs=max(middle - began, timedelta(seconds=1)))
