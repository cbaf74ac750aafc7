"""One-line summaries of decision records: nodes bought or moved, their price, and why pods stay unplaced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodesmith.model.kubernetes.pods import Reason, is_forthcoming, is_planned
from nodesmith_formats.prices import estimate_mark
from nodesmith_formats.wording import counted, saves

_ROUNDING = 1e-6
"""Prices that differ by a smaller fraction are equal: only the order of summation differs."""


def summary(record: Mapping[str, Any]) -> str:
    """Return a one-line summary of a decision."""
    plan = record["plan"]
    stuck = _pods(plan["unplaced"])
    parts = [_nodes_and_price(plan)] if plan["nodes"] else []
    parts += [f"{_pods_in(plan['placed'])} on existing nodes"] * bool(plan["placed"])
    parts += [f"{len(plan['waiting'])} waiting for in-flight nodes"] * bool(plan["waiting"])
    parts += [f"{stuck} not placed"] * bool(stuck)
    if "moves" in plan:
        saving = sum(move["savingHourlyUsd"] for move in plan["moves"])
        return f"{counted(len(plan['moves']), 'move')}, {saves(saving, f'${abs(saving):.4f}/hour')}"
    return "; ".join(parts) or "nothing to do"


def price_and_bound(plan: Mapping[str, Any]) -> str:
    """Return a plan's price, compared with the lower bound for these pods; with surcharges, and with few nodes."""
    return "; ".join((_price_and_bound(plan), *_surcharges(plan), *_few_nodes(plan)))


def _surcharges(plan: Mapping[str, Any]) -> Iterator[str]:
    surcharge, bound = plan.get("surchargeHourlyUsd", 0.0), plan.get("costBoundHourlyUsd", 0.0)
    if surcharge:
        cost = plan["priceHourlyUsd"] + surcharge
        least = f", at least ${min(bound, cost):.4f}/hour for these pods" if bound else ""
        yield f"${cost:.4f}/hour with surcharges of ${surcharge:.4f}/hour{least}"


def _few_nodes(plan: Mapping[str, Any]) -> Iterator[str]:
    number, fewest = len(plan["nodes"]), plan.get("fewestNodes", 0)
    if fewest:
        proof = "the fewest possible" if number <= fewest else f"these pods need at least {fewest:,}"
        yield f"objective LeastNodes: {counted(number, 'node')}, {proof}"


def disregarded(plan: Mapping[str, Any]) -> str:
    """Return what the bound on a plan's price disregards, such as `weights and limits`, or an empty string."""
    return " and ".join(name for name in ("weights", "limits") if plan.get(name) == "disregarded")


def _price_and_bound(plan: Mapping[str, Any]) -> str:
    price, bound = plan["priceHourlyUsd"], plan["boundHourlyUsd"]
    mark = _mark(plan)
    best = "the cheapest possible" + (" with as few nodes" if plan.get("fewestNodes") else "")
    if not bound:
        return f"{mark}${price:.4f}/hour"
    excess, weights = price / bound - 1, plan.get("weights")
    best += " with these weights" if weights == "kept" else ""
    if excess < _ROUNDING:
        return f"{mark}${price:.4f}/hour, {best}: no nodes for these pods cost less"
    uncounted = disregarded(plan)
    best += f" if {uncounted} did not count" if uncounted else ""
    least = f"no nodes for these pods cost less than {mark}${bound:.4f}/hour"
    return f"{mark}${price:.4f}/hour, at most {max(excess, 0.001):.1%} above {best}: {least}"


def in_a_sentence(group: Mapping[str, Any]) -> str:
    """Return the reason why a plan leaves a group of pods unplaced, and the fix."""
    return str(Reason(group["reason"], fix=group.get("fix") or ""))


def _nodes_and_price(plan: Mapping[str, Any]) -> str:
    keys = [key for node in plan["nodes"] for key in node["claim"].get("nominated") or ()]
    forthcoming = sum(map(is_forthcoming, keys))
    room = sum(map(is_planned, keys)) - forthcoming
    existing = len(keys) - room - forthcoming
    served = [counted(existing, "pod")] if existing or not (room or forthcoming) else []
    served += [f"{counted(forthcoming, 'pod')} that workloads are about to create"] if forthcoming else []
    served += [f"CapacityBuffers' room for {counted(room, 'pod')}"] if room else []
    price = f"{_mark(plan)}${plan['priceHourlyUsd']:.4f}/hour"
    return f"{counted(len(plan['nodes']), 'node')} at {price} for {' and '.join(served)}"


def _mark(plan: Mapping[str, Any]) -> str:
    return estimate_mark(any(node["estimated"] for node in plan["nodes"]))


def _pods(groups: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(group["pods"]) for group in groups)


def _pods_in(placed: Mapping[str, Sequence[str]]) -> int:
    return sum(len(pods) for pods in placed.values())
