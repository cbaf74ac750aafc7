"""Measuring how long drains take, across runs: from the first eviction until the last pod has gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from nodesmith.model.commands import (
    Advance,
    DeletePods,
    Evict,
    TerminateInstances,
    TerminationCommand,
)
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
