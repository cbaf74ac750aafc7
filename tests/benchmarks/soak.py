"""A long time of many nodes with a fault every minute: violations, and whether memory or file handles grow."""

from __future__ import annotations

import math
import os
import random
from datetime import timedelta
from pathlib import Path
from statistics import fmean

from tests.benchmarks.figures import Figure
from tests.weeks import Fleet

NODES, HOURS = 1000, 168
AFTERWARDS = timedelta(hours=1)
"""A final period without faults, in which everything must finish."""
WARM = 0.25
"""The share of the time after which memory and file handles are compared."""
CONFIDENCE = 1.96
"""Standard errors of a slope to each side of it that contain the true one in 95 of 100 cases."""


def figures(nodes: int = NODES, hours: int = HOURS) -> list[Figure]:
    """Run a fleet for so many hours, and report."""
    fleet = Fleet(nodes)
    fleet.plan_every_minute(hours * 60, random.Random(58))  # noqa: S311
    fleet.observe()
    pages, handles = [], []
    for _ in range(hours * 2):
        fleet.live(timedelta(minutes=30))
        pages.append(_resident_mib())
        handles.append(len(list(Path("/proc/self/fd").iterdir())))
    fleet.live(AFTERWARDS)
    broken = [*fleet.harm, *fleet.cluster.violations, *fleet.unsettled()]
    faults = ", ".join(f"{count} × {what}" for what, count in sorted(fleet.faults.items()))
    note = f"{nodes} nodes, {hours} hours, {fleet.runs:,} runs; {faults}"
    start = int(len(pages) * WARM)
    slope, error = regression(pages[start:])
    growth = max(0.0, slope - CONFIDENCE * error)
    told = f"slope {slope:.3f} ± {CONFIDENCE * error:.3f} MiB in half an hour; {pages[-1]:.0f} MiB at the end"
    opened = max(handles[start:]) - min(handles[start:])
    return [
        Figure("soak-violations", len(broken), "violations", 0, "; ".join(broken[:5]) or note),
        Figure("soak-memory-growth", growth, "MiB", 0, f"beyond the confidence interval of {told}"),
        Figure("soak-file-handles", opened, "handles", 0, f"between {min(handles)} and {max(handles)} open"),
    ]


def regression(values: list[float]) -> tuple[float, float]:
    """Return the slope per step of the line of least squares through values, and its standard error."""
    middle, mean = (len(values) - 1) / 2, fmean(values)
    spread = math.fsum((n - middle) ** 2 for n in range(len(values)))
    slope = math.fsum((n - middle) * (value - mean) for n, value in enumerate(values)) / spread
    rest = math.fsum((value - mean - slope * (n - middle)) ** 2 for n, value in enumerate(values))
    return slope, math.sqrt(rest / max(1, len(values) - 2) / spread)


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
