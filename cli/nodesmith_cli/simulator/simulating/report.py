"""The comparison of simulated sides as JSON data: what differs, by how much, and how sure that is."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import fsum
from statistics import quantiles
from typing import Any

from nodesmith_formats.wording import spreadsheet_text
from nodesmith_local.simulation.sides import Outcome
from nodesmith_local.simulation.trace import Trace

BASELINE, CHANGE = "baseline", "change"
_ENOUGH = 20
"""From this many seeds on, the interval is that of the middle 90 %."""
_FIGURES: Sequence[tuple[str, str, Callable[[Outcome], float]]] = (
    ("cost", "USD", lambda o: o["usd"]),
    ("pods pending", "s", lambda o: o["pendingSeconds"]),
    ("pending per pod", "s", lambda o: o["pendingSeconds"] / max(1, o["pods"])),
    ("evictions", "", lambda o: o["evictions"]),
    ("interruptions", "", lambda o: o["interruptions"]),
    ("nodes launched", "", lambda o: o["nodesLaunched"]),
    ("node hours", "h", lambda o: o["nodeHours"]),
    ("spot hours", "h", lambda o: o["spotHours"]),
    ("pods without a node", "", lambda o: o["podsWithoutNode"]),
)


def report(
    trace: Trace,
    runs: Mapping[str, Sequence[Outcome]],
    *,
    cluster: str,
    source: str,
    changes: Sequence[str],
    notes: Sequence[str],
    recorded: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the report. `runs` has the outcomes of the baseline and, if something was changed, of the change."""
    before, after = runs.get(BASELINE, ()), runs.get(CHANGE, ())
    return {
        "cluster": cluster,
        "source": source,
        "from": trace.start.isoformat(),
        "until": trace.end.isoformat(),
        "hours": trace.span.total_seconds() / 3600,
        "pods": len(trace.slots),
        "seeds": max(len(before), len(after)),
        "interval": _interval_in_words(max(len(before), len(after))),
        "changes": list(changes),
        "notes": [
            *notes,
            *(f"{count:,} × {omission}" for omission, count in sorted(trace.omissions.items()) if count),
        ],
        "recorded": recorded,
        "figures": [
            {"name": name, "unit": unit, **_compared(before, after, of)} for name, unit, of in _FIGURES
        ],
        "nodepools": _parts(before, after, "nodepools", ("usd", "nodeHours")),
        "workloads": _parts(before, after, "workloads", ("usd", "pendingSeconds", "evictions", "pods")),
        "reasons": {side: _reasons(outcomes) for side, outcomes in runs.items()},
        "runs": {side: list(outcomes) for side, outcomes in runs.items()},
    }


def _interval_in_words(seeds: int) -> str:
    if seeds < 2:
        return "none: use --seeds for an interval"
    return f"middle 90 % of {seeds} seeds" if seeds >= _ENOUGH else f"lowest to highest of {seeds} seeds"


def _compared(
    before: Sequence[Outcome], after: Sequence[Outcome], of: Callable[[Outcome], float]
) -> dict[str, Any]:
    """Return the means of both sides, and the mean and the interval of the differences, seed by seed."""
    was, now = [of(outcome) for outcome in before], [of(outcome) for outcome in after]
    item: dict[str, Any] = {BASELINE: _mean(was), CHANGE: _mean(now)}
    if was and now:
        differences = [b - a for a, b in zip(was, now, strict=True)]
        low, high = _interval(differences)
        item |= {"difference": _mean(differences), "low": low, "high": high}
    return item


def _mean(values: Sequence[float]) -> float | None:
    return fsum(values) / len(values) if values else None


def _interval(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < _ENOUGH:
        return min(values), max(values)
    cuts = quantiles(values, n=20, method="inclusive")
    return cuts[0], cuts[-1]


def _parts(
    before: Sequence[Outcome], after: Sequence[Outcome], which: str, measures: Sequence[str]
) -> list[dict[str, Any]]:
    """Return what each NodePool or workload costs on both sides, those that differ most first."""
    names = sorted({name for outcome in (*before, *after) for name in outcome[which]})
    found = []
    for name in names:
        item: dict[str, Any] = {"name": name}
        for measure in measures:
            item[measure] = _compared(before, after, _measure(which, name, measure))
        found.append(item)

    def weight(item: Mapping[str, Any]) -> tuple[float, ...]:
        costs = item["usd"]
        difference = costs.get("difference")
        largest = max(costs[BASELINE] or 0.0, costs[CHANGE] or 0.0)
        others = (abs(item[m].get("difference") or 0.0) for m in measures[1:3])
        return (-abs(largest if difference is None else difference), *(-other for other in others))

    return sorted(found, key=weight)


def _measure(which: str, name: str, measure: str) -> Callable[[Outcome], float]:
    return lambda outcome: float((outcome[which].get(name) or {}).get(measure, 0.0))


def _reasons(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """Return why pods had no node at the end, with the largest number of pods in a seed."""
    found: dict[str, int] = {}
    for outcome in outcomes:
        for reason, count in outcome["reasons"].items():
            found[reason] = max(count, found.get(reason, 0))
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def as_csv(written: Mapping[str, Any]) -> str:
    """Return the report as CSV: one row for each figure, NodePool and workload measure."""
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(("kind", "name", "measure", BASELINE, CHANGE, "difference", "low", "high"))

    def row(kind: str, name: str, measure: str, item: Mapping[str, Any]) -> None:
        numbers = (item.get(key) for key in (BASELINE, CHANGE, "difference", "low", "high"))
        rows.writerow(
            (kind, spreadsheet_text(name), measure, *("" if n is None else f"{n:.6g}" for n in numbers))
        )

    for item in written["figures"]:
        row("total", item["name"], item["unit"], item)
    for kind in ("nodepools", "workloads"):
        for item in written[kind]:
            for measure, compared in item.items():
                if measure != "name":
                    row(kind.removesuffix("s"), item["name"], measure, compared)
    return text.getvalue()
