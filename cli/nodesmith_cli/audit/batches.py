"""Batches of pods that all spread and affinity rules treat alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from nodesmith_cli.audit.bonds import Rule, harm, matters
from nodesmith_cli.audit.tallies import Counts, Tally

Seat: TypeAlias = tuple[
    Tally, str, bool
]  # a tally that counts the pod, the domain, and whether it is for affinities


Harm: TypeAlias = tuple[bool, int]  # whether it is for affinities, and the tally's identity


def severity(harmed: Sequence[Harm]) -> tuple[int, int]:
    """Rank harm. Harm to affinities counts most, since it is permanent; a spread's minimum may recover."""
    return sum(affinity for affinity, _ in harmed), len(harmed)


@dataclass(slots=True)
class Batch:
    """Interchangeable pods, with the same rules and counted in the same tallies (`gives`)."""

    rules: Sequence[Rule]
    gives: Sequence[Seat]
    pods: list[str]

    @property
    def likeness(self) -> tuple[object, ...]:
        gives = tuple((id(tally), domain) for tally, domain, _ in self.gives)
        return gives, *(rule.likeness for rule in self.rules)

    @property
    def tallies(self) -> set[Tally]:
        """All tallies that its rules use or that count its pods."""
        return {tally for rule in self.rules for tally, _ in rule.seats} | {tally for tally, *_ in self.gives}

    @property
    def is_free(self) -> bool:
        return all(rule.excess <= 0 for rule in self.rules)

    @property
    def harmed(self) -> list[Harm]:
        """What removing one of these pods would make worse for other pods."""
        own = {id(tally): rule for rule in self.rules for tally, _ in rule.seats}
        return [
            (affinity, id(tally))
            for tally, domain, affinity in self.gives
            if harm(tally, domain, affinity=affinity, own=own.get(id(tally)))
        ]

    def undo(self) -> str:
        """Remove one pod, and return its name."""
        self.wait(-1)
        for tally, domain, _ in self.gives:
            tally.add(domain, -1)
        return self.pods.pop()

    def redo(self, pod: str) -> None:
        """Put a pod back."""
        self.pods.append(pod)
        self.wait(1)
        for tally, domain, _ in self.gives:
            tally.add(domain, 1)

    def wait(self, number: int) -> None:
        """Add to the number of pods that use the tallies of the rules."""
        for rule in self.rules:
            for tally, domain in rule.seats:
                tally.wait(domain, number, counted=rule.counted)


def compacted(batches: Iterable[Batch]) -> list[Batch]:
    """Drop rules that can no longer be broken and counts that are no longer used, and merge batches that are alike.

    With fewer tallies, more pods are alike: batches that start as one per node end as one per zone.
    """
    found: dict[tuple[object, ...], Batch] = {}
    live = [batch for batch in batches if batch.pods]
    for batch in live:
        for tally in batch.tallies:
            tally.forget()
    for batch in live:
        batch.rules = [rule for rule in batch.rules if not rule.is_idle]
        batch.wait(len(batch.pods))
    for batch in live:
        batch.gives = [(t, d, a) for t, d, a in batch.gives if matters(t, d, affinity=a)]
        if batch.rules or batch.gives:
            found.setdefault(batch.likeness, Batch(batch.rules, batch.gives, [])).pods.extend(batch.pods)
    return list(found.values())


Snapshot: TypeAlias = tuple[list[Batch], dict[Tally, Counts]]


def snapshot(batches: Sequence[Batch]) -> Snapshot:
    """Return a copy of batches and all counts."""
    kept = [Batch(batch.rules, batch.gives, list(batch.pods)) for batch in batches]
    return kept, {tally: tally.saved() for batch in batches for tally in batch.tallies}


def put_back(before: Snapshot) -> list[Batch]:
    """Return the batches of a snapshot, and restore the counts."""
    batches, counts = before
    for tally, saved in counts.items():
        tally.restore(saved)
    return compacted(batches)
