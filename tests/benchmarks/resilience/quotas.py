"""How often is a limit exceeded, with fifty functions that buy at once and a crash at any boundary?

One cluster has quotas of nodes and dollars an hour; two clusters share dollars an hour, dollars a month and launches.
"""

from __future__ import annotations

from tests.benchmarks.figures import Figure
from tests.experiments import spendingoverruns
from tests.experiments.quotaoverruns import at_once, crashed

WRITERS = 50
CRASHES = 120
"""The boundaries of each pair at which functions die, spread evenly; the tests try all of them at night."""


def figures(sample: int = 0) -> list[Figure]:
    """Count overshoots over all boundaries, or a sample of them."""
    found = [(f"crash at boundary {moment}", world.overshoots) for moment, world in crashed(sample)]
    shared = {"money": spendingoverruns.MONEY, "month and launches": spendingoverruns.MONTH}
    for what, limits in shared.items():
        pairs = spendingoverruns.crashed(limits, sample or CRASHES)
        found += [(f"{what}: crash at boundary {moment}", pair.overshoots) for moment, pair in pairs]
    crashes = len(found)
    for dying in (False, True):
        found.append((f"{WRITERS} writers, dying: {dying}", at_once(WRITERS, dying=dying).overshoots))
        for what, limits in shared.items():
            pair = spendingoverruns.at_once(limits, WRITERS, dying=dying)
            found.append((f"{what}: {WRITERS} writers, dying: {dying}", pair.overshoots))
    over = [f"{name}: {overshoots[0]}" for name, overshoots in found if overshoots]
    note = f"{crashes} crashes, and {len(found) - crashes} times {WRITERS} functions that decide before any commits"
    overshoots = sum(len(each) for _, each in found)
    return [Figure("quota-overshoots", overshoots, "overshoots", 0, "; ".join(over[:3]) or note)]
