"""What drains show: how long they take, Karpenter's metrics on drained pods, and the costs of interruptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from nodesmith.decisions.termination.interruptioncosts import displaced, interruption_costs, waiting_since
from nodesmith.model.commands import Advance, DeletePods, Evict, TerminateInstances, TerminationCommand
from nodesmith.model.karpenter.nodeclaimobjects import DELETED
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.evictions import Evicted, Eviction
from nodesmith.model.metrics import Metrics
from nodesmith.model.snapshot import Snapshot


@dataclass(slots=True)
class Drains:
    """The drains that this process has begun: by claim name, when, and the longest grace period of the pods.

    Drains that another process began are not measured.
    """

    begun: dict[str, tuple[datetime, timedelta]] = field(default_factory=dict)

    def ended(
        self, commands: Sequence[TerminationCommand], snapshot: Snapshot, now: datetime
    ) -> Iterator[tuple[str, timedelta]]:
        """Yield the NodePool of each drain that has just ended, and how much longer than the longest grace it took."""
        going = {pod.pod for each in commands if isinstance(each, Evict | DeletePods) for pod in each.pods}
        told = (pod for pod in snapshot.pods if pod.key in going) if going else ()
        graces = {pod.key: timedelta(seconds=pod.shape.grace_seconds) for pod in told}
        for command in commands:
            claim = command.claim
            match command:
                case Evict() | DeletePods():
                    since, longest = self.begun.get(claim.name, (now, timedelta(0)))
                    asked = [graces.get(pod.pod, timedelta(0)) for pod in command.pods]
                    self.begun[claim.name] = since, max([longest, *asked])
                case Advance() | TerminateInstances() if claim.drained_at == now:
                    since, longest = self.begun.pop(claim.name, (now, timedelta(0)))
                    yield claim.nodepool, now - since - longest
                case _:
                    pass


_FORCEFUL = "Forceful Termination"
"""Karpenter's reason if a node ends only because it was deleted."""


def note_drained(metrics: Metrics, commands: Iterable[Evict], answers: Mapping[str, Eviction]) -> None:
    """Count the pods that end because of these evictions, by the cause of their node's termination."""
    for command in commands:
        said = [answers.get(pod.pod) for pod in command.pods]
        leaving = sum(isinstance(answer, Evicted) and not answer.before for answer in said)
        if leaving:
            cause = command.claim.cause
            metrics.count("pods_drained_total", leaving, reason=_FORCEFUL if cause == DELETED else cause)


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
