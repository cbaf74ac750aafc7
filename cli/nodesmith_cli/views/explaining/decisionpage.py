"""A decision as parts of an HTML report: pods, their shapes and the nodes they get; alternatives with their prices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any

from nodesmith.model.apimachinery.quantities import CPU, MEMORY, PODS, Resources, amount_text, format_amount
from nodesmith.model.kubernetes.pods import Shape, is_planned
from nodesmith_cli.costs.savings.capacity import workload_of
from nodesmith_cli.costs.savings.constraints import constraints_of
from nodesmith_cli.output.reporting.charts import Bar, bars
from nodesmith_cli.output.reporting.fleetmap import Kind, class_of, fleet_map
from nodesmith_cli.output.reporting.flows import Box, Column, Link, flow
from nodesmith_cli.output.reporting.frame import Card, figure, section, table
from nodesmith_cli.output.reporting.markup import Html
from nodesmith_cli.output.reporting.pricescales import Choice, money, price_scale
from nodesmith_formats.decisions.summaries import disregarded, in_a_sentence
from nodesmith_formats.prices import HOURS_A_MONTH, estimate_mark
from nodesmith_formats.wording import counted, some

Plan = Mapping[str, Any]
"""A plan as records of decisions have it."""
Shapes = Mapping[str, Shape]
"""The shapes of pods by `namespace/name`; pods that are unknown have none."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """Nodes to launch that are alike: their instance type, capacity type and NodePool."""

    instance_type: str
    sold: str
    nodepool: str
    nodes: tuple[Mapping[str, Any], ...]

    @property
    def hourly_usd(self) -> float:
        return fsum(node["priceHourlyUsd"] for node in self.nodes)

    @property
    def pods(self) -> list[str]:
        return [key for node in self.nodes for key in node["claim"].get("nominated") or ()]

    @property
    def zones(self) -> list[str]:
        return sorted({str(cheapest(node)[2]) for node in self.nodes})


def cheapest(node: Mapping[str, Any]) -> Sequence[Any]:
    """Return the cheapest offering of a node to launch: template, type, zone, subnet, price and more."""
    offered: Sequence[Sequence[Any]] = node["launch"]["overrides"]
    return min(offered, key=lambda offer: float(offer[4]))


def kinds_of(plan: Plan) -> list[Kinds]:
    """Return the nodes to launch by kind, the most expensive first."""
    by_key: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for node in plan["nodes"]:
        key = str(cheapest(node)[1]), str(node["launch"]["capacityType"]), str(node["claim"]["nodepool"])
        by_key.setdefault(key, []).append(node)
    kinds = [Kinds(*key, tuple(nodes)) for key, nodes in by_key.items()]
    return sorted(kinds, key=lambda kind: (-kind.hourly_usd, kind.instance_type, kind.sold))


def decision_cards(plan: Plan) -> list[Card]:
    """Return the figures of a decision: price, lower bound, nodes, pods."""
    price, bound = plan["priceHourlyUsd"], plan["boundHourlyUsd"]
    stuck = sum(len(group["pods"]) for group in plan["unplaced"])
    sold = Counter(str(node["launch"]["capacityType"]) for node in plan["nodes"])
    mark = estimate_mark(any(node["estimated"] for node in plan["nodes"]))
    above = price / bound - 1 if bound else 0.0
    uncounted = disregarded(plan)
    proof = f"at most {above:.1%} above it" if above > 0.0005 else "the plan is the cheapest possible"
    if uncounted and above > 0.0005:
        proof += f", which disregards {uncounted}"
    proof += " with these weights" if plan.get("weights") == "kept" else ""
    served = sum(len(kind.pods) for kind in kinds_of(plan))
    placed = sum(len(pods) for pods in plan["placed"].values())
    return [
        Card("Price", f"{mark}${price * HOURS_A_MONTH:,.0f}", "/month", (f"{mark}{money(price)}/hour",)),
        Card(
            "Lower bound",
            f"{mark}${bound * HOURS_A_MONTH:,.0f}" if bound else "none",
            "/month" if bound else "",
            (proof if bound else "it was not computed",),
        ),
        Card("Nodes to launch", f"{len(plan['nodes']):,}", "", (_list(sold),)),
        Card(
            "Pods placed",
            f"{served + placed:,}",
            "",
            (f"{stuck:,} stay pending" if stuck else "none stays pending",),
        ),
    ]


def _list(counts: Counter[str]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in sorted(counts.items())) or "none"


def decision_sections(plan: Plan, shapes: Shapes) -> Iterator[Html]:
    """Yield the picture of a decision, the alternatives for each kind of node, and tables with the same figures."""
    kinds = kinds_of(plan)
    title = "From pods to nodes"
    text = (
        "The height of a band is the number of pods. A dashed line is spot capacity, a plain one on-demand."
    )
    drawn = decision_picture(plan, shapes)
    yield section(title, figure(drawn, text, title) if drawn else "")
    yield from _offerings(kinds)
    if kinds:
        tiles = [
            Kind(zone, kind.instance_type, kind.sold, len(nodes), fsum(n["priceHourlyUsd"] for n in nodes))
            for kind in kinds
            for zone, nodes in _by_zone(kind.nodes).items()
        ]
        name = "Nodes to launch by zone and type"
        yield section(name, figure(fleet_map(name, tiles), "The area of a tile is its price.", name))
    yield from pending_sections(plan)


def decision_picture(plan: Plan, shapes: Shapes) -> Html:
    """Return workloads, pod shapes and nodes with bands between them, or nothing if the plan has no pods."""
    targets = list(_targets(plan))
    if not any(pods for _, pods in targets):
        return Html("")
    links: Counter[tuple[str, str]] = Counter()
    workloads: Counter[str] = Counter()
    texts: dict[str, tuple[str, tuple[str, ...]]] = {}
    weights: Counter[str] = Counter()
    for box, pods in targets:
        for key in pods:
            name = _workload(key, shapes)
            shown = _shape(shapes[key]) if key in shapes else ("", ())
            middle = f"shape {shown}" if shown[0] else ""
            workloads[name] += 1
            if middle:
                texts[middle] = shown
                weights[middle] += 1
                links[f"pods {name}", middle] += 1
            links[middle or f"pods {name}", box.key] += 1
    columns = [Column("Pods", tuple(_workload_box(name, number) for name, number in workloads.items()))]
    if texts:
        boxes = tuple(Box(key, title, lines[:2], weights[key]) for key, (title, lines) in texts.items())
        columns.append(Column("Shapes", boxes))
    columns.append(Column("Nodes", tuple(box for box, pods in targets if pods)))
    bands = [Link(source, target, number) for (source, target), number in links.items()]
    return flow("From pods to nodes", columns, bands)


def _workload_box(name: str, number: int) -> Box:
    return Box(f"pods {name}", name, (counted(number, "pod"),), number)


def _targets(plan: Plan) -> Iterator[tuple[Box, Sequence[str]]]:
    """Yield each box with its pods: nodes to launch by kind, other nodes, and one for each reason to get no node."""
    for n, kind in enumerate(kinds_of(plan)):
        lines = (f"{kind.sold}, {some(kind.zones, 2)}", f"{money(kind.hourly_usd)}/h")
        title = f"{len(kind.nodes):,} × {kind.instance_type}"
        yield Box(f"kind-{n}", title, lines, len(kind.pods), class_of(kind.sold)), kind.pods
    placed = [key for pods in plan["placed"].values() for key in pods]
    nodes = counted(len(plan["placed"]), "existing node")
    yield Box("there", nodes, ("nothing is launched for them",), len(placed)), placed
    waiting = sorted(plan["waiting"])
    number = len(set(plan["waiting"].values()))
    yield (
        Box(
            "coming",
            counted(number, "in-flight node"),
            ("launched before",),
            len(waiting),
        ),
        waiting,
    )
    for n, group in enumerate(plan["unplaced"]):
        yield (
            Box(f"none-{n}", "stay pending", (group["reason"],), len(group["pods"]), "pending"),
            group["pods"],
        )
    for n, group in enumerate(plan["ignored"]):
        yield Box(f"ignored-{n}", "ignored", (group["reason"],), len(group["pods"])), group["pods"]


def _workload(key: str, shapes: Shapes) -> str:
    """Return a pod's workload, or the pod's name without its controller's suffixes if the shape is unknown."""
    if is_planned(key):
        return "room of CapacityBuffers"
    if key in shapes:
        namespace, kind, *name = workload_of(shapes[key]).split("/", 2)
        return f"{namespace}/{name[0]}" if name else f"{namespace}/{key.partition('/')[2] or kind}"
    parts = key.rsplit("-", 2)
    return parts[0] if len(parts) == 3 else key


def _shape(shape: Shape) -> tuple[str, tuple[str, ...]]:
    """Return what a pod requests, and its constraints."""
    rules = sorted({constraint.kind for constraint in constraints_of(shape, pinned=False)})
    return requests_text(shape.requests), (some(rules, 3),) if rules else ()


def requests_text(requests: Resources) -> str:
    """Return requests in words, such as `2 CPU, 4Gi`."""
    parts = [f"{amount_text(CPU, requests.of(CPU))} CPU"]
    parts += [format_amount(MEMORY, requests.of(MEMORY))] if requests.of(MEMORY) else []
    others = [name for name in sorted(requests) if name not in {CPU, MEMORY, PODS} and requests[name]]
    return ", ".join(parts + [f"{amount_text(name, requests[name])} {name}" for name in others])


def _offerings(kinds: Sequence[Kinds]) -> Iterator[Html]:
    choices, rows = [], []
    for kind in kinds:
        offered = _prices(kind)
        chosen = cheapest(kind.nodes[0])
        others = [name for name in offered if name != chosen[1]]
        after = f"; the next, {others[0]}, costs {money(offered[others[0]])}" if others else ""
        note = f"one of {counted(len(offered), 'instance type')} that would be suitable{after}"
        label = f"{kind.instance_type}, {kind.sold}"
        choices.append(Choice(label, float(chosen[4]), tuple(offered.values()), note))
        rows.append(
            (
                len(kind.nodes),
                kind.instance_type,
                kind.sold,
                some(kind.zones),
                kind.nodepool,
                len(kind.pods),
                f"{kind.hourly_usd:,.4f}",
                some([f"{o} {money(offered[o])}" for o in others], 3),
            )
        )
    title = "Suitable instance types, with their price"
    head = ("#Nodes", "Type", "Sold", "Zones", "NodePool", "#Pods", "#$/hour", "Alternatives a node")
    text = "Each mark is an instance type that the pods fit on, at its price in the cheapest zone."
    drawn = figure(price_scale(title, choices), text, title) if choices else ""
    yield section(title, drawn, table(head, rows, title))


def _prices(kind: Kinds) -> dict[str, float]:
    """Return the price of each suitable instance type for the first node of a kind, the cheapest first."""
    by_type: dict[str, float] = {}
    for offer in sorted(kind.nodes[0]["launch"]["overrides"], key=lambda offer: float(offer[4])):
        by_type.setdefault(str(offer[1]), float(offer[4]))
    return by_type


def _by_zone(nodes: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    zones: dict[str, list[Mapping[str, Any]]] = {}
    for node in nodes:
        zones.setdefault(str(cheapest(node)[2]), []).append(node)
    return zones


def pending_sections(plan: Plan) -> Iterator[Html]:
    """Yield the pods that stay pending, with reason and fix, and the reasons why NodePools launch nothing."""
    yield section(
        "Pods that stay pending",
        table(
            ("#Pods", "Which", "Why"),
            ((len(g["pods"]), some(g["pods"], 3), in_a_sentence(g)) for g in plan["unplaced"]),
            "Pods that stay pending",
        ),
    )
    problems = [
        tuple(problem.split(": ", 1)) if ": " in problem else ("", problem) for problem in plan["problems"]
    ]
    obstacles = [
        (f"NodePool/{name}", reason)
        for name, reason in plan["obstacles"].items()
        if not any(problem.startswith(f"NodePool/{name}: ") for problem in plan["problems"])
    ]
    title = "What else was found"
    yield section(title, table(("Object", "Finding"), [*obstacles, *problems], title))


def price_bars(title: str, rows: Sequence[tuple[str, float, str]]) -> Html:
    """Return prices per hour as bars, each with a name and a note. The first bar is the plan itself."""
    shown = [
        Bar(name, price, f"{money(price)}/h{', ' + note if note else ''}", 2 if n == 0 else 1)
        for n, (name, price, note) in enumerate(rows)
    ]
    return figure(bars(title, shown), name=title)
