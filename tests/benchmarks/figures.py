"""A figure with its goal, and the reference that makes times comparable."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

_REFERENCE_STEPS = 200_000


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure. `at_most` and `at_least` are its goals."""

    name: str
    value: float
    unit: str
    at_most: float = math.inf
    note: str = ""
    at_least: float = -math.inf

    @property
    def holds(self) -> bool:
        """Return whether the goals are met."""
        return self.at_least <= self.value <= self.at_most

    def to_item(self) -> dict[str, object]:
        """Return the figure as JSON data."""
        limits = (("at most", self.at_most), ("at least", self.at_least))
        goals = [f"{which} {limit:,.10g} {self.unit}" for which, limit in limits if not math.isinf(limit)]
        return {
            "name": self.name,
            "value": round(self.value, 2 if abs(self.value) >= 10 else 4),
            "unit": self.unit,
            "goal": " and ".join(goals) or "none",
            "holds": self.holds,
            "note": self.note,
        }


def reference_ms() -> float:
    """Return the milliseconds of a plain loop over a dict, the current speed of Python on this machine."""
    started = time.perf_counter()
    sums: dict[int, int] = {}
    for step in range(_REFERENCE_STEPS):
        sums[step % 97] = sums.get(step % 97, 0) + step
    return (time.perf_counter() - started) * 1000


def median_ms(once: Callable[[], float], repeats: int) -> tuple[float, str]:
    """Return the median of `repeats` measurements (`once` returns ms), and a note that compares it to the reference."""
    references = [reference_ms()]
    times = []
    for _ in range(repeats):
        times.append(once())
        references.append(reference_ms())
    middle, reference = median(times), median(references)
    spread = f"{min(times):.1f} to {max(times):.1f} ms over {repeats} runs"
    return middle, f"{middle / reference:.2f} × the reference loop ({reference:.1f} ms); {spread}"
