"""Topology spread and pod affinity: is there an order in which kube-scheduler could bind all pods of the plan?

The search goes backwards. A pod that kube-scheduler would bind as the very last one, all others being there, is taken
away, and the question asked again, until no pod is left: backwards, that is the order. Taking a pod away makes it
easier for the others, unless it lowers the least filled domain of a spread that others still look at, or takes the
company that others need. Such pods are taken only when nothing else is left to take.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from nodesmith_cli.audit.bonds import AffinityRule, SpreadRule, harm
from nodesmith_cli.audit.outcome import Outcome
from nodesmith_cli.audit.tallies import Tally
from nodesmith_cli.audit.violations import Kind

Rule: TypeAlias = SpreadRule | AffinityRule


@dataclass(slots=True)
class Batch:
    """Pods that are in the same domains and look at the same tallies: any one stands for the others.

    `gives` are the tallies that count them, with their domain; True where affinities look at it.
    """

    rules: Sequence[Rule]
    gives: Sequence[tuple[Tally, str, bool]]
    pods: list[str] = field(default_factory=list)
    looked_at: frozenset[int] = frozenset()

    def settle(self) -> None:
        """Tell the tallies who waits, before anything is undone."""
        self.looked_at = frozenset(id(tally) for rule in self.rules for tally, _ in rule.seats)
        self._wait(len(self.pods))

    def _wait(self, number: int) -> None:
        for rule in self.rules:
            for tally, domain in rule.seats:
                tally.waiting[domain] += number

    @property
    def is_free(self) -> bool:
        return all(rule.excess <= 0 for rule in self.rules)

    @property
    def harmed(self) -> list[int]:
        """The tallies that would be worse off for others without one of these pods."""
        return [
            id(tally)
            for tally, domain, affinity in self.gives
            if harm(tally, domain, looks=id(tally) in self.looked_at, affinity=affinity)
        ]

    def undo(self) -> None:
        """Take one pod away."""
        self.pods.pop()
        self._wait(-1)
        for tally, domain, _ in self.gives:
            tally.take(domain)


def undo_all(batches: Iterable[Batch]) -> list[Batch]:
    """Take away all pods, one by one, each as kube-scheduler could have bound it last. Gives what cannot be taken."""
    left = list(batches)
    while left:
        moved = False
        for batch in left:
            while batch.pods and batch.is_free and not batch.harmed:
                batch.undo()
                moved = True
        left = [batch for batch in left if batch.pods]
        if not moved and not _undo_with_harm(left):
            return left
        left = [batch for batch in left if batch.pods]
    return left


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


def merged(batches: Iterator[tuple[str, Sequence[Rule], Sequence[tuple[Tally, str, bool]]]]) -> list[Batch]:
    """Put together pods (by name) whose rules and tallies are the same."""
    found: dict[tuple[object, ...], Batch] = {}
    for name, rules, gives in batches:
        key = (*((id(t), d, a) for t, d, a in gives), *(_key(rule) for rule in rules))
        found.setdefault(key, Batch(rules, gives)).pods.append(name)
    for batch in found.values():
        batch.settle()
    return list(found.values())


def _key(rule: Rule) -> tuple[object, ...]:
    seats = tuple((id(tally), domain) for tally, domain in rule.seats)
    skew = rule.max_skew if isinstance(rule, SpreadRule) else 0
    return (seats, skew, rule.counted, isinstance(rule, SpreadRule) and rule.matches)
