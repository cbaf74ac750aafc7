"""A view as sentences, without colour, bars or cursor movements, for screen readers, pipes and logs; and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from nodesmith_cli.views.top.rows import (
    Gauge,
    NodeRow,
    PodRow,
    View,
    age_seconds,
    chosen,
    duration,
    monthly,
    seconds_left,
    totals,
)
from nodesmith_formats.wording import counted

_GIB = 2**30


def sentences(view: View, order: str, query: str = "") -> Iterator[str]:
    """Yield what a view shows. Nodes are in the given order, and contain all words of `query`."""
    states = ", ".join(f"{count} {name}" for name, count in totals(view.nodes).items())
    nodes = counted(len(view.nodes), "node") + (f" ({states})" if states else "")
    yield f"{view.context or 'cluster'}: {nodes}, {counted(view.pods, 'pod')}"
    if not view.is_current:
        yield "What follows is not up to date: the cluster cannot be watched at the moment."
    unpriced = f", without {counted(view.unpriced, 'node')} of unknown price" if view.unpriced else ""
    about = "about " if view.is_estimated else ""
    yield f"Price: {about}${view.hourly_usd:,.2f} an hour, {monthly(view.hourly_usd)} a month{unpriced}."
    if view.prospect is not None:
        prospect = view.prospect
        yield (
            f"Lower bound: ${prospect.bound_hourly_usd:,.2f} an hour; {counted(prospect.moves, 'move')} would lead to "
            f"${prospect.reachable_hourly_usd:,.2f}."
        )
    yield f"Requested: {view.cpu.share:.0%} of {view.cpu.allocatable / 1000:,.0f} cpu, {_gib(view.memory)}."
    if view.pause:
        yield view.pause
    for row in chosen(view.nodes, order, query):
        yield _node(row, view.at)
    for pod in view.pending:
        yield f"Pending: {pod.key}, for {duration(pod.age_seconds)}: {pod.reason}"
    yield from view.windows
    yield from view.notes


def _node(row: NodeRow, now: datetime) -> str:
    seconds = seconds_left(row, now)
    remaining = f", {duration(seconds)} left" if seconds is not None else ""
    parts = [
        f"{row.instance_type or 'unknown type'} {row.capacity_type} in {row.zone or 'no zone'}",
        f"{row.cpu.share:.0%} of cpu",
        f"{row.memory.share:.0%} of memory",
        f"{row.gpus.requested} of {row.gpus.allocatable} GPUs" if row.gpus.allocatable else "",
        counted(row.pods.requested, "pod"),
        _price(row),
        f"age {duration(age_seconds(row, now))}",
        f"{row.state}{remaining}" + (f": {row.detail}" if row.detail else ""),
    ]
    group = f", {row.group}" if row.group else ""
    return f"Node {row.name}{group}: {', '.join(filter(None, parts))}"


def _price(row: NodeRow) -> str:
    if row.price is None:
        return "price unknown"
    return f"{'about ' if row.price.estimated else ''}${row.hourly_usd:.4f} an hour"


def _gib(gauge: Gauge) -> str:
    return f"{gauge.share:.0%} of {gauge.allocatable / _GIB:,.0f} GiB memory"


def data(view: View, order: str, query: str = "") -> dict[str, Any]:
    """Return a view as JSON data. `cpu` is in thousandths and `memory` in bytes."""
    return {
        "schemaVersion": 1,
        "context": view.context,
        "isCurrent": view.is_current,
        "hourly": round(view.hourly_usd, 6),
        "unpricedNodes": view.unpriced,
        "lowerBoundHourly": view.prospect.bound_hourly_usd if view.prospect else None,
        "paused": view.pause or None,
        "pods": view.pods,
        "nodes": [_node_data(row, view.at) for row in chosen(view.nodes, order, query)],
        "pending": [_pod_data(pod) for pod in view.pending],
        "budgetWindows": list(view.windows),
        "notes": list(view.notes),
    }


def _node_data(row: NodeRow, now: datetime) -> dict[str, Any]:
    return {
        "name": row.name,
        "group": row.group,
        "managedBy": row.owner,
        "instanceType": row.instance_type,
        "zone": row.zone,
        "capacityType": row.capacity_type,
        "priceHourly": row.price.hourly_usd if row.price else None,
        "priceEstimated": row.price.estimated if row.price else None,
        "cpu": _gauge_data(row.cpu),
        "memory": _gauge_data(row.memory),
        "pods": _gauge_data(row.pods),
        "gpus": _gauge_data(row.gpus),
        "ageSeconds": age_seconds(row, now),
        "state": row.state.value,
        "detail": row.detail,
        "secondsLeft": seconds_left(row, now),
        "cordoned": row.is_cordoned,
    }


def _gauge_data(gauge: Gauge) -> dict[str, Any]:
    return {"requested": gauge.requested, "allocatable": gauge.allocatable, "used": gauge.used}


def _pod_data(pod: PodRow) -> dict[str, Any]:
    return {"name": pod.key, "ageSeconds": pod.age_seconds, "reason": pod.reason, "owner": pod.owner}
