"""How often is a quota exceeded, with fifty functions that buy at once and a crash at each boundary?"""

from __future__ import annotations

from tests.benchmarks.figures import Figure
from tests.quotaoverruns import at_once, crashed

WRITERS = 50


def figures(sample: int = 0) -> list[Figure]:
    """Count overshoots over all boundaries, or a sample of them."""
    worlds = [(f"crash at boundary {moment}", world) for moment, world in crashed(sample)]
    worlds += [
        (f"{WRITERS} writers, dying: {dying}", at_once(WRITERS, dying=dying)) for dying in (False, True)
    ]
    over = [f"{name}: {world.overshoots[0]}" for name, world in worlds if world.overshoots]
    note = f"{len(worlds) - 2} crashes, and twice {WRITERS} functions that decide before any of them commits"
    overshoots = sum(len(world.overshoots) for _, world in worlds)
    return [Figure("quota-overshoots", overshoots, "overshoots", 0, "; ".join(over[:3]) or note)]
