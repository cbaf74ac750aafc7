"""Time and memory of plans, each in a separate process."""

from __future__ import annotations

from subprocess import TimeoutExpired

from tests.benchmarks.figures import Figure
from tests.benchmarks.packing import markets
from tests.benchmarks.packing.cases import CASES
from tests.benchmarks.packing.once import Once, measured

_MOST_MIB = 600
_KARPENTER = {"diverse-1000": 1.657, "diverse-5000": 1.687, "diverse-20000": 1.714}
"""price of Karpenter v1.14 for pods of this recipe, as a ratio to the price of their cpu or memory alone"""
_CHEAPER = 0.97
_BOUNDED = {"diverse": ("diverse-1000", "diverse-5000"), "deployments": ("deployments-150",)}
"""the cases whose prices are compared with their own lower bounds, by the name of the figure"""


def figures(*, quick: bool = False) -> list[Figure]:
    """Measure every case, or only the quick ones."""
    found: list[Figure] = []
    ratios: dict[str, float] = {}
    for name in (name for name, case in CASES.items() if case.is_quick or not quick):
        try:
            once = measured(name)
        except TimeoutExpired as late:
            note = f"given up after {late.timeout:.0f} s"
            found.append(Figure(f"{name}-s", float("inf"), "s", CASES[name].at_most_seconds, note))
            continue
        found += _case(name, once)
        ratios[name] = (
            once.price_hourly_usd / once.bound_hourly_usd if once.bound_hourly_usd else float("inf")
        )
    for figure, names in _BOUNDED.items():
        each = [(ratios.get(name, float("inf")), name) for name in names]
        note = ", ".join(f"{name} {ratio:.4f}" for ratio, name in each)
        found.append(Figure(f"{figure}-bound-ratio", max(each)[0], "× the own bound", 1.05, note))
    return found


def _case(name: str, once: Once) -> list[Figure]:
    found = [
        Figure(f"{name}-s", once.cpu_seconds, "s", CASES[name].at_most_seconds, _note(once)),
        Figure(f"{name}-mib", once.peak_mib, "MiB", _MOST_MIB, "peak resident memory of the process"),
        Figure(f"{name}-violations", once.violations, "violations", 0, "found by the audit"),
        Figure(f"{name}-unplaced", once.unplaced, "pods", 0, once.reason),
    ]
    if name in _KARPENTER:
        ratio = once.price_hourly_usd / (_KARPENTER[name] * _resource_price(name))
        note = "one of another draw by this recipe"
        found.append(Figure(f"{name}-price", ratio, "× Karpenter's price", _CHEAPER, note))
    return found


def _note(once: Once) -> str:
    loops = once.cpu_seconds / once.reference_seconds
    above = once.price_hourly_usd / once.bound_hourly_usd - 1 if once.bound_hourly_usd else 0.0
    return (
        f"fastest run, {loops:.0f} × the reference loop; {once.nodes} nodes at ${once.price_hourly_usd:.2f}/hour,"
        f" {above:.1%} above its bound; {once.existing} pods on nodes that are there; {once.steps} steps"
    )


def _resource_price(name: str) -> float:
    """Return the price of the cpu or memory of a case's pods if types came in any size and had no overhead."""
    asks = [pod["spec"]["containers"][0]["resources"]["requests"] for pod in CASES[name].objects()]
    cpu = sum(int(ask["cpu"].removesuffix("m")) for ask in asks) / 1000
    gibibytes = sum(int(ask["memory"].removesuffix("Mi")) for ask in asks) / 1024
    return markets.FAKE_PRICE * max(cpu, gibibytes / 2)
