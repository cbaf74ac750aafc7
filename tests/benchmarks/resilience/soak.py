"""A cluster in which a service fails every minute: what breaks, and what processes hold after a day.

`python -m tests.benchmarks.resilience.soak --nodes 1000 --days 7` runs another size and length, for hours, and
prints each violation and the samples.

Memory is what C's allocator has given and not got back, without the objects of the bucket, to which every hour adds
what it cost. Python uses it for all objects here (`PYTHONMALLOC`): its own allocator keeps most of an arena as long as
one object lives in it, so that resident memory grows for days while nothing more is in use.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from statistics import NormalDist, fmean

from tests.benchmarks.figures import Figure
from tests.scenarios.soaking import Soak

NODES, DAYS = 100, 1.0
SAMPLED_EVERY = 15
"""Minutes from one sample to the next."""
WARM_UP = 0.25
"""The share of the samples that are left out, during which caches fill."""


@dataclass(slots=True)
class Samples:
    """What this process held, by hours since the beginning. Linux with glibc alone says it."""

    hours: list[float] = field(default_factory=list)
    held_bytes: list[float] = field(default_factory=list)
    resident_bytes: list[float] = field(default_factory=list)
    files: list[float] = field(default_factory=list)

    def take(self, hour: float, stored_bytes: int) -> None:
        """Take a sample, after garbage has been collected and free memory returned to the system.

        `stored_bytes` is the size of what S3 would hold, and this process holds in its place.
        """
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        self.hours.append(hour)
        self.held_bytes.append(_allocated_bytes() - stored_bytes)
        self.resident_bytes.append(_resident_bytes())
        self.files.append(len(list(Path("/proc/self/fd").iterdir())))

    def slope(self, values: Sequence[float]) -> tuple[float, float]:
        """Return the slope of values after the warm-up, an hour, and half the width of its interval."""
        first = int(len(values) * WARM_UP)
        return slope(self.hours[first:], values[first:])


class _Mallinfo(ctypes.Structure):
    """`struct mallinfo2` of glibc 2.33 and later: `hblkhd` is mapped memory, `uordblks` the rest that is in use."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def _allocated_bytes() -> int:
    """Return the memory that C's allocator has given and not got back."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    found = mallinfo()
    return int(found.uordblks + found.hblkhd)


def _resident_bytes() -> int:
    """Return the private memory of this process, resident or swapped; the kernel may take back pages of files."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return sum(int(status[name].split()[0]) * 1024 for name in ("RssAnon", "VmSwap"))


def slope(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    """Return the slope of the least-squares line, and half the width of its 95 % confidence interval.

    With n points, b = Σ(x−x̄)(y−ȳ) / Σ(x−x̄)², and the half width is t(0.975, n−2) · √(Σe² / (n−2) / Σ(x−x̄)²), where
    e are the residuals. The interval holds for independent residuals.
    """
    count, middle_x, middle_y = len(xs), fmean(xs), fmean(ys)
    spread = sum((x - middle_x) ** 2 for x in xs)
    steep = sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True)) / spread
    errors = sum((y - middle_y - steep * (x - middle_x)) ** 2 for x, y in zip(xs, ys, strict=True))
    return steep, _t(float(count - 2)) * math.sqrt(errors / (count - 2) / spread)


def _t(freedom: float) -> float:
    """Return the 0.975 quantile of Student's t (Abramowitz and Stegun, 26.7.5; within 1 % from 4 degrees on)."""
    z = NormalDist().inv_cdf(0.975)
    terms: tuple[float, ...] = (
        z**3 + z,
        5 * z**5 + 16 * z**3 + 3 * z,
        3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z,
    )
    return z + sum(terms[power] / (size * freedom ** (power + 1)) for power, size in enumerate((4, 96, 384)))


def figures(nodes: int = NODES, days: float = DAYS, *, is_told: bool = False) -> list[Figure]:
    """Soak in a process of its own, and report. `is_told` is whether each sample is printed."""
    os.environ["PYTHONMALLOC"] = "malloc"  # read by a Python that starts
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            return pool.submit(_soaked, nodes, days, is_told=is_told).result()
    finally:
        del os.environ["PYTHONMALLOC"]


def _soaked(nodes: int, days: float, *, is_told: bool) -> list[Figure]:
    tell: Callable[[str], object] = _print if is_told else str
    world, samples, minutes = Soak(nodes), Samples(), int(days * 24 * 60)
    world.begin_soak()
    began = time.process_time()
    for done in range(0, minutes, SAMPLED_EVERY):
        world.soak(min(SAMPLED_EVERY, minutes - done))
        samples.take(done / 60, world.stored_bytes())
        spent, held, resident = (
            time.process_time() - began,
            samples.held_bytes[-1],
            samples.resident_bytes[-1],
        )
        tell(
            f"{done / 60:.2f} h {held:.0f} B, {resident:.0f} resident, {spent:.0f} s {len(world.broken)} broken"
        )
    world.end_soak()
    for each in world.broken:
        tell(each)
    return report(world, samples, minutes)


def _print(line: str) -> None:
    print(line, flush=True)


def report(world: Soak, samples: Samples, minutes: int) -> list[Figure]:
    """Return what broke, and how memory and files grew."""
    faults = ", ".join(f"{count} × {what}" for what, count in sorted(world.faults.items()))
    note = (
        f"{world.size} nodes, {minutes / 60:.1f} hours, {minutes} faults of {len(world.met)} kinds met"
        f" {world.met.total():,} times; {world.total_launched} instances launched; {faults};"
        f" {world.usage.runs.total():,} runs, {world.meter.deaths} functions died"
    )
    (growth, wide), (opened, _) = samples.slope(samples.held_bytes), samples.slope(samples.files)
    beyond = max(0.0, abs(growth) - wide)
    reported = f"{growth:,.0f} ± {wide:,.0f} bytes an hour; {_mebibytes(samples.held_bytes)} in use"
    reported += f", {_mebibytes(samples.resident_bytes)} resident"
    return [
        Figure("soak-violations", len(world.broken), "violations", 0, " | ".join(world.broken[:5]) or note),
        Figure("soak-memory-growth", beyond, "bytes/h", 0, f"slope beyond its 95 % interval: {reported}"),
        Figure("soak-open-files", opened, "files/h", 0, f"{samples.files[-1]:.0f} at the end"),
    ]


def _mebibytes(values: Sequence[float]) -> str:
    first = values[int(len(values) * WARM_UP)]
    return f"{first / 2**20:.1f} MiB first, {values[-1] / 2**20:.1f} last"


def main() -> int:
    """Run another length and size, and print all that was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.resilience.soak", description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--days", type=float, default=DAYS)
    wanted = parser.parse_args()
    measured = figures(wanted.nodes, wanted.days, is_told=True)
    for each in measured:
        print(each.to_item())
    return 0 if all(each.holds for each in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
