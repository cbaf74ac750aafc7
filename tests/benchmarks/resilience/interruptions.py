"""Simulated interruptions, single with faults and in storms: which pods survive, and how long pods are pending."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.benchmarks.figures import Figure
from tests.scenarios.interruptions import APPS, Survival, killed_everywhere, storm, survived

RUNS = 1000
STORMS = 3


def figures(runs: int = RUNS, storms: int = STORMS, sample: int = 0) -> list[Figure]:
    """Simulate single interruptions with faults, storms in either order, and crashes.

    Functions are killed at every boundary, or at about `sample` of them.
    """
    return [*_survival([survived(seed) for seed in range(runs)]), *_storms(storms), _crashes(sample)]


def _survival(lived: Sequence[Survival]) -> list[Figure]:
    """Return how often all pods ran elsewhere when EC2 reclaimed the instance, and what was bought twice."""
    lost = Counter(str(each.trouble) for each in lived if not each.replaced)
    share = sum(each.replaced for each in lived) / len(lived)
    twice = [max(0, each.bought - 1) for each in lived]
    drawn = "five empty pools, CreateFleet throttled and the API server down for 30 s, alone and together"
    note = f"{len(lived)} seeded runs; {drawn}; lost: {dict(lost) or 'none'}"
    return [
        Figure("simulated-survival-share", share, "", note=note, at_least=0.99),
        Figure("second-replacements", sum(twice), "instances", 0, f"in the same {len(lived)} runs"),
    ]


def _storms(count: int) -> list[Figure]:
    """Compare both orders: replacement first, and deletion first as in Karpenter."""
    ours = [storm(seed, delete_first=False) for seed in range(count)]
    theirs = [storm(seed, delete_first=True) for seed in range(count)]
    waited, would_wait = (sum(each.pending_pod_seconds for each in lived) for lived in (ours, theirs))
    killed, would_kill = ([pod for each in lived for pod in each.killed] for lived in (ours, theirs))
    early = [pod for each in ours for pod in each.early]
    what = f"{count} × 10 of 30 nodes at once, {APPS} apps of 30 pods guarded at 80 %, grace 10 to 60 s"
    note = f"{waited:,.0f} pod-seconds compared with {would_wait:,.0f} if nodes are deleted first"
    return [
        Figure("interruption-pending-ratio", waited / would_wait, "", 0.25, f"{what}; {note}"),
        Figure(
            "killed-without-grace", len(killed), "pods", 0, f"{len(would_kill)} if nodes are deleted first"
        ),
        Figure("forced-early", len(early), "pods", 0, "; ".join(early[:3]) or "against PodDisruptionBudgets"),
        Figure("storm-left-over", sum(len(each.left_over) for each in ours), "objects", 0),
    ]


def _crashes(sample: int) -> Figure:
    points, broken = killed_everywhere(sample)
    note = "; ".join(f"at {moment}: {found[0]}" for moment, found in sorted(broken.items())[:3])
    return Figure(
        "interruption-crash-violations", len(broken), "crashes", 0, note or f"of {points} single crashes"
    )
