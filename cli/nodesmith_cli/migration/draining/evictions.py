"""Evictions from some nodes at a time, and what each of the nodes still waits for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from nodesmith.decisions.termination.evictions import Allowances
from nodesmith.model.kubernetes.evictions import EvictionRefused, PodDisruptionBudget, PodOnNode
from nodesmith.model.kubernetes.pods import Pod
from nodesmith_cli.migration.draining.assessment import MOST, held_reason, leaves
from nodesmith_cli.migration.draining.running import SHOWN, Drain
from nodesmith_cli.sharing.ownership import Manifest
from nodesmith_formats.kubernetes.objects import name_of
from nodesmith_formats.wording import counted, some

_DETACHED_WITHIN = timedelta(minutes=2)
"""How long the volumes of pods that have left may take to be detached, before the instance ends anyway."""


@dataclass(slots=True)
class Progress:
    """The state and progress of a run so far.

    `failed` and `held` are reasons by instance: nodes that were not drained in time, and nodes whose pods must not be
    evicted. `owners` are those of evicted pods, each a namespace and `Kind/name`. `known` are the pods that waited
    before, and `desired` the size that the group should have now.
    """

    known: frozenset[str] = frozenset()
    failed: dict[str, str] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    owners: set[tuple[str, str]] = field(default_factory=set)
    emptied: dict[str, datetime] = field(default_factory=dict)
    desired: int | None = None


@dataclass(frozen=True, slots=True)
class DrainObstacle:
    """Why a node cannot end yet, empty if it can. `is_held` if only pods are left that must not be evicted."""

    reason: str = ""
    is_held: bool = False


def looked_at(
    run: Drain, batch: Mapping[str, Manifest | None], progress: Progress
) -> dict[str, DrainObstacle]:
    """Request the evictions that are possible now, and return the standing of each node."""
    snapshot = run.objects.looked_at([name_of(node) for node in batch.values() if node])
    pods = {node: [each for each in bound if leaves(each)] for node, bound in by_node(snapshot.pods).items()}
    refused = _evicted(
        run, [pod for evictable in pods.values() for pod in evictable], snapshot.budgets, progress
    )
    waiting = sorted(
        pod.key
        for pod in run.objects.waiting()
        if (pod.shape.namespace, pod.shape.owner) in progress.owners and pod.key not in progress.known
    )
    return {
        instance: _standing(
            run, node, pods.get(name_of(node) if node else "", []), refused, waiting, progress
        )
        for instance, node in batch.items()
    }


def _evicted(
    run: Drain, pods: Sequence[Pod], budgets: Iterable[PodDisruptionBudget], progress: Progress
) -> dict[str, str]:
    """Evict the pods that their budgets allow now. Return why others are not, by pod."""
    allowances, now = Allowances(budgets), run.clock()
    due = [pod for pod in pods if not pod.deleting and not held_reason(pod, now)]
    allowed = [pod for pod in due if allowances.take(pod)]
    refused = {pod.key: _guarded(pod, allowances) for pod in due if pod not in allowed}
    progress.owners.update((pod.shape.namespace, pod.shape.owner) for pod in allowed)
    evictions = [PodOnNode(pod.key, pod.node, budget=allowances.budget(pod)) for pod in allowed]
    for key, outcome in (run.objects.evict(evictions) if evictions else {}).items():
        if isinstance(outcome, EvictionRefused):
            refused[key] = outcome.message[:MOST]
    return refused


def _guarded(pod: Pod, allowances: Allowances) -> str:
    names = " and ".join(sorted(guard.key for guard in allowances.guards(pod.shape)))
    return f"PodDisruptionBudget {names} allows no eviction now"


def _standing(
    run: Drain,
    node: Manifest | None,
    pods: Sequence[Pod],
    refused: Mapping[str, str],
    waiting: Sequence[str],
    progress: Progress,
) -> DrainObstacle:
    if node is None:
        return DrainObstacle()
    held = {pod.key: reason for pod in pods if (reason := held_reason(pod, run.clock()))}
    moving = [pod for pod in pods if pod.key not in held]
    if moving:
        first = min(moving, key=lambda pod: (pod.key not in refused, pod.key))
        reason = refused.get(first.key) or "is terminating"
        more = f" and {counted(len(moving) - 1, 'other pod')}" if len(moving) > 1 else ""
        return DrainObstacle(f"pod {first.key}{more}: {reason}")
    if waiting:
        return DrainObstacle(f"no node yet for {some(waiting, SHOWN)}")
    if held:
        key = min(held)
        return DrainObstacle(f"pod {key} {held[key]}", is_held=True)
    return _detached(run, name_of(node), progress)


def _detached(run: Drain, node: str, progress: Progress) -> DrainObstacle:
    """Return an empty standing once no volume is attached to a node without pods, or after two minutes."""
    since = progress.emptied.setdefault(node, run.clock())
    if run.clock() - since >= _DETACHED_WITHIN or not (volumes := run.objects.volumes_of(node)):
        return DrainObstacle()
    return DrainObstacle(f"volumes are still attached: {some(volumes, SHOWN)}")


def by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Return pods by the names of their nodes."""
    pods_by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        pods_by_node.setdefault(pod.node, []).append(pod)
    return pods_by_node
