"""A workload over time, independent of the nodes on which it ran: the input of a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from nodesmith.decisions.provisioning import Inputs
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.kubernetes.pods import Shape

BOOT_SECONDS = (26.0, 29.0, 31.0, 33.0, 36.0)
"""From the decision to a node that is ready for pods, unless a trace has observed it: AL2023 on EKS."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One place in a workload: a pod and its successors after evictions.

    `key` is `namespace/name` of its first pod, `workload` is `namespace/Kind/name` of the object that it belongs to.
    It ends at a time between the two of `ends`, which are equal if the time is known, or not at all. If it `runs` for a
    time, as pods of Jobs do, it ends that long after a pod of it has started, and starts over after an eviction. `node`
    is where it runs at the beginning, empty if it is not bound then.
    """

    key: str
    workload: str
    shape: Shape
    arrives: datetime
    ends: tuple[datetime, datetime] | None = None
    runs: timedelta | None = None
    node: str = ""

    @property
    def comes_back(self) -> bool:
        """Whether something creates a new pod after an eviction. A pod without an owner is lost."""
        return bool(self.shape.owner)


@dataclass(frozen=True, slots=True)
class Trace:
    """A workload, the cluster at its beginning, and what was observed of the environment.

    The snapshot of `inputs` has no pods that move: these are `slots`. `boot_seconds` are boot times to draw from.
    """

    inputs: Inputs
    slots: tuple[Slot, ...]
    start: datetime
    end: datetime
    boot_seconds: tuple[float, ...] = BOOT_SECONDS
    omissions: Mapping[str, int] = field(default_factory=FrozenMap)
    """The parts of the source that could not be used, in a few words, with their counts."""

    @property
    def span(self) -> timedelta:
        """How long it lasts."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Chances:
    """The random choices of a simulation, and the limits on its work.

    `interruptions_monthly` is the share of spot instances that EC2 interrupts in a month. Searches for moves are at
    least `search_every` apart.
    """

    interruptions_monthly: float = 0.05
    search_every: timedelta = timedelta(minutes=5)
