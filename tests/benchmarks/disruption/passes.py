"""Processor time and memory of a pass over a large fleet, with usual budgets and with budgets of 100 %."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from nodesmith.decisions.disruption.proposals import Proposals
from nodesmith.decisions.disruption.search.search import propose
from nodesmith.decisions.provisioning import Inputs
from tests.benchmarks.disruption.fleets import large
from tests.benchmarks.figures import Figure, reference_ms

_PASSES = 6
_LATER = timedelta(seconds=10)
_BUDGETS = ("10%", "100%")


def figures(*, nodes: int = 5000) -> list[Figure]:
    """Measure passes in separate processes, because of their memory; the worse of both budgets counts."""
    found = [_apart(nodes, budget) for budget in _BUDGETS]
    notes = "; ".join(f"budgets of {b}: {note}" for b, (*_, note) in zip(_BUDGETS, found, strict=True))
    seconds, mib, considered = (max(float(each[n]) for each in found) for n in range(3))
    return [
        Figure("pass-5000-s", seconds, "s of cpu", 10, notes),
        Figure("pass-5000-mib", mib, "MiB", 1024, "the whole process, Python and catalogue included"),
        Figure("pass-5000-passes", considered, "passes", _PASSES, "until every node was considered"),
    ]


def _apart(nodes: int, budget: str) -> list[str]:
    program = f"from {__name__} import measure; measure({nodes}, {budget!r})"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return done.stdout.strip().split("|")


def measure(nodes: int, budget: str) -> None:
    """Measure in this process, and print the result."""
    inputs = large(nodes, nodes * 20, max(1, nodes // 125), budget=budget)
    before, started = reference_ms(), time.process_time()
    first = propose(inputs)
    seconds, after = time.process_time() - started, reference_ms()
    mib = most_memory_mib()
    considered = _until_considered(inputs, first)
    saved = sum(p.saving_hourly_usd for p in first.proposals)
    note = (
        f"{seconds:.1f} s, {len(inputs.snapshot.pods)} pods, {first.steps} steps, {len(first.proposals)} moves save"
        f" ${saved:.2f}/hour, {considered} passes, {seconds * 1000 / ((before + after) / 2):.0f} × the reference loop"
    )
    print(f"{seconds}|{mib}|{considered}|{note}")


def most_memory_mib() -> float:
    """Return the peak memory of this process as Linux reports it, without that of its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def _until_considered(inputs: Inputs, first: Proposals) -> int:
    """Return the number of passes over the unchanged fleet until each node has been examined."""
    looked_at, names = first.looked_at, {claim.name for claim in inputs.ledger.claims}
    number, now = 1, inputs.now
    while not names <= looked_at.keys() and number < 2 * _PASSES:
        number, now = number + 1, now + _LATER
        looked_at = propose(replace(inputs, now=now), looked_at).looked_at
    return number
