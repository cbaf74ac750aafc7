"""Prices of plans as ratios to a lower bound, next to first-fit as in Karpenter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean
from typing import Any

from nodesmith.decisions.shadow.karpenter import Kind, first_fit
from nodesmith_cli.audit import audit
from tests.benchmarks.figures import Figure
from tests.benchmarks.packing import markets, workloads
from tests.benchmarks.packing.following import in_waves
from tests.benchmarks.packing.traces import Ask, Trace, traces
from tests.problems.planning import Planned, planned

Manifest = dict[str, Any]
_SMALL_BATCHES, _QUICK_BATCHES = 1000, 100
_LONGEST_SECONDS = 3
_OWN_BOUND = 0.99
"""least ratio of the bound that a plan reports to that of the linear program"""


def figures(*, quick: bool = False) -> list[Figure]:
    """Measure the traces, one of them in waves, and small batches."""
    by_name = {trace.name: trace for trace in traces()}
    found = [figure for trace in by_name.values() for figure in _trace(trace)]
    found += _waves(by_name["default"])
    return found + _small(_QUICK_BATCHES if quick else _SMALL_BATCHES)


def _trace(trace: Trace) -> list[Figure]:
    manifests = [markets.on_demand_cmr(), *workloads.asked(trace.asks)]
    made = planned(manifests, markets.embedded())
    bound, price = trace.bound_hourly_usd, made.price_hourly_usd
    beside = f"first-fit {_first_fit_price(trace.asks, markets.kinds(markets.on_demand_cmr())) / bound:.3f}"
    note = (
        f"${price:.2f}/hour on {len(made.plan['nodes'])} nodes against ${bound:.2f}, {beside};"
        f" {len(made.unplaced)} of {trace.pods} pods unplaced; {made.cpu_seconds:.2f} s of cpu"
    )
    own = f"${made.bound_hourly_usd:.2f}/hour reported, of ${bound:.2f}"
    return [
        Figure(
            f"price-ratio-{trace.name}", _ratio(price, bound, made.unplaced), "× the LP bound", 1.01, note
        ),
        Figure(
            f"bound-gap-{trace.name}", bound / made.bound_hourly_usd, "× the own bound", 1 / _OWN_BOUND, own
        ),
        Figure(f"trace-{trace.name}-s", made.cpu_seconds, "s", _LONGEST_SECONDS, "of cpu, once"),
        Figure(
            f"trace-{trace.name}-violations",
            _violations(manifests, made),
            "violations",
            0,
            "found by the audit",
        ),
    ]


def _waves(trace: Trace) -> list[Figure]:
    made = in_waves(workloads.waves(trace.asks), markets.on_demand_cmr(), markets.embedded())
    bound = trace.bound_hourly_usd
    note = f"${made.price_hourly_usd:.2f}/hour on {made.nodes} nodes; Karpenter 1.33; {len(made.unplaced)} unplaced"
    ratio = _ratio(made.price_hourly_usd, bound, made.unplaced)
    violations = _violations(made.manifests, made.plan)
    return [
        Figure("price-ratio-waves", ratio, "× the LP bound of the whole", 1.06, note),
        Figure("waves-violations", violations, "violations", 0, "found by the audit in the last one"),
    ]


def _small(count: int) -> list[Figure]:
    """Compare small everyday batches with the bounds that their own plans report, since no other bound is known."""
    kinds = markets.kinds(markets.everything())
    ratios: list[tuple[float, tuple[Ask, ...]]] = []
    beside: list[float] = []
    violations = 0
    for asks in workloads.small_batches(count):
        manifests = [markets.everything(), *workloads.asked(asks)]
        made = planned(manifests, markets.embedded())
        violations += _violations(manifests, made)
        ratios.append((_ratio(made.price_hourly_usd, made.bound_hourly_usd, made.unplaced), asks))
        beside.append(_first_fit_price(asks, kinds) / made.bound_hourly_usd)
    worst, asks = max(ratios)
    note = f"{count} batches; first-fit {mean(beside):.3f}"
    about = (
        f"first-fit {max(beside):.3f}; of {', '.join(f'{n} × {cpu}m {memory}Mi' for cpu, memory, n in asks)}"
    )
    return [
        Figure("price-ratio-small-mean", mean(r for r, _ in ratios), "× the own bound", 1.02, note),
        Figure("price-ratio-small-worst", worst, "× the own bound", 1.15, about),
        Figure("small-violations", violations, "violations", 0, "found by the audit in all of them"),
    ]


def _violations(manifests: Sequence[Manifest], made: Planned) -> int:
    return len(audit(manifests, markets.embedded(), made.plan))


def _ratio(price: float, bound: float, unplaced: Iterable[str]) -> float:
    """Return price per bound; infinity for a plan that leaves pods out, since its price means nothing."""
    return float("inf") if any(True for _ in unplaced) or bound <= 0 else price / bound


def _first_fit_price(asks: Sequence[Ask], kinds: Sequence[Kind]) -> float:
    pods = [(cpu, memory * 2**20, 1) for cpu, memory, count in asks for _ in range(count)]
    return sum(bought.kind.price for bought in first_fit(pods, kinds))
