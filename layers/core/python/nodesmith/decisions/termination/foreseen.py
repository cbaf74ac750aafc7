"""What would prevent a node from being drained, foreseen before its termination: pods that can never be evicted."""

from __future__ import annotations

from datetime import datetime

from nodesmith.decisions.termination.draining import must_go
from nodesmith.decisions.termination.protection import Allowances
from nodesmith.decisions.termination.waiting import Waiting, guarded, protected
from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.snapshot import Snapshot


def obstacles(node: str, snapshot: Snapshot, now: datetime) -> list[Waiting]:
    """Return what the node's termination would wait for until a user intervenes, with the messages of that wait.

    Obstacles that may pass with time are left out: a budget that allows nothing now, a protection for some hours.
    """
    allowances = Allowances(snapshot.budgets)
    forever: list[Pod] = []
    by_guards: dict[tuple[str, ...], list[Pod]] = {}
    for pod in sorted(snapshot.pods, key=lambda pod: pod.key):
        if pod.node != node or pod.deleting or not must_go(pod.shape):
            continue
        if pod.shape.annotations.get(DO_NOT_DISRUPT) == "true":
            forever.append(pod)
        guards = allowances.guards(pod.shape)
        if len(guards) > 1 or any(budget.never_allows for budget in guards):
            by_guards.setdefault(tuple(budget.key for budget in guards), []).append(pod)
    found = [protected(forever, now, now)]
    found += [guarded(by_guards[keys], Allowances(snapshot.budgets), now) for keys in sorted(by_guards)]
    return [waiting for waiting in found if waiting is not None]
