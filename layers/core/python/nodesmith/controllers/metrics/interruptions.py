"""What interruptions come to, told as figures while termination carries them out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from nodesmith.decisions.termination.interruptioncosts import displaced, interruption_costs, waiting_since
from nodesmith.model.commands import TerminationCommand
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.snapshot import Snapshot

LONGEST_SILENCE = timedelta(minutes=2)
"""Between two looks at pods that wait: two ticks. What a function that slept longer has missed is not guessed."""


def _unheard(name: str, value: float) -> None:
    """Let a figure be."""


@dataclass(slots=True)
class InterruptionMetrics:
    """Tells figures to `note`, by name: one that ends in `Seconds` is so many seconds, others are counts.

    Kept from run to run: since when pods may wait because EC2 took their node, and when they were last counted.
    """

    note: Callable[[str, float], None] = _unheard
    since: datetime | None = None
    counted_at: datetime | None = None

    def count_waiting(self, claims: Sequence[NodeClaim], snapshot: Snapshot, now: datetime) -> None:
        """Count how long pods have been without a node since EC2 took theirs, until none is any more."""
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
        """Tell what the commands of one look say of interruptions."""
        found = interruption_costs(commands, claims, snapshot, now)
        took = {"Launched": found.launched, "Ready": found.ready, "Drained": found.drained}
        for step, spans in took.items():
            for seconds in spans:
                self.note(f"NoticeTo{step}Seconds", seconds)
        if found.killed:
            self.note("PodsKilledWithoutGrace", found.killed)
