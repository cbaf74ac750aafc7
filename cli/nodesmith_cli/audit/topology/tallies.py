"""Pods counted by domain, and the rules of required affinity and hard topology spread, based on these tallies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from nodesmith_cli.audit.reading.places import Place
from nodesmith_cli.audit.topology.peers import EqualPods

Counts: TypeAlias = tuple[dict[str, int], int]


class Tally:
    """The number of matching pods in each domain of one topology key, over `eligible` places (their domain by name).

    `waiting` is the number of pods to remove that use this tally, by domain; `waiters` is their total, and `leaning`
    the number of those not counted themselves. `lasting` counts the pods that existed before the plan.
    """

    def __init__(self, eligible: Mapping[str, str], min_domains: int = 1) -> None:
        self.eligible = eligible
        self.counts: dict[str, int] = dict.fromkeys(eligible.values(), 0)
        self.lasting: Counter[str] = Counter()
        self.waiting: Counter[str] = Counter()
        self.leaning: Counter[str] = Counter()
        self.waiters = 0
        self.total = 0
        self._enough = len(self.counts) >= min_domains
        self._levels: Counter[int] = Counter()
        self._least = 0

    def count(self, selected: Iterable[EqualPods], *, leaving: bool) -> None:
        """Count the selected pods. With `leaving`, include those that are being deleted."""
        for alike in selected:
            for name, number in (alike.on if leaving else alike.staying).items():
                domain = self.eligible.get(name)
                if domain is not None:
                    self.counts[domain] += number
                    self.total += number
        self.lasting.update(self.counts)
        self._levels = Counter(self.counts.values())
        self._least = min(self.counts.values(), default=0)

    @property
    def least(self) -> int:
        """The minimum over all domains, or 0 if there are fewer domains than minDomains."""
        return self._least if self._enough else 0

    def wait(self, domain: str, number: int, *, counted: bool) -> None:
        """Add to the number of pods that use a domain."""
        self.waiting[domain] += number
        self.waiters += number
        if not counted:
            self.leaning[domain] += number

    def forget(self) -> None:
        """Reset the number of pods that use this tally."""
        self.waiting.clear()
        self.leaning.clear()
        self.waiters = 0

    def add(self, domain: str, number: int) -> None:
        """Add to the number of pods in a domain."""
        before = self.counts[domain]
        after = self.counts[domain] = before + number
        self.total += number
        self._levels[before] -= 1
        self._levels[after] += 1
        if after < self._least:
            self._least = after
        elif before == self._least and not self._levels[before]:
            self._least = min(level for level, domains in self._levels.items() if domains)

    def saved(self) -> Counts:
        """Return the counts for `restore`."""
        return dict(self.counts), self.total

    def restore(self, saved: Counts) -> None:
        """Restore saved counts."""
        self.counts, self.total = dict(saved[0]), saved[1]
        self._levels = Counter(self.counts.values())
        self._least = min(self.counts.values(), default=0)

    def is_lowest(self, domain: str) -> bool:
        """Return whether removing a pod from this domain lowers the minimum."""
        return self._enough and self.counts[domain] == self._least


def domains(places: Iterable[Place], key: str) -> dict[str, str]:
    """Return the domain of every place that has one, by place name."""
    return {place.name: place.labels[key] for place in places if key in place.labels}


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
        """The excess over maxSkew if the pod was bound last. It may be bound last if that is 0 or less."""
        others = self.tally.counts.get(self.domain, 0) - self.counted
        least = min(self.tally.least, others) if self.counted else self.tally.least
        return others + self.matches - least - self.max_skew

    @property
    def is_idle(self) -> bool:
        """True if no order can break the rule, since the counts only decrease."""
        others = self.tally.counts.get(self.domain, 0) - self.counted
        return others + self.matches <= self.max_skew

    @property
    def seats(self) -> Sequence[tuple[Tally, str]]:
        return ((self.tally, self.domain),)

    @property
    def equivalence_key(self) -> tuple[object, ...]:
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
    def equivalence_key(self) -> tuple[object, ...]:
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
