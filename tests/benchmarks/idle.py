"""A month of a cluster in which nothing changes: invocations of all functions."""

from __future__ import annotations

from collections import Counter

from tests.benchmarks.figures import Figure
from tests.idleness import IdleWorld, invocations_a_month, ticks_a_month

NODES, PODS_A_NODE, HOURS = 64, 8, 6


def figures(nodes: int = NODES, hours: int = HOURS) -> list[Figure]:
    """Count them. The goal is what schedules alone make: in an idle cluster no function wakes another, or itself."""
    world = IdleWorld(nodes, PODS_A_NODE, consolidateAfter="30s")
    runs = invocations_a_month(world, hours)
    by_concern = dict(sorted(Counter({str(concern): n for concern, n in world.invoked.items()}).items()))
    note = f"{len(world.store.claims)} nodes, {nodes * PODS_A_NODE} pods; in {hours} h: {by_concern}"
    return [Figure("idle-invocations", runs, "invocations a month", ticks_a_month(), note)]
