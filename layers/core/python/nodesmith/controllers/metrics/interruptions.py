"""Metrics on the costs of interruptions, recorded while termination carries them out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from nodesmith.decisions.termination.interruptioncosts import displaced, interruption_costs, waiting_since
from nodesmith.model.commands import TerminationCommand
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.snapshot import Snapshot

LONGEST_SILENCE = timedelta(minutes=2)
"""The longest interval between two counts of waiting pods: two ticks. A longer interval is not counted."""


def _unheard(name: str, value: float) -> None:
    """Discard a value."""


@dataclass(slots=True)
class InterruptionMetrics:
    """Passes values to `note`, by name. Names that end in `Seconds` have seconds as their unit, others are counts.

    Kept from run to run: `since` is when pods may have begun to wait because EC2 took their node, `counted_at` when
    they were last counted.
    """

    note: Callable[[str, float], None] = _unheard
    since: datetime | None = None
    counted_at: datetime | None = None

    def count_waiting(self, claims: Sequence[NodeClaim], snapshot: Snapshot, now: datetime) -> None:
        """Count how long pods have been without a node since EC2 took theirs, until none waits any more."""
        begun = displaced(claims, now)
        self.since = begun or self.since
        if self.since is None:
            return
        waiting = waiting_since(self.since, snapshot.pods)
        spent = now - (self.counted_at or now)
        if waiting and spent <= LONGEST_SILENCE:
            self.note("PodPendingSeconds", waiting * spent.total_seconds())
        self.counted_at = now
        if not waiting and begun is None:
            self.since = self.counted_at = None

    def tell(
        self,
        commands: Sequence[TerminationCommand],
        claims: Sequence[NodeClaim],
        snapshot: Snapshot,
        now: datetime,
    ) -> None:
        """Record what the commands of one look show about interruptions."""
        found = interruption_costs(commands, claims, snapshot, now)
        took = {"Launched": found.launched, "Ready": found.ready, "Drained": found.drained}
        for step, spans in took.items():
            for seconds in spans:
                self.note(f"NoticeTo{step}Seconds", seconds)
        if found.killed:
            self.note("PodsKilledWithoutGrace", found.killed)
