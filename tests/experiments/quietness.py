"""Two lives of one cluster: in one, each tick wakes its concerns; in the other, only those that reported being due.

The second is how dispatch uses ticks, without the run of each concern every thirty minutes. The comparison exposes a
concern that reports a later moment than the first at which it has work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from nodesmith.model.functions import TICK_MINUTES, Concern
from nodesmith.model.nodeclasses.status import NodeClassStatus
from tests import builders
from tests.experiments.idleness import IdleWorld

ACTIVE = timedelta(minutes=10)
"""How long after a change of snapshot or ledger all ticks wake their concerns."""
STARTING = timedelta(minutes=2)
"""How long after a change something may be in progress: in EC2, in a kubelet, or in a pod that ends."""
Trace = list[tuple[datetime, str]]
"""What appeared and disappeared, and when."""


class TracedWorld(IdleWorld):
    """A world that records when anything visible from outside changes: objects, Events, EC2."""

    def __init__(self, nodes: int, pods_a_node: int, **disruption: Any) -> None:
        super().__init__(nodes, pods_a_node, **disruption)
        self.trace: Trace = []
        self.changed = self.now
        self.ran_at: dict[Concern, datetime] = {}
        self._before: frozenset[str] = frozenset()
        self._known: object = None

    def step(self) -> None:
        """Take a step, and record what it has changed."""
        super().step()
        self.note_change()
        shown = frozenset(self._shown())
        self.trace += [(self.now, f"+ {each}") for each in sorted(shown - self._before)]
        self.trace += [(self.now, f"- {each}") for each in sorted(self._before - shown)]
        self._before = shown

    def due(self, at: datetime) -> set[Concern]:
        """Return the concerns whose tick comes at this minute, regardless of dispatch."""
        minute = int(at.timestamp()) // 60
        return {concern for concern, every in TICK_MINUTES.items() if minute % every == 0} & self.living

    def run(self, concern: Concern) -> None:
        """Invoke a function, and record when."""
        self.ran_at[concern] = self.now
        super().run(concern)

    def note_change(self) -> None:
        """Record when snapshot or ledger last changed."""
        known = (self._seen, self._ledger())
        if known != self._known:
            self._known, self.changed = known, self.now

    def _next(self) -> datetime:
        """Advance by seconds only while something may be in progress."""
        self.note_change()
        if self.now - self.changed < STARTING:
            return super()._next()
        return max(self._next_wake(), self.now + timedelta(seconds=1))

    def _ledger(self) -> object:
        """Return the ledger's content, except for the times of unchanged EC2NodeClass resolutions."""
        ledger = self.store.load()
        return replace(
            ledger, nodeclasses={name: _undated(known) for name, known in ledger.nodeclasses.items()}
        )

    def _shown(self) -> Iterator[str]:
        for claim in self.store.claims.values():
            yield f"claim {claim.name} {claim.phase} {claim.cause} {claim.drift}"
        for move in self.store.moves.values():
            yield f"move {move.id} {move.stage}"
        for name, manifest in self.cluster.nodeclaims.items():
            for condition in manifest.get("status", {}).get("conditions", ()):
                yield f"NodeClaim {name} {condition['type']}={condition['status']}"
        for name, manifest in self.cluster.nodes.items():
            yield f"Node {name} {sorted(taint['key'] for taint in manifest['spec'].get('taints', ()))}"
        for instance in self.cloud.instances.values():
            yield f"instance {instance.id} {instance.state}"
        for name in self.cloud.templates:
            yield f"launch template {name}"
        yield from (f"loose {name}" for name in self.cloud.loose)
        yield from (f"pod {name} on {pod['spec'].get('nodeName')}" for name, pod in self.pods.items())
        yield from (f"Event {each.kind} {each.name} {each.reason}" for each in self.cluster.events)


@lru_cache(maxsize=8)
def _undated(status: NodeClassStatus) -> NodeClassStatus:
    conditions = tuple(replace(condition, since=None) for condition in status.conditions)
    return replace(status, resolved_at=builders.NOW, conditions=conditions)


class QuietWorld(TracedWorld):
    """The same world, except that a tick in a cluster without recent changes wakes only concerns that are due."""

    def runs_at_tick(self, concern: Concern) -> bool:
        """Return whether a tick wakes a concern: another concern may have changed something since the tick."""
        self.note_change()
        if self.now - self.changed <= ACTIVE:
            return True
        due = self.dues.get(concern)
        return due is not None and due <= self.now
