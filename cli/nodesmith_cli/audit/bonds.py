"""The rules that required affinity and hard topology spread of a pod impose, based on tallies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from nodesmith_cli.audit.tallies import Tally


@dataclass(frozen=True, slots=True)
class SpreadRule:
    """One hard constraint of a pod in `domain`: whether it `matches` itself, and whether it is `counted` there."""

    tally: Tally
    key: str
    domain: str
    max_skew: int
    matches: bool
    counted: bool

    @property
    def excess(self) -> int:
        """By how much the pod would exceed maxSkew if it was bound last. 0 or less means that it may be."""
        there = self.tally.counts.get(self.domain, 0) - self.counted
        least = min(self.tally.least, there) if self.counted else self.tally.least
        return there + self.matches - least - self.max_skew

    @property
    def is_idle(self) -> bool:
        """True if no order can break the rule, since the counts only decrease."""
        there = self.tally.counts.get(self.domain, 0) - self.counted
        return there + self.matches <= self.max_skew

    @property
    def seats(self) -> Sequence[tuple[Tally, str]]:
        return ((self.tally, self.domain),)

    @property
    def likeness(self) -> tuple[object, ...]:
        """A value that is equal for equivalent rules."""
        return id(self.tally), self.domain, self.max_skew, self.matches, self.counted


@dataclass(frozen=True, slots=True)
class AffinityRule:
    """All required affinity terms of a pod: each of `seats` (tally and domain) needs a pod that matches all terms.

    If no pod matches them anywhere, a pod that matches its own terms (`counted`) may be the first.
    """

    keys: tuple[str, ...]
    seats: Sequence[tuple[Tally, str]]
    counted: bool

    @property
    def excess(self) -> int:
        """1 if the pod could not be bound last, else 0."""
        if all(tally.counts.get(domain, 0) > self.counted for tally, domain in self.seats):
            return 0
        return int(not (self.counted and all(tally.total == 1 for tally, _ in self.seats)))

    @property
    def is_idle(self) -> bool:
        """True if existing pods satisfy all terms."""
        return all(tally.lasting[domain] > 0 for tally, domain in self.seats)

    @property
    def likeness(self) -> tuple[object, ...]:
        """A value that is equal for equivalent rules."""
        return (*((id(tally), domain) for tally, domain in self.seats), self.counted)


Rule: TypeAlias = SpreadRule | AffinityRule


def matters(tally: Tally, domain: str, *, affinity: bool) -> bool:
    """Return whether removing a pod from a domain could affect any pod that is still to be removed."""
    if affinity or tally.least > 0:
        return tally.waiters > 0
    return tally.waiting[domain] > 0


def harm(tally: Tally, domain: str, *, affinity: bool, own: Rule | None) -> bool:
    """Return whether removing a pod from this domain may keep other pods from being removed later.

    For a spread, that is lowering the minimum while pods in other domains use it. For an affinity, it is removing the
    last matching pod, or the last but one if the remaining pods are counted themselves. `own` is the removed pod's rule
    on this tally.
    """
    if not affinity:
        return tally.waiters > tally.waiting[domain] and tally.is_lowest(domain)
    left = tally.counts[domain] - 1
    counted = tally.waiting[domain] - tally.leaning[domain] - (own is not None and own.counted)
    leaning = tally.leaning[domain] - (own is not None and not own.counted)
    can_start = left == 1 and tally.total == 2
    return (leaning > 0 and left < 1) or (counted > 0 and left < 2 and not can_start)
