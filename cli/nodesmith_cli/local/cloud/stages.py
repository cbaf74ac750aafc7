"""How far an instance has come on its way to a ready node, and how long each step takes.

Delays are those of AL2023 nodes on EKS, a little different for every instance, and the same for the same instance id.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum


class Stage(IntEnum):
    """How far an instance has come; each stage begins with what its name says."""

    PENDING = 0
    RUNNING = 1
    REGISTERED = 2
    INITIALIZED = 3
    """The cloud controller has labelled the node."""
    READY = 4
    GONE = 5


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds from one stage to the next, before each instance's own deviation of up to 15 %."""

    running: float = 8.0
    registered: float = 15.0
    initialized: float = 1.0
    ready: float = 7.0

    def until(self, stage: Stage, instance_id: str) -> timedelta:
        """Give how long this instance takes to reach `stage` from the one before."""
        usual = (0.0, self.running, self.registered, self.initialized, self.ready)[stage]
        dice = hashlib.sha256(f"{instance_id}/{stage}".encode()).digest()[0] / 255
        return timedelta(seconds=usual * (0.85 + 0.3 * dice))


USUAL = Delays()
