"""Topology spread and pod affinity: is there an order in which kube-scheduler could bind all pods of the plan?

The search goes backwards. A pod that kube-scheduler would bind as the very last one, all others being there, is taken
away, and the question asked again, until no pod is left: backwards, that is the order. Taking a pod away makes it
easier for the others, unless it lowers the least filled domain of a spread that others still look at, or takes the
company that others need. Such pods are taken only when nothing else is left to take.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from nodesmith_cli.audit.backtracking import MOST_PODS, Backtracking
from nodesmith_cli.audit.batches import Batch, Harm, compacted, put_back, severity, snapshot
from nodesmith_cli.audit.bonds import AffinityRule, Rule
from nodesmith_cli.audit.violations import Kind


class Complaint(NamedTuple):
    """What is in the way of a pod."""

    kind: Kind
    pod: str
    why: str


def complaints(batches: Iterable[Batch]) -> list[Complaint]:
    """Return which pods no order of binding could bring where the plan has them; nothing where there is an order.

    Where the plan has many pods that look at one another, and only the quick search was tried, it errs on the strict
    side.
    """
    start = compacted(batches)
    few = sum(len(batch.pods) for batch in start) <= MOST_PODS
    before = snapshot(start) if few else None
    found = [complaint for batch in _undo_all(start) for complaint in _complaints(batch)]
    if found and before and Backtracking(put_back(before)).succeeds():
        return []
    return found


def _undo_all(batches: list[Batch]) -> list[Batch]:
    """Take away all pods, one by one, each as kube-scheduler could have bound it last. Gives what cannot be taken."""
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
    """Take away pods that harm as little as can be, no tally twice. Tells whether there was any."""
    free = [(batch.harmed, batch) for batch in batches if batch.is_free]
    least = min((severity(harmed) for harmed, _ in free), default=(0, 0))
    touched: set[Harm] = set()
    for harmed, batch in free:
        if severity(harmed) == least and touched.isdisjoint(harmed) and batch.is_free:
            batch.undo()
            touched.update(harmed)
    return bool(free)


def _complaints(batch: Batch) -> Iterator[Complaint]:
    more = f" (and {len(batch.pods) - 1} pods like it)" if len(batch.pods) > 1 else ""
    for rule in batch.rules:
        if rule.excess > 0:
            kind, why = _words(rule)
            yield Complaint(kind, batch.pods[0], f"{why}, in any order of binding{more}")


def _words(rule: Rule) -> tuple[Kind, str]:
    if isinstance(rule, AffinityRule):
        where = ", ".join(f"{key}={seat[1]}" for key, seat in zip(rule.keys, rule.seats, strict=True))
        return Kind.AFFINITY, f"has nobody at {where} whom its required affinity wants"
    there = rule.tally.counts.get(rule.domain, 0)
    what = f"{rule.key}={rule.domain} has {there} matching pods, the least is {rule.tally.least}"
    return Kind.SPREAD, f"{what}, maxSkew is {rule.max_skew}"
