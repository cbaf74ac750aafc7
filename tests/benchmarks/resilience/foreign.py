"""A day beside EKS Auto Mode's built-in NodePools: writes of nodesmith to objects that are not its own."""

from __future__ import annotations

from tests.benchmarks.figures import Figure
from tests.scenarios.coexistence import HOUR, SharedWorld, lived_day
from tests.smallworld.world import pod_manifest


def figures(hours: int = 24) -> list[Figure]:
    """Simulate a day, then pods that fit on Auto Mode's nodes, and count writes and purchases."""
    world = lived_day(hours)
    writes = world.foreign_writes()
    fitting = SharedWorld({"web-0": pod_manifest("web-0", cpu="2")})
    fitting.live(HOUR / 4)
    bought = len(fitting.cloud.instances)
    note = f"{len(world.cluster.calls):,} writes in {hours} hours, {len(world.cloud.instances)} instances of nodesmith"
    return [
        Figure("foreign-writes", len(writes), "writes", 0, "; ".join(writes[:5]) or note),
        Figure(
            "foreign-room-bought-for", bought, "instances", 0, "for a pod that fits on a node of Auto Mode"
        ),
    ]
