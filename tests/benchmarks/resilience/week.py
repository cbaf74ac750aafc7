"""A week of 500 nodes of which 2 % fail each day: what is left over at the end, and what nodesmith itself costs."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from tests import builders
from tests.benchmarks.aws.bill import cluster_bill, region_bill, together
from tests.benchmarks.figures import Figure
from tests.scenarios.weeks import DAY, Fleet

NODES, DAYS, DAILY_FAULTS = 500, 7, 0.02
AFTERWARDS = timedelta(hours=1)
"""A final period without faults, in which everything must finish."""


def figures(nodes: int = NODES, days: int = DAYS) -> list[Figure]:
    """Simulate and report."""
    return report(lived(nodes, days), nodes, days)


def report(fleet: Fleet, nodes: int, days: int) -> list[Figure]:
    """Return the leftovers, violations and costs of a simulated fleet."""
    left = fleet.unsettled()
    broken = [*fleet.harm, *fleet.cluster.violations]
    hours = (fleet.now - builders.NOW) / timedelta(hours=1)
    bill = together(region_bill(), cluster_bill(fleet, hours, is_first=True))
    ended = len(fleet.cloud.instances) - len(fleet.cloud.alive())
    faults = ", ".join(f"{count} × {what}" for what, count in sorted(fleet.faults.items()))
    note = (
        f"{nodes} nodes, {days} days; {len(fleet.cloud.instances)} instances launched, {ended} ended; {faults};"
        f" {fleet.meter.deaths} functions died; longest recovery: {fleet.worst_recovery}"
    )
    usage = fleet.usage
    parts = ", ".join(f"{service} {usd:.2f}" for service, usd in bill.items())
    used = Counter({str(concern): count for concern, count in usage.runs.items()})
    used_note = (
        f"{usage.runs.total():,} runs, {usage.claims_read:,} claims read, {usage.snapshot_puts:,} snapshots"
    )
    return [
        Figure("week-leaks", len(left), "left over", 0, "; ".join(left[:5]) or note),
        Figure(
            "week-violations",
            len(broken),
            "violations",
            0,
            "; ".join(broken[:5]) or "of drains, grace periods or budgets",
        ),
        Figure("bill-busy-usd", sum(bill.values()), "USD", 10, note=f"{parts}; {used_note}; {dict(used)}"),
    ]


def lived(nodes: int, days: int) -> Fleet:
    """Return a fleet after days of faults and an hour without faults."""
    fleet = Fleet(nodes)
    fleet.plan(days, DAILY_FAULTS)
    fleet.observe()
    fleet.live(days * DAY + AFTERWARDS)
    return fleet
