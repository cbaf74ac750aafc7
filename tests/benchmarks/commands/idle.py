"""A month of a cluster in which nothing changes: invocations of all functions, and their cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

from tests.benchmarks.aws.bill import cluster_bill, region_bill, together
from tests.benchmarks.figures import Figure
from tests.experiments.idleness import IdleWorld, invocations_a_month, lived, ticks_a_month
from tests.scenarios.weeks import Fleet

NODES, PODS_A_NODE, HOURS = 64, 8, 6
BILLED_NODES, BILLED_HOURS = 50, 24


def figures(nodes: int = NODES, hours: int = HOURS) -> list[Figure]:
    """Count invocations. The goal is the number of ticks: nothing else is due, and no function wakes another."""
    world = IdleWorld(nodes, PODS_A_NODE, consolidateAfter="30s")
    lived(world, hours)
    runs = invocations_a_month(world, hours)
    by_concern = dict(sorted(Counter({str(concern): n for concern, n in world.invoked.items()}).items()))
    note = f"{len(world.store.claims)} nodes, {nodes * PODS_A_NODE} pods; in {hours} h: {by_concern}"
    return [
        Figure("idle-invocations", runs, "invocations a month", ticks_a_month(), note),
        *_bill(BILLED_NODES, BILLED_HOURS),
    ]


def idle_bills(nodes: int, hours: int) -> tuple[Mapping[str, float], ...]:
    """Return USD a month by service: of a region, and what its first idle cluster and each further one add."""
    fleet = Fleet(nodes)
    fleet.observe()
    fleet.live(timedelta(hours=1))
    fleet.forget_counts()
    fleet.live(timedelta(hours=hours))
    return region_bill(), cluster_bill(fleet, hours, is_first=True), cluster_bill(fleet, hours)


def _bill(nodes: int, hours: int) -> list[Figure]:
    """Return the monthly cost of a region with one idle cluster, and what each further cluster adds."""
    region, first, further = idle_bills(nodes, hours)

    def figure(name: str, bill: Mapping[str, float], goal: float) -> Figure:
        parts = ", ".join(f"{service} {usd:.3f}" for service, usd in bill.items())
        return Figure(
            name, sum(bill.values()), "USD a month", goal, f"{nodes} nodes, {hours} h simulated; {parts}"
        )

    return [
        figure("bill-idle-usd", together(region, first), 1.00),
        figure("bill-further-usd", further, 0.30),
    ]
