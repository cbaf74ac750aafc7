"""The check that kube-scheduler could bind all pods of the plan in some order, by topology spread and pod affinity.

The search works backwards. It removes a pod that kube-scheduler could bind last, with all others in place, and repeats
this until no pod is left. The reverse is a valid order. Removing a pod makes it easier for the others, unless it lowers
the minimum of a spread that others still use, or removes a pod that their affinity needs. Such pods are removed only if
no others are left. Pods that all rules treat alike are one batch. If the search fails for a small plan, an exhaustive
one follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from nodesmith_cli.audit.topology.tallies import AffinityRule, Counts, Rule, Tally, harm, matters
from nodesmith_cli.audit.violations import Kind

Seat: TypeAlias = tuple[
    Tally, str, bool
]  # a tally that counts the pod, the domain, and whether it is for affinities


Harm: TypeAlias = tuple[bool, int]  # whether it is for affinities, and the tally's identity
MOST_PODS = 200
_MOST_STEPS = 3_000


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
    def equivalence_key(self) -> tuple[object, ...]:
        gives = tuple((id(tally), domain) for tally, domain, _ in self.gives)
        return gives, *(rule.equivalence_key for rule in self.rules)

    @property
    def tallies(self) -> set[Tally]:
        """All tallies that its rules use or that count its pods."""
        return {tally for rule in self.rules for tally, _ in rule.seats} | {tally for tally, *_ in self.gives}

    @property
    def is_free(self) -> bool:
        return all(rule.excess <= 0 for rule in self.rules)

    @property
    def harmed(self) -> list[Harm]:
        """The rules of other pods that the removal of one of these pods would make worse."""
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

    def put_back(self, pod: str) -> None:
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
    batch_by_key: dict[tuple[object, ...], Batch] = {}
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
            batch_by_key.setdefault(batch.equivalence_key, Batch(batch.rules, batch.gives, [])).pods.extend(
                batch.pods
            )
    return list(batch_by_key.values())


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


class Backtracking:
    """One exhaustive search over batches. It removes pods and puts them back, so the batches end up unchanged.

    It tries the least harmful pods first, and no alternatives to a harmless pod. Dead ends are remembered, and the
    number of steps is limited.
    """

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = batches
        self._dead: set[tuple[int, ...]] = set()
        self._steps = 0

    def succeeds(self) -> bool:
        """Return whether all pods can be removed. Returns False, too, if the steps run out."""
        state = tuple(len(batch.pods) for batch in self._batches)
        if not any(state):
            return True
        self._steps += 1
        if state in self._dead or self._steps > _MOST_STEPS:
            return False
        for batch in self._choices():
            pod = batch.undo()
            found = self.succeeds()
            batch.put_back(pod)
            if found:
                return True
        self._dead.add(state)
        return False

    def _choices(self) -> Iterator[Batch]:
        ranked = sorted(
            (severity(batch.harmed), not batch.rules, number)
            for number, batch in enumerate(self._batches)
            if batch.pods and batch.is_free
        )
        for (_, harmed), _, number in ranked:
            batch = self._batches[number]
            yield batch
            if not harmed and not any(affinity and tally.waiters for tally, _, affinity in batch.gives):
                return


class BindingFailure(NamedTuple):
    """The reason why a pod cannot be bound."""

    kind: Kind
    pod: str
    reason: str


def binding_failures(batches: Iterable[Batch]) -> list[BindingFailure]:
    """Return the pods that cannot be bound as planned in any order, or nothing if there is an order.

    For a large plan with interdependent pods, only the quick search runs, which may report a valid plan.
    """
    start = compacted(batches)
    few = sum(len(batch.pods) for batch in start) <= MOST_PODS
    before = snapshot(start) if few else None
    all_complaints = [complaint for batch in _undo_all(start) for complaint in _complaints(batch)]
    if all_complaints and before and Backtracking(put_back(before)).succeeds():
        return []
    return all_complaints


def _undo_all(batches: list[Batch]) -> list[Batch]:
    """Remove all pods that could be bound last, one by one, and return the batches that remain."""
    remaining = batches
    while remaining:
        moved = False
        for batch in remaining:
            while batch.pods and batch.is_free and not batch.harmed:
                batch.undo()
                moved = True
        if not moved and not _undo_with_harm(remaining):
            break
        remaining = compacted(remaining)
    return remaining


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


def _complaints(batch: Batch) -> Iterator[BindingFailure]:
    more = f" (and {len(batch.pods) - 1} similar pods)" if len(batch.pods) > 1 else ""
    for rule in batch.rules:
        if rule.excess > 0:
            kind, reason = _words(rule)
            yield BindingFailure(kind, batch.pods[0], f"{reason}, in any order of binding{more}")


def _words(rule: Rule) -> tuple[Kind, str]:
    if isinstance(rule, AffinityRule):
        where = ", ".join(f"{key}={seat[1]}" for key, seat in zip(rule.keys, rule.seats, strict=True))
        return Kind.AFFINITY, f"has no pod at {where} that its required affinity matches"
    count = rule.tally.counts.get(rule.domain, 0)
    text = f"{rule.key}={rule.domain} has {count} matching pods, the minimum is {rule.tally.least}"
    return Kind.SPREAD, f"{text}, and maxSkew is {rule.max_skew}"
