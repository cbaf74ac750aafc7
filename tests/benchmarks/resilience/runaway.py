"""Nodes bought in vain in a day, whatever the cause, and breakers that trip although nothing is wrong."""

from __future__ import annotations

from tests.benchmarks.figures import Figure
from tests.scenarios.runaway import CAUSES, DAY, STORMS, after_a_storm, in_vain, pass_a_day, tripped

MOST = 4


def figures(hours: int = 24, pods: int = 60) -> list[Figure]:
    """Measure in worlds in memory: each cause for a day, and storms over so many nodes."""
    wasted: dict[str, int] = {}
    for name, cause in CAUSES.items():
        world = cause.world()
        pass_a_day(world, DAY * hours / 24)
        wasted[name] = in_vain(cause, world)
    reported = ", ".join(f"{name}: {count}" for name, count in wasted.items())
    trips = {name: len(tripped(after_a_storm(storm, pods))) for name, storm in STORMS.items()}
    storms = ", ".join(f"{name}: {count}" for name, count in trips.items())
    return [
        Figure("runaway-nodes", max(wasted.values()), "nodes", MOST, f"in {hours} hours; {reported}"),
        Figure("runaway-false-trips", sum(trips.values()), "breakers", 0, f"{pods} nodes; {storms}"),
    ]
