"""Pods counted by domain, for topology spread and pod affinity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from nodesmith_cli.audit.peers import Alike
from nodesmith_cli.audit.places import Place

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

    def count(self, selected: Iterable[Alike], *, leaving: bool) -> None:
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
