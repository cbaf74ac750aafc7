"""A recorded week: its decisions made again from what was recorded, and its simulated cost against the real one."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from nodesmith_cli.simulator.simulating.recorded import read_recorded
from nodesmith_cli.views.explaining.commands import RecordSource, recorded_catalog
from nodesmith_local.simulation.sides import simulate
from nodesmith_local.simulation.trace import Chances
from tests.benchmarks.figures import Figure
from tests.scenarios.replays import recorded

NODES, DAYS, SEEDS = 2, 7, 2


def figures(nodes: int = NODES, days: int = DAYS, seeds: int = SEEDS) -> list[Figure]:
    """Record these days, make every decision again, and simulate them."""
    with TemporaryDirectory() as folder:
        fleet = recorded(Path(folder), nodes, days)
        records, blobs = RecordSource(keep=Path(folder)).records()
        found = read_recorded(
            records,
            lambda record: recorded_catalog(record["inputs"]["catalog"]["region"], record, blobs),
            timedelta(days=days + 1),
            repeat=True,
        )
    began = time.process_time()
    runs = simulate({"baseline": found.trace}, range(seeds), Chances(), 1)["baseline"]
    seconds = (time.process_time() - began) / seeds
    costs = [run["usd"] for run in runs]
    error = 100 * (sum(costs) / len(costs) / found.usd - 1)
    different = [*found.differences, *map(str, found.trace.omissions)]
    note = (
        f"{found.decisions} decisions of {days} days, {found.repeated} made again; "
        f"{len(fleet.cloud.instances)} instances launched"
    )
    evictions = sum(run["evictions"] for run in runs) / len(runs)
    omissions = (
        f"recorded {found.usd:.2f} USD; simulated {min(costs):.2f} to {max(costs):.2f} with {seeds} seeds; "
        f"{evictions:.0f} evictions"
    )
    return [
        Figure("replay-differences", len(different), "decisions", 0, "; ".join(different[:3]) or note),
        Figure("replay-repeated", found.repeated, "decisions", at_least=found.decisions, note=note),
        Figure("simulate-error-percent", abs(error), "%", 10, omissions),
        Figure(
            "simulate-week-cpu-s",
            seconds * 7 / days,
            "s",
            600,
            f"processor time of one seed; {len(found.trace.slots)} pods; {os.cpu_count()} processors",
        ),
    ]
