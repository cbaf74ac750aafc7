"""Topology spread and pod affinity: is there an order in which kube-scheduler could bind all pods of the plan?

The search goes backwards. A pod that kube-scheduler would bind as the very last one, all others being there, is taken
away, and the question asked again, until no pod is left: backwards, that is the order. Taking a pod away makes it
easier for the others, unless it lowers the least filled domain of a spread that others still look at, or takes the
company that others need. Such pods are taken only when nothing else is left to take.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from nodesmith_cli.audit.bonds import AffinityRule, SpreadRule, harm, matters
from nodesmith_cli.audit.outcome import Outcome
from nodesmith_cli.audit.tallies import Tally
from nodesmith_cli.audit.violations import Kind

Rule: TypeAlias = SpreadRule | AffinityRule


Seat: TypeAlias = tuple[
    Tally, str, bool
]  # a tally that counts the pod, in this domain; True if affinities look at it


@dataclass(slots=True)
class Batch:
    """Pods with the same rules, counted in the same places (`gives`): any one stands for the others."""

    rules: Sequence[Rule]
    gives: Sequence[Seat]
    pods: list[str]

    @property
    def likeness(self) -> tuple[object, ...]:
        gives = tuple((id(tally), domain) for tally, domain, _ in self.gives)
        return gives, *(rule.likeness for rule in self.rules)

    @property
    def is_free(self) -> bool:
        return all(rule.excess <= 0 for rule in self.rules)

    @property
    def harmed(self) -> list[int]:
        """The tallies that would be worse off for others without one of these pods."""
        looked_at = {id(tally) for rule in self.rules for tally, _ in rule.seats}
        return [
            id(tally)
            for tally, domain, affinity in self.gives
            if harm(tally, domain, looks=id(tally) in looked_at, affinity=affinity)
        ]

    def undo(self) -> None:
        """Take one pod away."""
        self.pods.pop()
        self.wait(-1)
        for tally, domain, _ in self.gives:
            tally.take(domain)

    def wait(self, number: int) -> None:
        """Tell the tallies that so many more pods look at them."""
        for rule in self.rules:
            for tally, domain in rule.seats:
                tally.waiting[domain] += number
                tally.waiters += number


def undo_all(batches: Iterable[Batch]) -> list[Batch]:
    """Take away all pods, one by one, each as kube-scheduler could have bound it last. Gives what cannot be taken."""
    left = _compacted(batches)
    while left:
        moved = False
        for batch in left:
            while batch.pods and batch.is_free and not batch.harmed:
                batch.undo()
                moved = True
        if not moved and not _undo_with_harm(left):
            break
        left = _compacted(left)
    return left


def _compacted(batches: Iterable[Batch]) -> list[Batch]:
    """Drop the rules that nothing can break any more and the counts that nobody looks at; put together what is alike.

    The fewer tallies are left, the more pods are alike: what began as one batch a node ends as one a zone.
    """
    found: dict[tuple[object, ...], Batch] = {}
    live = [batch for batch in batches if batch.pods]
    for batch in live:
        for tally in (*(t for rule in batch.rules for t, _ in rule.seats), *(t for t, *_ in batch.gives)):
            tally.waiting.clear()
            tally.waiters = 0
    for batch in live:
        batch.rules = [rule for rule in batch.rules if not rule.is_idle]
        batch.wait(len(batch.pods))
    for batch in live:
        batch.gives = [(t, d, a) for t, d, a in batch.gives if matters(t, d, affinity=a)]
        if batch.rules or batch.gives:
            found.setdefault(batch.likeness, Batch(batch.rules, batch.gives, [])).pods.extend(batch.pods)
    return list(found.values())


def _undo_with_harm(batches: Sequence[Batch]) -> bool:
    """Take away pods that harm as few tallies as can be, no tally twice. Tells whether there was any."""
    free = [(batch.harmed, batch) for batch in batches if batch.is_free]
    fewest = min((len(harmed) for harmed, _ in free), default=0)
    touched: set[int] = set()
    for harmed, batch in free:
        if len(harmed) == fewest and touched.isdisjoint(harmed) and batch.is_free:
            batch.undo()
            touched.update(harmed)
    return bool(free)


def report(result: Outcome, stuck: Iterable[Batch]) -> None:
    """Say of pods that no order could bring where the plan has them which rule is in the way."""
    for batch in stuck:
        for rule in batch.rules:
            if rule.excess > 0:
                kind, why = _words(rule)
                more = f" (and {len(batch.pods) - 1} pods like it)" if len(batch.pods) > 1 else ""
                result.report(kind, batch.pods[0], f"{why}{more}")


def _words(rule: Rule) -> tuple[Kind, str]:
    if isinstance(rule, AffinityRule):
        where = ", ".join(f"{key}={seat[1]}" for key, seat in zip(rule.keys, rule.seats, strict=True))
        return (
            Kind.AFFINITY,
            f"has nobody at {where} whom its required affinity wants, in any order of binding",
        )
    there = rule.tally.counts.get(rule.domain, 0)
    what = f"{rule.key}={rule.domain} has {there} matching pods, the least is {rule.tally.least}"
    return Kind.SPREAD, f"{what}, maxSkew is {rule.max_skew}, in any order of binding"
