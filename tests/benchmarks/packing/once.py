"""One case in a separate process: `python -m tests.benchmarks.packing.once diverse-1000` prints its result."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nodesmith.composition.parts import collect_seldom
from nodesmith_cli.audit import audit
from tests.benchmarks.figures import reference_ms
from tests.benchmarks.packing.cases import CASES, Case
from tests.problems.planning import Planned, timed

_ROOT = Path(__file__).parents[3]
_LONGEST_SECONDS = 300
_WARMING = 200
_RUNS, _MOST_SECONDS = 15, 5.0
_STATUS = Path("/proc/self/status")


@dataclass(frozen=True, slots=True)
class Once:
    """The cost of making one plan, and its result. `reference_seconds` is the time of the reference loop."""

    cpu_seconds: float
    reference_seconds: float
    peak_mib: float
    price_hourly_usd: float
    bound_hourly_usd: float
    nodes: int
    existing: int
    unplaced: int
    steps: int
    violations: int
    reason: str
    """of the first unplaced pod; empty if there is none"""


def measured(name: str) -> Once:
    """Run a case in a fresh process.

    Raises CalledProcessError if it fails, and TimeoutExpired if it takes too long.
    """
    done = subprocess.run(
        [sys.executable, "-m", __name__, name],
        cwd=_ROOT,
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=_LONGEST_SECONDS,
        check=True,
    )
    return Once(**json.loads(done.stdout))


def _once(name: str) -> Once:
    """Plan as a warm Lambda does: it has planned for some of the same kinds of pods before."""
    case = CASES[name]
    manifests = case.manifests()
    collect_seldom()
    nodepool, *objects = manifests
    timed(case.inputs([nodepool, *objects[:: max(1, len(objects) // _WARMING)]]))
    reference = reference_ms() / 1000
    made = _fastest(case, manifests)
    peak_mib = _peak_mib()
    return Once(
        cpu_seconds=made.cpu_seconds,
        reference_seconds=reference,
        peak_mib=peak_mib,
        price_hourly_usd=made.price_hourly_usd,
        bound_hourly_usd=made.bound_hourly_usd,
        nodes=len(made.plan["nodes"]),
        existing=sum(len(node["pods"]) for node in made.plan["existing"]),
        unplaced=len(made.unplaced),
        steps=made.plan["steps"],
        violations=len(audit(manifests, case.catalog(), made.plan, settings=case.settings)),
        reason=next(iter(made.unplaced.values()), ""),
    )


def _fastest(case: Case, manifests: Sequence[dict[str, Any]]) -> Planned:
    """Plan several times from the manifests, unless that takes long, and return the fastest run.

    Other load on the machine slows some of the runs.
    """
    made = [timed(case.inputs(manifests))]
    while len(made) < _RUNS and sum(one.cpu_seconds for one in made) < _MOST_SECONDS:
        made.append(timed(case.inputs(manifests)))
    return min(made, key=lambda one: one.cpu_seconds)


def _peak_mib() -> float:
    """Return the peak memory of this process, on Linux without the memory of its parent before the fork."""
    if _STATUS.exists():
        stated = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
        return int(stated["VmHWM"].removesuffix("kB")) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    print(json.dumps(asdict(_once(sys.argv[1]))))
