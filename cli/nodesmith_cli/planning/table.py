"""A plan as tables: its price and lower bound, nodes with their utilization, and pods that stay pending."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from math import fsum
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nodesmith.decisions.provisioning import Inputs, Plan, PlannedNode
from nodesmith.decisions.provisioning.nodepools.tiers import parsed_nodeclasses
from nodesmith.model.apimachinery.labels import SPOT
from nodesmith.model.apimachinery.quantities import CPU, MEMORY, Resources
from nodesmith.model.ec2.instancetypes import InstanceType, instance_types
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith_cli.costs.commitments import paid_lines
from nodesmith_cli.output.terminal import ESTIMATE, gauge, price_text
from nodesmith_cli.planning.report import gang_names
from nodesmith_formats.decisions.summaries import price_and_bound
from nodesmith_formats.prices import Price
from nodesmith_formats.wording import counted, some

_MOST_ROWS = 40
_BAR = 8
_NARROW = 100
_NAMES = 3
_NUMBERS = frozenset({"nodes", "pods", "$/hour", "move", "eviction cost", "saves/hour"})


def show(
    to: Console, plan: Plan, inputs: Inputs, report: Mapping[str, Any], *, is_wide: bool = False
) -> None:
    """Print a plan. `report` is its JSON data. If `is_wide`, no row is left out."""
    most = (
        max(_MOST_ROWS, len(plan.nodes) + len(report["existing"]) + len(report["unplaced"]))
        if is_wide
        else _MOST_ROWS
    )
    _summary(to, plan, report)
    if plan.rooms:
        to.print()
        to.print(_buffers(report["capacityBuffers"]))
        to.print(_cost(report), style="bold")
    if plan.nodes:
        to.print()
        to.print(_nodes(plan.nodes, _room(inputs), _BAR if to.width >= _NARROW else 0, most))
        for line in (*_overlaid(plan.nodes), *paid_lines(plan.nodes)):
            to.print(line, style="dim")
    if report["existing"]:
        to.print()
        to.print(_existing(report["existing"], most))
    if report["unplaced"]:
        to.print()
        to.print(_unplaced(report["unplaced"], most))
    if any(node.estimated for node in plan.nodes):
        to.print()
        to.print(ESTIMATE, style="dim")


def _overlaid(nodes: Sequence[PlannedNode]) -> Iterator[str]:
    """Yield, for each NodeOverlay that has set prices of planned nodes, both prices of these nodes."""
    by_overlay: dict[str, list[PlannedNode]] = {}
    for node in nodes:
        if node.request.cheapest.overlay:
            by_overlay.setdefault(node.request.cheapest.overlay, []).append(node)
    for name, priced in sorted(by_overlay.items()):
        overlaid, listed = (
            sum(prices)
            for prices in (
                [node.price_hourly_usd for node in priced],
                [node.claim.price_hourly_usd for node in priced],
            )
        )
        number = counted(len(priced), "node")
        yield f"NodeOverlay {name} prices {number} at ${overlaid:.4f}/hour, for which AWS charges ${listed:.4f}/hour"


def _summary(to: Console, plan: Plan, report: Mapping[str, Any]) -> None:
    of_gangs = gang_names(report)
    gangs = [node for node in plan.nodes if node.claim.name in of_gangs]
    bought = [node for node in plan.nodes if not node.is_room and node.claim.name not in of_gangs]
    new, together = (sum(len(node.claim.nominated) for node in nodes) for nodes in (bought, gangs))
    existing = sum(len(node["pods"]) for node in report["existing"])
    stay = len(report["unplaced"])
    if not new + together + existing + stay + len(bought) + len(gangs):
        to.print("nothing to do: no pending pods", style="bold")
        return
    to.print(f"pending: {counted(new + together + existing + stay, 'pod')}", style="bold")
    if bought:
        estimated = any(node.estimated for node in bought)
        priced = {
            "priceHourlyUsd": fsum(node.price_hourly_usd for node in bought),
            "boundHourlyUsd": plan.bound_hourly_usd,
            "nodes": [{"estimated": estimated}] * len(bought),
            "surchargeHourlyUsd": sum(node.surcharge_hourly_usd for node in bought),
            "costBoundHourlyUsd": plan.cost_bound_hourly_usd,
            "fewestNodes": plan.fewest,
            "weights": plan.weights,
            "limits": plan.limits,
        }
        to.print(f"  {new:>7,} on {counted(len(bought), 'node')} to launch at {price_and_bound(priced)}")
    if gangs:
        price = price_text(
            Price(fsum(node.price_hourly_usd for node in gangs), any(node.estimated for node in gangs))
        )
        to.print(f"  {together:>7,} on {counted(len(gangs), 'node')} to launch for gangs at {price}/hour")
    if existing:
        number = len(report["existing"])
        to.print(f"  {existing:>7,} on {counted(number, 'existing or in-flight node')}")
    if plan.starts:
        to.print(f"  {counted(len(plan.starts), 'stopped instance')} of these to start")
    if stay:
        to.print(f"  {stay:>7,} not placed", style="red")
    to.print(f"decided in {report['seconds']:.2f} s, {counted(plan.steps, 'search step')}", style="dim")


def _buffers(report: Mapping[str, Any]) -> Table:
    table = plain_table("CapacityBuffer", "pods", "have room", "launching", "to launch", "why")
    for room in report["rooms"][:_MOST_ROWS]:
        numbers = [str(room[name]) for name in ("count", "ready", "launching", "bought")]
        table.add_row(room["buffer"], *numbers, Text(room["reason"], style="red"))
    return table


def _cost(report: Mapping[str, Any]) -> str:
    """Return what CapacityBuffers cost, in a sentence."""
    buffers = report["capacityBuffers"]
    new = sum(bool(node.get("forBuffers")) for node in report["nodes"])
    held_price = price_text(Price(buffers["heldHourly"], buffers["heldEstimated"]))
    new_price = price_text(Price(buffers["toLaunchHourly"], buffers["toLaunchEstimated"]))
    held = f"{counted(len(buffers['held']), 'node')} held for buffers alone at {held_price}/hour"
    stopped = [node["stoppedHourly"] for node in report["nodes"] if "stoppedHourly" in node]
    later = f", {len(stopped)} of them to be stopped at ${sum(stopped):.4f}/hour" if stopped else ""
    return f"{held}, {new} to launch at {new_price}/hour{later}"


def _room(inputs: Inputs) -> Mapping[tuple[str, str], Resources]:
    """Return the allocatable resources of instance types, by EC2NodeClass and type."""
    types: dict[str, Sequence[InstanceType]] = {
        name: instance_types(inputs.catalog, NodeConfiguration.of(nodeclass), inputs.settings)
        for name, nodeclass in parsed_nodeclasses(inputs.snapshot).items()
    }
    return {(name, t.name): t.allocatable for name, listed in types.items() for t in listed}


def _nodes(
    nodes: Sequence[PlannedNode], room: Mapping[tuple[str, str], Resources], bar: int, most: int
) -> Table:
    """Return one row for each group of equal nodes, in the order of the plan."""
    table = plain_table(
        "nodes", "NodePool", "type", "", "zone", "capacity", "$/hour", "cpu", "memory", "pods"
    )
    alike: dict[Hashable, list[PlannedNode]] = {}
    for node in nodes:
        cheapest, claim = node.request.cheapest, node.claim
        key = (claim.nodepool, cheapest.instance_type, cheapest.zone, claim.capacity_type, claim.requests)
        alike.setdefault(key, []).append(node)
    for group in list(alike.values())[:most]:
        table.add_row(*_node_row(group, room, bar))
    add_rest(table, sum(map(len, list(alike.values())[most:])))
    return table


def _node_row(
    alike: Sequence[PlannedNode], room: Mapping[tuple[str, str], Resources], bar: int
) -> list[str | Text]:
    node, claim = alike[0], alike[0].claim
    cheapest = node.request.cheapest
    others = len({override.instance_type for override in node.request.overrides}) - 1
    offered = room.get((claim.nodeclass.name, cheapest.instance_type), claim.allocatable)
    return [
        str(len(alike)),
        claim.nodepool,
        cheapest.instance_type,
        Text(f"+{others} more" if others else "", style="dim"),
        cheapest.zone,
        Text(claim.capacity_type, style="green" if claim.capacity_type == SPOT else "yellow"),
        price_text(Price(node.price_hourly_usd, node.estimated)),
        gauge(claim.requests.of(CPU), offered.of(CPU), bar),
        gauge(claim.requests.of(MEMORY), offered.of(MEMORY), bar),
        str(len(claim.nominated)),
    ]


def _existing(existing: Sequence[Mapping[str, Any]], most: int) -> Table:
    table = plain_table("existing", "pods", "")
    for entry in existing[:most]:
        table.add_row(entry["node"], str(len(entry["pods"])), some(entry["pods"], _NAMES))
    add_rest(table, len(existing) - most)
    return table


def _unplaced(unplaced: Sequence[Mapping[str, str]], most: int) -> Table:
    """Return one row for each reason, the one with the most pods first."""
    table = plain_table("pods", "not placed", "why")
    pods: dict[tuple[str, str], list[str]] = {}
    for entry in unplaced:
        pods.setdefault((entry["reason"], entry["fix"]), []).append(entry["pod"])
    ordered = sorted(pods.items(), key=lambda item: (-len(item[1]), item[0]))
    for (reason, fix), names in ordered[:most]:
        text = Text(reason)
        if fix:
            text.append(f"\n→ {fix}", style="green")
        table.add_row(f"{len(names):,}", Text(some(names, 1), style="red"), text)
    add_rest(table, sum(len(names) for _, names in ordered[most:]))
    return table


def add_rest(table: Table, number: int) -> None:
    """Add a row that counts what a table leaves out, if there is anything."""
    if number > 0:
        table.add_row(f"and {number:,} more: see -o json")


_SENTENCES = frozenset({"why", "reason", "removed", "launched"})
"""Columns that continue in the next line where the terminal is too narrow."""


def plain_table(*titles: str) -> Table:
    """Return a table without borders. Columns of numbers are right-aligned."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in titles:
        right = title in _NUMBERS
        table.add_column(
            title,
            justify="right" if right else "left",
            no_wrap=title not in _SENTENCES,
        )
    return table
