"""What a pass over a large fleet takes, in processor time and memory, and one over a fleet that has not changed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from nodesmith.decisions.disruption.proposals import Proposals
from nodesmith.decisions.disruption.search import propose
from nodesmith.decisions.disruption.settled import marks
from nodesmith.decisions.provisioning import Inputs
from tests.benchmarks.disruption.fleets import large
from tests.benchmarks.figures import Figure, median_ms, reference_ms

_PASSES = 6
_LATER = timedelta(seconds=10)
_IDLE_REPEATS = 7


def figures(*, nodes: int = 5000) -> list[Figure]:
    """Measure passes in a process of their own, for the sake of its memory."""
    done = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import measure; measure({nodes})"],
        check=True,
        capture_output=True,
        text=True,
    )
    seconds, mib, considered, idle_ms, *notes = done.stdout.strip().split("|")
    return [
        Figure("pass-5000-s", float(seconds), "s of cpu", 10, notes[0]),
        Figure("pass-5000-mib", float(mib), "MiB", 1024, "the whole process, Python and catalogue included"),
        Figure("pass-5000-passes", float(considered), "passes", _PASSES, "until every node was considered"),
        Figure("idle-pass-ms", float(idle_ms), "ms", 200, notes[1]),
    ]


def measure(nodes: int) -> None:
    """Measure here, and print what was measured."""
    inputs = large(nodes, nodes * 20, max(1, nodes // 125))
    before, started = reference_ms(), time.process_time()
    first = propose(inputs)
    seconds, after = time.process_time() - started, reference_ms()
    mib = _most_memory_mib()
    considered = _until_considered(inputs, first)
    idle_ms, idle = median_ms(lambda: _idle(inputs), _IDLE_REPEATS)
    saved = sum(p.saving_hourly_usd for p in first.proposals)
    note = (
        f"{len(inputs.snapshot.pods)} pods; {first.steps} steps, {len(first.proposals)} moves save ${saved:.2f}/hour;"
        f" {seconds * 1000 / ((before + after) / 2):.0f} × the reference loop"
    )
    print(f"{seconds}|{mib}|{considered}|{idle_ms}|{note}|{idle}")


def _most_memory_mib() -> float:
    """Give the most memory that this process has had, as Linux tells (what it was started from is not counted)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def _until_considered(inputs: Inputs, first: Proposals) -> int:
    """Count the passes over the fleet as it is until each node has been looked at."""
    looked_at, names = first.looked_at, {claim.name for claim in inputs.ledger.claims}
    number, now = 1, inputs.now
    while not names <= looked_at.keys() and number < 2 * _PASSES:
        number, now = number + 1, now + _LATER
        looked_at = propose(replace(inputs, now=now), looked_at).looked_at
    return number


def _idle(inputs: Inputs) -> float:
    """Time a pass over a fleet that was looked at some seconds after its last change."""
    seen = replace(inputs, now=inputs.now + timedelta(minutes=1))
    looked_at = _all_looked_at(seen, inputs.now + timedelta(seconds=50))
    started = time.process_time()
    assert not propose(seen, looked_at).steps
    return (time.process_time() - started) * 1000


def _all_looked_at(inputs: Inputs, at: datetime) -> Mapping[str, datetime]:
    return dict.fromkeys(marks(inputs), at)
