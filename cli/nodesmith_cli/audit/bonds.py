"""What one pod's required affinity and hard topology spread ask of the pods around it, as tallies to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from nodesmith_cli.audit.tallies import Tally


@dataclass(frozen=True, slots=True)
class SpreadRule:
    """One hard constraint of a pod in `domain`: `matches` itself, and whether it is `counted` there."""

    tally: Tally
    key: str
    domain: str
    max_skew: int
    matches: bool
    counted: bool

    @property
    def excess(self) -> int:
        """By how much the pod, as the last one to come, would overdo it; 0 or less where it may come."""
        there = self.tally.counts.get(self.domain, 0) - self.counted
        least = min(self.tally.least, there) if self.counted else self.tally.least
        return there + self.matches - least - self.max_skew

    @property
    def is_idle(self) -> bool:
        """True where no order of things could break the rule: what is counted here only becomes less."""
        there = self.tally.counts.get(self.domain, 0) - self.counted
        return there + self.matches <= self.max_skew

    @property
    def seats(self) -> Sequence[tuple[Tally, str]]:
        return ((self.tally, self.domain),)

    @property
    def likeness(self) -> tuple[object, ...]:
        """The same for rules that say the same."""
        return id(self.tally), self.domain, self.max_skew, self.matches, self.counted


@dataclass(frozen=True, slots=True)
class AffinityRule:
    """All required affinity terms of a pod: in each of `seats` (tally and domain) there must be a pod that meets all.

    Where no pod anywhere meets them, one that meets them itself (`counted` with the others) may be the first.
    """

    keys: tuple[str, ...]
    seats: Sequence[tuple[Tally, str]]
    counted: bool

    @property
    def excess(self) -> int:
        """1 where the pod could not come as the last one, else 0."""
        if all(tally.counts.get(domain, 0) > self.counted for tally, domain in self.seats):
            return 0
        return int(not (self.counted and all(tally.total == 1 for tally, _ in self.seats)))

    @property
    def is_idle(self) -> bool:
        """True where pods that were there before meet all terms."""
        return all(tally.lasting[domain] > 0 for tally, domain in self.seats)

    @property
    def likeness(self) -> tuple[object, ...]:
        """The same for rules that say the same."""
        return (*((id(tally), domain) for tally, domain in self.seats), self.counted)


Rule: TypeAlias = SpreadRule | AffinityRule


def matters(tally: Tally, domain: str, *, affinity: bool) -> bool:
    """Return whether anybody who waits could notice that there is a pod less in a domain."""
    if affinity or tally.least > 0:
        return tally.waiters > 0
    return tally.waiting[domain] > 0


def harm(tally: Tally, domain: str, *, affinity: bool, own: Rule | None) -> bool:
    """Return whether undoing a pod here may keep others from being undone later.

    For a spread that is lowering the least of all domains while somebody looks from another, for an affinity
    taking what others there lean on: one pod, or for those who are counted themselves one more. `own` is the rule
    by which the pod to be undone looks here.
    """
    if not affinity:
        return tally.waiters > tally.waiting[domain] and tally.is_lowest(domain)
    left = tally.counts[domain] - 1
    counted = tally.waiting[domain] - tally.leaning[domain] - (own is not None and own.counted)
    leaning = tally.leaning[domain] - (own is not None and not own.counted)
    can_start = left == 1 and tally.total == 2
    return (leaning > 0 and left < 1) or (counted > 0 and left < 2 and not can_start)
