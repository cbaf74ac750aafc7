"""Pods counted by domain: what topology spread and pod affinity look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from nodesmith_cli.audit.peers import Alike
from nodesmith_cli.audit.places import Place

Counts: TypeAlias = tuple[dict[str, int], int]


class Tally:
    """Matching pods in each domain of one topology key, over `eligible` places (their domain by name).

    `waiting` are pods still to be undone that look at this tally, by domain, `waiters` in all, `leaning` those that are
    not counted themselves; `lasting` are counts that nothing undoes: pods that were there before the plan.
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
        """Count pods, those that are being deleted too where `leaving`."""
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
        """The fewest in any domain; 0 as long as there are fewer domains than minDomains."""
        return self._least if self._enough else 0

    def wait(self, domain: str, number: int, *, counted: bool) -> None:
        """Note that so many pods more look at a domain."""
        self.waiting[domain] += number
        self.waiters += number
        if not counted:
            self.leaning[domain] += number

    def forget(self) -> None:
        """Note that nobody looks."""
        self.waiting.clear()
        self.leaning.clear()
        self.waiters = 0

    def add(self, domain: str, number: int) -> None:
        """Count pods more, or less."""
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
        """Return the counts, to be restored."""
        return dict(self.counts), self.total

    def restore(self, saved: Counts) -> None:
        """Count as was saved."""
        self.counts, self.total = dict(saved[0]), saved[1]
        self._levels = Counter(self.counts.values())
        self._least = min(self.counts.values(), default=0)

    def is_lowest(self, domain: str) -> bool:
        """Return whether undoing a pod in this domain would leave the others further above the least."""
        return self._enough and self.counts[domain] == self._least


def domains(places: Iterable[Place], key: str) -> dict[str, str]:
    """Return the domain of every place that has one, by name."""
    return {place.name: place.labels[key] for place in places if key in place.labels}
