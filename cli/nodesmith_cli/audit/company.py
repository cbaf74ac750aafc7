"""Topology spread and pod affinity: the check that kube-scheduler could bind all pods of the plan in some order.

The search works backwards. It removes a pod that kube-scheduler could bind last, with all others in place, and repeats
this until no pod is left. The reverse is a valid order. Removing a pod makes it easier for the others, unless it lowers
the minimum of a spread that others still use, or removes a pod that their affinity needs. Such pods are removed only if
no others are left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from nodesmith_cli.audit.backtracking import MOST_PODS, Backtracking
from nodesmith_cli.audit.batches import Batch, Harm, compacted, put_back, severity, snapshot
from nodesmith_cli.audit.bonds import AffinityRule, Rule
from nodesmith_cli.audit.violations import Kind


class Complaint(NamedTuple):
    """The reason why a pod cannot be bound."""

    kind: Kind
    pod: str
    why: str


def complaints(batches: Iterable[Batch]) -> list[Complaint]:
    """Return the pods that cannot be bound as planned in any order, or nothing if there is an order.

    For a large plan with interdependent pods, only the quick search runs, which may report a valid plan.
    """
    start = compacted(batches)
    few = sum(len(batch.pods) for batch in start) <= MOST_PODS
    before = snapshot(start) if few else None
    found = [complaint for batch in _undo_all(start) for complaint in _complaints(batch)]
    if found and before and Backtracking(put_back(before)).succeeds():
        return []
    return found


def _undo_all(batches: list[Batch]) -> list[Batch]:
    """Remove all pods that could be bound last, one by one, and return the batches that remain."""
    left = batches
    while left:
        moved = False
        for batch in left:
            while batch.pods and batch.is_free and not batch.harmed:
                batch.undo()
                moved = True
        if not moved and not _undo_with_harm(left):
            break
        left = compacted(left)
    return left


def _undo_with_harm(batches: Sequence[Batch]) -> bool:
    """Remove the least harmful pods, at most one for each tally, and return whether there were any."""
    free = [(batch.harmed, batch) for batch in batches if batch.is_free]
    least = min((severity(harmed) for harmed, _ in free), default=(0, 0))
    touched: set[Harm] = set()
    for harmed, batch in free:
        if severity(harmed) == least and touched.isdisjoint(harmed) and batch.is_free:
            batch.undo()
            touched.update(harmed)
    return bool(free)


def _complaints(batch: Batch) -> Iterator[Complaint]:
    more = f" (and {len(batch.pods) - 1} similar pods)" if len(batch.pods) > 1 else ""
    for rule in batch.rules:
        if rule.excess > 0:
            kind, why = _words(rule)
            yield Complaint(kind, batch.pods[0], f"{why}, in any order of binding{more}")


def _words(rule: Rule) -> tuple[Kind, str]:
    if isinstance(rule, AffinityRule):
        where = ", ".join(f"{key}={seat[1]}" for key, seat in zip(rule.keys, rule.seats, strict=True))
        return Kind.AFFINITY, f"has no pod at {where} that its required affinity matches"
    there = rule.tally.counts.get(rule.domain, 0)
    what = f"{rule.key}={rule.domain} has {there} matching pods, the minimum is {rule.tally.least}"
    return Kind.SPREAD, f"{what}, and maxSkew is {rule.max_skew}"
