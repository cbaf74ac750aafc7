"""Every order of binding, for plans of few pods: where the quick search for one fails, this one decides.

As there, it goes backwards from the end. What is tried first is what harms least; a pod that can harm nobody is taken
without a second thought. States that led nowhere are remembered, and the steps are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodesmith_cli.audit.batches import Batch, severity

MOST_PODS = 200
_MOST_STEPS = 3_000


class Backtracking:
    """One search over batches, whose pods are taken away and put back; they are left as they were."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = batches
        self._dead: set[tuple[int, ...]] = set()
        self._steps = 0

    def succeeds(self) -> bool:
        """Return whether all pods can be taken away; False also where the steps do not suffice to find out."""
        state = tuple(len(batch.pods) for batch in self._batches)
        if not any(state):
            return True
        self._steps += 1
        if state in self._dead or self._steps > _MOST_STEPS:
            return False
        for batch in self._choices():
            pod = batch.undo()
            found = self.succeeds()
            batch.redo(pod)
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
