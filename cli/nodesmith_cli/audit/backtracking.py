"""An exhaustive search for an order of binding, for small plans in which the quick search fails.

Like the quick search, it works backwards from the end. It tries the least harmful pods first, and tries no alternatives
to a harmless pod. Dead ends are remembered, and the number of steps is limited.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodesmith_cli.audit.batches import Batch, severity

MOST_PODS = 200
_MOST_STEPS = 3_000


class Backtracking:
    """One search over batches. It removes pods and puts them back, so the batches end up unchanged."""

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
