"""The growth of planning time if one quantity grows tenfold and everything else stays."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nodesmith.model.ec2.catalog import Catalog
from tests.benchmarks.figures import Figure
from tests.benchmarks.packing import markets
from tests.benchmarks.packing.clusters import existing
from tests.benchmarks.packing.workloads import owned, pod
from tests.problems.planning import inputs_of, timed

Manifest = dict[str, Any]
_RUNS = 3
_ANY = math.inf


@dataclass(frozen=True, slots=True)
class _Growth:
    """One quantity: its first size, and the input for any size. `at_most` is the allowed ratio to the first time."""

    first: int
    manifests: Callable[[int], list[Manifest]]
    catalog: Callable[[int], Catalog]
    at_most: float

    def seconds(self, size: int) -> float:
        inputs = inputs_of(self.manifests(size), self.catalog(size))
        return min(timed(inputs).cpu_seconds for _ in range(_RUNS))


def deployments(pods: int, shapes: int) -> list[Manifest]:
    """Return pods of `shapes` Deployments with different requests, 0.1 to 4 cpu and 128 MiB to 8 GiB."""
    return [
        owned(
            pod(f"app-{n % shapes}-{n}", 100 + n % shapes * 137 % 3900, 128 + n % shapes * 613 % 8000),
            f"app-{n % shapes}",
        )
        for n in range(pods)
    ]


def _linearithmic(first: int) -> float:
    """Return the growth of n log n if n grows tenfold."""
    return 10 * math.log(10 * first) / math.log(first)


def _embedded(_: int) -> Catalog:
    return markets.embedded()


_GROWTHS = {
    "pods": _Growth(
        2000, lambda n: [markets.everything(), *deployments(n, 20)], _embedded, _linearithmic(2000)
    ),
    "shapes": _Growth(50, lambda n: [markets.everything(), *deployments(5000, n)], _embedded, _ANY),
    "nodes": _Growth(
        200, lambda n: [markets.everything(), *existing(n, 10 * n, 200)], _embedded, _linearithmic(200)
    ),
    "types": _Growth(
        100, lambda _: [markets.anything_fake(), *deployments(2000, 20)], markets.fake_types, _ANY
    ),
}


def figures() -> list[Figure]:
    """Measure each quantity at its first size and at ten times that size."""
    return [_figure(name, growth) for name, growth in _GROWTHS.items()]


def _figure(name: str, growth: _Growth) -> Figure:
    small, large = growth.seconds(growth.first), growth.seconds(growth.first * 10)
    note = f"{small:.3f} s for {growth.first} {name}, {large:.3f} s for {growth.first * 10}; best of {_RUNS}, cpu time"
    return Figure(f"growth-{name}", large / small, "× the time for 10 × the work", growth.at_most, note)
