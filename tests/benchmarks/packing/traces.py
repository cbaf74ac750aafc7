"""Five traces: requests of pods, their counts, and a price that no plan for them can undercut.

Three are the pods without GPUs of the openb cluster trace (Alibaba, 2023), reduced to cpu, memory and count. Their
bounds are values of the linear program over all patterns of all types (column generation with exact pricing, see
`tests.problems.lpbound`) at the embedded catalogue's on-demand prices. Two traces are drawn here. Their bounds are
weaker, by up to 0.6 %: they come from three prices, of cpu, memory and a pod, at which no type is worth more than it
costs.
"""

from __future__ import annotations

import csv
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "traces"
Ask = tuple[int, int, int]
"""cpu in milli, memory in MiB, number of pods"""


@dataclass(frozen=True, slots=True)
class Trace:
    """One trace. `bound_hourly_usd` is valid for the NodePool `markets.on_demand_cmr`."""

    name: str
    asks: tuple[Ask, ...]
    bound_hourly_usd: float

    @property
    def pods(self) -> int:
        """The number of pods."""
        return sum(count for _, _, count in self.asks)


def traces() -> tuple[Trace, ...]:
    """Return all five traces."""
    return (
        Trace("cpu050", _table("openb-cpu050"), 267.17),
        Trace("cpu100", _table("openb-cpu100"), 574.58),
        Trace("default", _table("openb-default"), 785.71),
        Trace("microservices", microservices(), 57.36),
        Trace("batch", batch(), 303.27),
    )


def microservices(services: int = 60, seed: int = 5) -> tuple[Ask, ...]:
    """Draw services of many small replicas: 50m to 4 cpu, 1 to 8 GiB per cpu, 2 to 40 replicas each."""
    dice = random.Random(seed)  # noqa: S311
    return _counted(
        (cpu, cpu * dice.choice((1024, 2048, 2048, 4096, 8192)) // 1000, dice.randint(2, 40))
        for cpu in (
            dice.choice((50, 100, 100, 200, 250, 500, 500, 1000, 2000, 4000)) for _ in range(services)
        )
    )


def batch(jobs: int = 24, seed: int = 7) -> tuple[Ask, ...]:
    """Draw memory-heavy jobs: 1 to 12 cpu, 6 to 15 GiB per cpu, 4 to 40 pods each."""
    dice = random.Random(seed)  # noqa: S311
    return _counted(
        (cpu, cpu * dice.randint(6, 15) * 1024 // 1000, dice.randint(4, 40))
        for cpu in (dice.randint(2, 24) * 500 for _ in range(jobs))
    )


def _table(name: str) -> tuple[Ask, ...]:
    with (FOLDER / f"{name}.csv").open(newline="") as table:
        return tuple(
            (int(row["cpu_milli"]), int(row["memory_mib"]), int(row["count"]))
            for row in csv.DictReader(table)
        )


def _counted(asks: Iterable[Ask]) -> tuple[Ask, ...]:
    found: Counter[tuple[int, int]] = Counter()
    for cpu, memory, count in asks:
        found[cpu, memory] += count
    return tuple((cpu, memory, count) for (cpu, memory), count in sorted(found.items()))
