"""An unchanging cluster with ticks as deployed, to count how often functions are invoked."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from nodesmith.decisions.dispatch import QUIET_TICK_MINUTES
from nodesmith.keys import snapshot_key
from nodesmith.model.functions import REGION_TICK_MINUTES, TICK_MINUTES, Concern
from tests import builders
from tests.benchmarks.aws.bill import MONTH_HOURS
from tests.smallworld.ticking import Noting, TickedWorld
from tests.smallworld.world import pod_manifest

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
_MONTH_MINUTES = MONTH_HOURS * 60
ALIVE = TICK_MINUTES.keys() - {Concern.OBSERVATION}
"""The simulated concerns: only its tick wakes observation, which then has nothing to do."""


def ticks_a_month() -> int:
    """Return how often functions are invoked in a month without changes: for the region, and for a cluster.

    Each concern runs every thirty minutes; readiness also runs at its own interval, to resolve EC2NodeClasses again.
    """
    every = [*REGION_TICK_MINUTES.values(), *(QUIET_TICK_MINUTES for _ in TICK_MINUTES)]
    every.append(TICK_MINUTES[Concern.READINESS])
    return sum(_MONTH_MINUTES // minutes for minutes in every)


class IdleWorld(TickedWorld):
    """A world that jumps in time from one tick or message to the next, and counts runs."""

    def __init__(self, nodes: int, pods_a_node: int, **disruption: Any) -> None:
        cpu = f"{12_000 // pods_a_node}m"  # of 16 cpu: there is no room for another node's pods
        names = [f"web-{number:04}" for number in range(nodes * pods_a_node)]
        pool = builders.nodepool_manifest(requirements=builders.EXPRESS)
        pool["spec"]["disruption"] = disruption
        pods = {name: pod_manifest(name, cpu=cpu, memory="64Mi") for name in names}
        super().__init__(pods, ALIVE, noting=Noting(look=None), nodepool=pool)
        self.invoked: Counter[Concern] = Counter()
        self._minute = -1

    def run(self, concern: Concern) -> None:
        """Invoke a function once, and count it."""
        self.invoked[concern] += 1
        super().run(concern)

    def step(self) -> None:
        """Run the concerns that messages and ticks wake, then advance time to the next of them or to the next step."""
        woken = self._deliver()
        for concern in sorted(woken | self._ticked()):
            if concern in woken or self.runs_at_tick(concern):
                self.run(concern)
        self.now = self._next()
        self._move()
        self.observe()

    def observe(self) -> None:
        """Write the snapshot if something has changed."""
        key, seen = snapshot_key(builders.CLUSTER), self._seen
        before = self.blobs.objects.get(key)
        super().observe()
        if seen != self._seen:
            self.changed_at = self.now
        elif before is not None:
            self.blobs.objects[key] = before

    def runs_at_tick(self, concern: Concern) -> bool:
        """Return whether a due tick wakes its concern."""
        del concern
        return True

    def _ticked(self) -> set[Concern]:
        minute = int((self.now - builders.NOW) / MINUTE)
        if minute == self._minute:
            return set()
        self._minute = minute
        return self.due(builders.NOW + MINUTE * minute)

    def _next(self) -> datetime:
        if not self.is_settled():
            return self.now + timedelta(seconds=1)
        return max(self._next_wake(), self.now + timedelta(seconds=1))

    def _next_wake(self) -> datetime:
        tick = builders.NOW + MINUTE * (self._minute + 1)
        moments = [message.due_at for message in self.hints.waiting] + [at for at, _ in self._again]
        return min([tick, *moments])


def lived(world: IdleWorld, hours: int) -> None:
    """Let a world settle and be quiet for a day, then count for some hours.

    Until a day is over, the value of a move grows with each search, so disruption searches every five minutes. Of that
    day, only the first and the last hour are simulated.
    """
    world.settle()
    world.live(HOUR)
    world.now += DAY
    world.live(HOUR)
    claims = set(world.store.claims)
    world.invoked.clear()
    world.forget_counts()
    world.live(hours * HOUR)
    assert set(world.store.claims) == claims, "it was not idle"


def other_wakes(world: IdleWorld) -> int:
    """Return how often functions were invoked other than by dispatch."""
    return world.invoked.total() - sum(world.ticks[concern] for concern in ALIVE)


def invocations_a_month(world: IdleWorld, hours: int) -> float:
    """Extrapolate the invocations of `hours` hours to a month, including those of the region."""
    of_region = sum(_MONTH_MINUTES // minutes for minutes in REGION_TICK_MINUTES.values())
    invoked = world.invoked.total() + world.ticks[Concern.OBSERVATION]
    return invoked * MONTH_HOURS / hours + of_region
