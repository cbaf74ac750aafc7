"""The report of an observed cluster as JSON data: each side by day, every assumption, and how much depends on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.costs.shadow import ACTUAL, KARPENTER, NODESMITH, Assumptions, Shadow, Span, Tally

SIDES = (ACTUAL, NODESMITH, KARPENTER)
BOOT, SPOT, RATES = 0.5, 0.2, (0.0, 4.0)
"""By how much boot times and spot prices may differ from what is assumed, and by which factors the interruptions."""
_MONTH_SECONDS, _NOTICE_SECONDS = 730 * 3600, 120
SIMPLIFIED = (
    "The shadows begin as a copy of the cluster's nodes, so the first day shows a fleet on its way.",
    "Every node with a known price is replaced, as in nodesmith savings. Pods that no NodePool accepts keep it.",
    "Nodes of the shadows neither expire nor drift, and EC2 always has capacity.",
    "A pod that replaces another one of its workload takes its place, whoever has evicted that.",
    "Sensitivities are first-order: the shadows' decisions are taken as they are.",
)


def report(shadow: Shadow, days: int) -> dict[str, Any]:
    """Return the report over the last days. Only days on which the cluster was observed are listed."""
    spans = [span for span in shadow.days if span.seconds > 0][-days:]
    total = sum_of(spans)
    return {
        "cluster": shadow.cluster,
        "startedAt": format_time(shadow.started_at),
        "lookedAt": format_time(shadow.at),
        "days": [{"date": f"{span.at:%Y-%m-%d}", **_item(span)} for span in spans],
        "total": _item(total),
        "agreement": _agreement(total),
        "assumptions": list(_assumptions(shadow, total, Assumptions())),
        "simplified": list(SIMPLIFIED),
        "faults": list(shadow.faults),
        "nodes": {name: len(fleet.claims) for name, fleet in sorted(shadow.fleets.items())},
        "audit": None,
    }


def sum_of(spans: Sequence[Span]) -> Span:
    """Return the sum of spans."""
    total = Span(spans[0].at if spans else datetime.min.replace(tzinfo=UTC))
    for span in spans:
        total = total.adding(span)
    return total


def _item(span: Span) -> dict[str, Any]:
    hours = span.seconds / 3600
    return {
        "observedHours": round(hours, 3),
        "unpricedNodes": round(span.unpriced_seconds / span.seconds, 2) if span.seconds else 0.0,
        **{name: _side(span.tallies.get(name, Tally()), span.seconds) for name in SIDES},
    }


def _side(tally: Tally, seconds: float) -> dict[str, Any]:
    bound = tally.bound_usd * seconds / tally.bound_seconds if tally.bound_seconds else None
    return {
        "usd": round(tally.usd, 4),
        "spotUsd": round(tally.spot_usd, 4),
        "nodes": round(tally.node_seconds / seconds, 2) if seconds else 0.0,
        "pendingSeconds": round(tally.pending_seconds),
        "evictions": tally.evictions,
        "launches": tally.launches,
        "unplacedSeconds": round(tally.unplaced_seconds),
        "lowerBoundUsd": None if bound is None else round(min(bound, tally.usd), 4),
    }


def _agreement(total: Span) -> dict[str, Any]:
    """Return how well the shadow of Karpenter's algorithm matches the cluster; closely if Karpenter serves it."""
    actual, karpenter = (total.tallies.get(name, Tally()) for name in (ACTUAL, KARPENTER))
    percent = 100 * (karpenter.usd / actual.usd - 1) if actual.usd else None
    return {"shadow": KARPENTER, "differencePercent": None if percent is None else round(percent, 2)}


def _assumptions(shadow: Shadow, total: Span, assumptions: Assumptions) -> Iterator[dict[str, Any]]:
    actual, ours = (total.tallies.get(name, Tally()) for name in (ACTUAL, NODESMITH))
    shown = shadow.boot_seconds
    changes = [(f"{100 * part:+.0f} %", part) for part in (-BOOT, BOOT)]
    yield {
        "what": "boot time of nodes",
        "value": f"{shown or assumptions.boot_seconds:.0f} s",
        "source": "the cluster's own nodes" if shown else "assumed: no node has shown it yet",
        "sensitivity": [
            _effect(actual.usd, ours, name, usd=part * ours.starting_usd, waits=part * ours.pending_seconds)
            for name, part in changes
        ],
    }
    yield {
        "what": "spot prices",
        "value": "those of the catalogue, refreshed every twelve hours",
        "source": "EC2",
        "sensitivity": [
            _effect(
                actual.usd + part * actual.spot_usd, ours, f"{100 * part:+.0f} %", usd=part * ours.spot_usd
            )
            for part in (-SPOT, SPOT)
        ],
    }
    expected = assumptions.interruptions_a_month * ours.spot_seconds / _MONTH_SECONDS
    moved = ours.pod_seconds / ours.node_seconds if ours.node_seconds else 0.0
    paid = ours.spot_usd / ours.spot_seconds * _NOTICE_SECONDS if ours.spot_seconds else 0.0
    yield {
        "what": "interruptions of spot nodes",
        "value": f"{100 * assumptions.interruptions_a_month:g} % of the nodes a month",
        "source": "assumed",
        "sensitivity": [
            _effect(
                actual.usd,
                ours,
                "none" if not factor else f"{factor:g} times as many",
                usd=(factor - 1) * expected * paid,
                evicted=(factor - 1) * expected * moved,
            )
            for factor in RATES
        ],
    }
    yield {
        "what": "time until a node is bought, and until one is gone",
        "value": f"{assumptions.latency_seconds:g} s and {assumptions.drain_seconds:g} s",
        "source": "assumed",
        "sensitivity": [],
    }


def _effect(
    actual_usd: float, ours: Tally, if_: str, *, usd: float, waits: float = 0.0, evicted: float = 0.0
) -> dict[str, Any]:
    """Return nodesmith's cost and saving under another assumption."""
    after = max(0.0, ours.usd + usd)
    return {
        "if": if_,
        "usd": round(after, 4),
        "savingUsd": round(actual_usd - after, 4),
        "pendingSeconds": max(0, round(ours.pending_seconds + waits)),
        "evictions": max(0, round(ours.evictions + evicted)),
    }
