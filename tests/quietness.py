"""Two lives of one cluster: in one all concerns are woken by each tick, in the other where they have said they are due.

The second is what dispatch makes of ticks, without the look at everything that it has each concern take every thirty
minutes: who says a later moment than the first at which it has something to do is found out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from nodesmith.model.functions.hints import TICK_MINUTES, Concern
from tests import builders
from tests.idleness import IdleWorld

ACTIVE = timedelta(minutes=10)
"""For so long after a change of snapshot or ledger all concerns are woken."""
STARTING = timedelta(minutes=2)
"""For so long after a change something may be on its way: EC2, a kubelet, a pod that ends"""
Trace = list[tuple[datetime, str]]
"""What came and what went, and when"""


class TracedWorld(IdleWorld):
    """A world that keeps when anything but the time became different, as seen from outside: objects, Events, EC2."""

    def __init__(self, nodes: int, pods_a_node: int, **disruption: Any) -> None:
        super().__init__(nodes, pods_a_node, **disruption)
        self.trace: Trace = []
        self.changed = self.now
        self.ran_at: dict[Concern, datetime] = {}
        self._before: frozenset[str] = frozenset()
        self._known: object = None

    def step(self) -> None:
        """Take a step, and note what it has changed."""
        super().step()
        self.note_change()
        shown = frozenset(self._shown())
        self.trace += [(self.now, f"+ {each}") for each in sorted(shown - self._before)]
        self.trace += [(self.now, f"- {each}") for each in sorted(self._before - shown)]
        self._before = shown

    def due(self, at: datetime) -> set[Concern]:
        """Return those whose tick comes in a minute, whatever dispatch makes of it."""
        minute = int(at.timestamp()) // 60
        return {concern for concern, every in TICK_MINUTES.items() if minute % every == 0} & self.living

    def run(self, concern: Concern) -> None:
        """Invoke a function, and note when."""
        self.ran_at[concern] = self.now
        super().run(concern)

    def note_change(self) -> None:
        """Note when snapshot or ledger have changed last."""
        known = (self._seen, self._ledger())
        if known != self._known:
            self._known, self.changed = known, self.now

    def _next(self) -> datetime:
        """Let time go on by seconds only while something may be on its way."""
        self.note_change()
        if self.now - self.changed < STARTING:
            return super()._next()
        return max(self._next_wake(), self.now + timedelta(seconds=1))

    def _ledger(self) -> object:
        """Return what the ledger holds, but for when EC2NodeClasses were last found to be as they were."""
        ledger, statuses = self.store.load(), {}
        for name, known in ledger.nodeclasses.items():
            conditions = tuple(replace(condition, since=None) for condition in known.conditions)
            statuses[name] = replace(known, resolved_at=builders.NOW, conditions=conditions)
        return replace(ledger, nodeclasses=statuses)

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


class QuietWorld(TracedWorld):
    """The same, but that a cluster which has not changed lately is woken where it is due only."""

    def heeds_tick(self, concern: Concern) -> bool:
        """Return whether a concern is woken: another may have changed something since the tick came."""
        self.note_change()
        if self.now - self.changed <= ACTIVE:
            return True
        due = self.dues.get(concern)
        return due is not None and due <= self.now
