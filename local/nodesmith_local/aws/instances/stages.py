"""The stages of an instance on its way to a ready node, and how long each takes.

The usual delays are those of AL2023 nodes on EKS. They vary a little between instances and are constant for an id.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import IntEnum


class Stage(IntEnum):
    """The stage that an instance has reached; each begins with the event that its name states."""

    PENDING = 0
    RUNNING = 1
    REGISTERED = 2
    INITIALIZED = 3
    """The cloud controller has labelled the node."""
    READY = 4
    GONE = 5


@dataclass(frozen=True, slots=True)
class Delays:
    """Usual seconds from one stage to the next.

    Each instance multiplies all delays by its own factor, uniformly distributed over 1 ± `spread`. The total is
    therefore uniformly distributed between (1 - spread) and (1 + spread) times the sum.
    """

    running: float = 8.0
    registered: float = 15.0
    initialized: float = 1.0
    ready: float = 7.0
    spread: float = 0.15

    @classmethod
    def between(cls, shortest_seconds: float, longest_seconds: float) -> Delays:
        """Return delays whose total lies between these two, from launch to ready, in the usual proportions."""
        sum_seconds = USUAL.running + USUAL.registered + USUAL.initialized + USUAL.ready
        scale = (shortest_seconds + longest_seconds) / 2 / sum_seconds
        return cls(
            running=USUAL.running * scale,
            registered=USUAL.registered * scale,
            initialized=USUAL.initialized * scale,
            ready=USUAL.ready * scale,
            spread=(longest_seconds - shortest_seconds) / (longest_seconds + shortest_seconds),
        )

    def restarted(self) -> Delays:
        """Return the delays of an instance that was stopped and is started, in proportion to these.

        Its root volume exists and holds what has been read before, cloud-init has nothing to do, and the images of the
        CNI are there. EC2 needs about as long as for a launch until an instance runs.
        """
        return replace(
            self,
            running=self.running * RESTARTED.running / USUAL.running,
            registered=self.registered * RESTARTED.registered / USUAL.registered,
            ready=self.ready * RESTARTED.ready / USUAL.ready,
        )

    def until(self, stage: Stage, instance_id: str) -> timedelta:
        """Return how long this instance takes from the previous stage to `stage`."""
        usual = (0.0, self.running, self.registered, self.initialized, self.ready)[stage]
        dice = int.from_bytes(hashlib.sha256(instance_id.encode()).digest()[:4]) / (2**32 - 1)
        return timedelta(seconds=usual * (1 - self.spread + 2 * self.spread * dice))


USUAL = Delays()
RESTARTED = Delays(running=6.0, registered=6.0, ready=3.0)
"""The usual delays after a start. docs/warm-capacity.md has the sources and assumptions."""
STOPPING = timedelta(seconds=20)
"""The time that an instance takes to stop."""
