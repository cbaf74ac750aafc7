"""Moves as JSON and as tables: which nodes would be removed and launched, in order, and why the others stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nodesmith.decisions.budgets import remaining
from nodesmith.decisions.disruption.costs import offering_of, overlaid_price
from nodesmith.decisions.disruption.proposals import Blocker, Proposal, Proposals
from nodesmith.decisions.provisioning import Inputs, Plan
from nodesmith.decisions.scheduling.offerings.overlays import overlays_of
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.ledger.moves import Reason
from nodesmith_cli.output.terminal import ESTIMATE, price_text
from nodesmith_cli.planning.report import plan_json
from nodesmith_cli.planning.table import add_rest, plain_table
from nodesmith_formats.prices import HOURS_A_YEAR, Price, estimate_mark
from nodesmith_formats.wording import counted, saves

_DIGITS = 9
_CONSOLIDATION = "Consolidation"
"""The rule for nodes that consolidation has examined without finding anything cheaper for their pods."""
_MOST_ROWS = 40


def moves_json(proposals: Proposals, inputs: Inputs, seconds: float = 0.0) -> dict[str, Any]:
    """Return the result of a pass. Prices are USD an hour, `evictionCost` is Karpenter's, `seconds` is CPU time.

    `moves` are in the order in which they would start. `kept` are nodes that stay, with the rule and its object.
    """
    fleet = {claim.name: (claim, inputs.snapshot.node_of(claim)) for claim in inputs.ledger.claims}
    price = fsum(_price(claim, node, inputs) for claim, node in fleet.values() if node)
    moves = [_move(proposal, fleet, inputs) for proposal in proposals.proposals]
    saving = fsum(proposal.saving_hourly_usd for proposal in proposals.proposals)
    return {
        "moves": moves,
        "kept": [_kept(name, blocker, fleet) for name, blocker in _keepers(proposals).items()],
        "budgets": _budgets(inputs),
        "nodes": sum(node is not None for _, node in fleet.values()),
        "priceHourly": round(price, _DIGITS),
        "priceEstimated": any(_is_estimated(claim, node, inputs) for claim, node in fleet.values() if node),
        "savingHourly": round(saving, _DIGITS),
        "savingEstimated": any(move["savingEstimated"] for move in moves),
        "savingYearly": round(saving * HOURS_A_YEAR, 2),
        "evictionCost": round(fsum(proposal.eviction_cost for proposal in proposals.proposals), 3),
        "isFinished": proposals.is_finished,
        "seconds": round(seconds, 4),
        "steps": proposals.steps,
    }


_Fleet = Mapping[str, tuple[NodeClaim, Node | None]]


def _move(proposal: Proposal, fleet: _Fleet, inputs: Inputs) -> dict[str, Any]:
    sources = (fleet[name] for name in proposal.sources)
    removed = any(_is_estimated(claim, node, inputs) for claim, node in sources if node)
    return {
        "reason": proposal.reason.value,
        "sources": [_source(name, fleet, inputs) for name in proposal.sources],
        "replacements": plan_json(Plan(nodes=proposal.replacements))["nodes"],
        "destinations": dict(proposal.destinations),
        "savingHourly": round(proposal.saving_hourly_usd, _DIGITS),
        "savingEstimated": removed or any(node.estimated for node in proposal.replacements),
        "evictionCost": round(proposal.eviction_cost, 3),
        "worth": round(proposal.worth_usd, 6),
        "message": proposal.message,
    }


def _source(name: str, fleet: _Fleet, inputs: Inputs) -> dict[str, Any]:
    claim, node = fleet[name]
    return {
        "node": node.name if node else "",
        "nodeClaim": name,
        "nodePool": claim.nodepool,
        "instanceType": claim.instance_type,
        "zone": claim.zone,
        "capacityType": claim.capacity_type,
        "priceHourly": round(_price(claim, node, inputs), _DIGITS) if node else 0.0,
    }


def _price(claim: NodeClaim, node: Node, inputs: Inputs) -> float:
    """Return a node's price as the moves compare it, which NodeOverlays may have set."""
    overlays = overlays_of(inputs.snapshot, inputs.catalog, inputs.settings)
    pool = parsed_nodepools(inputs.snapshot.nodepools).get(claim.nodepool)
    return overlaid_price(claim, node, inputs.catalog, overlays, pool)


def _is_estimated(claim: NodeClaim, node: Node, inputs: Inputs) -> bool:
    offering = offering_of(claim, node, inputs.catalog)
    return offering is not None and offering.estimated


def _keepers(proposals: Proposals) -> dict[str, Blocker]:
    """Return the blocker of each node that stays: a rule, or the result of examining it for consolidation."""
    needed = {
        name: Blocker(_CONSOLIDATION, f"NodeClaim/{name}", reason)
        for name, reason in proposals.needed.items()
        if name not in proposals.blocked
    }
    return {**proposals.blocked, **needed}


def _kept(name: str, blocker: Blocker, fleet: _Fleet) -> dict[str, str]:
    node = fleet[name][1] if name in fleet else None
    return {
        "node": node.name if node else "",
        "nodeClaim": name,
        "rule": blocker.rule,
        "object": blocker.object,
        "message": blocker.message,
    }


def _budgets(inputs: Inputs) -> list[dict[str, Any]]:
    """Return how many nodes of each NodePool may be disrupted now, by reason. None means no limit."""
    pools = parsed_nodepools(inputs.snapshot.nodepools)
    about = inputs.ledger, (), inputs.snapshot, inputs.now
    return [
        {
            "nodePool": name,
            **{reason.value: remaining(pools[name], reason.budgeted, *about) for reason in Reason},
        }
        for name in sorted(pools)
    ]


def show_moves(to: Console, report: Mapping[str, Any], *, is_wide: bool = False) -> None:
    """Print moves. `report` is their JSON data. If `is_wide`, no row is left out."""
    most = len(report["moves"]) + len(report["kept"]) if is_wide else _MOST_ROWS
    _summary(to, report)
    if report["moves"]:
        to.print()
        to.print(_moves(report["moves"], most))
    if report["kept"]:
        to.print()
        to.print(_kept_table(report["kept"], most))


def _summary(to: Console, report: Mapping[str, Any]) -> None:
    before, saving = report["priceHourly"], report["savingHourly"]
    price = price_text(Price(before, report["priceEstimated"]))
    to.print(f"{counted(report['nodes'], 'node')} at {price}/hour", style="bold")
    if not report["moves"]:
        to.print(_no_moves(report["kept"], report["nodes"]))
    else:
        mark = estimate_mark(report["savingEstimated"])
        going = sum(len(move["sources"]) for move in report["moves"])
        coming = sum(len(move["replacements"]) for move in report["moves"])
        pods = sum(len(move["destinations"]) for move in report["moves"])
        to.print(
            f"{counted(len(report['moves']), 'move')}: {counted(going, 'node')} replaced by {coming},"
            f" {counted(pods, 'pod')} to restart"
        )
        yearly, share = report["savingYearly"], saving / before if before else 0.0
        amounts = f"{mark}${abs(saving):.4f}/hour, {mark}${abs(yearly):,.0f} a year ({abs(share):.0%})"
        to.print(
            f"{saves(saving, amounts)}, at an eviction cost of {report['evictionCost']:g}",
            style="green" if saving >= 0 else "yellow",
        )
    if report["priceEstimated"] or report["savingEstimated"]:
        to.print(ESTIMATE, style="dim")
    suffix = "" if report["isFinished"] else ", search not finished"
    to.print(f"decided in {report['seconds']:.2f} s, {counted(report['steps'], 'step')}{suffix}", style="dim")


def _no_moves(kept: Sequence[Mapping[str, str]], nodes: int) -> str:
    if not nodes:
        return "no moves: there are no nodes"
    if all(entry["rule"] != _CONSOLIDATION for entry in kept) and len(kept) >= nodes:
        return "no moves: something keeps each node from disruption"
    return "no moves: no set of nodes can be consolidated at a saving that is worth the disruption"


def _moves(moves: Iterable[Mapping[str, Any]], most: int) -> Table:
    table = plain_table("move", "reason", "removed", "launched", "pods", "eviction cost", "saves/hour")
    for number, move in enumerate(moves, start=1):
        if number > most:
            table.add_row("", "and more: see -o json")
            break
        table.add_row(
            str(number),
            _reason(move),
            _alike(move["sources"]),
            _alike(move["replacements"]) or Text(_nothing(move), style="dim"),
            str(len(move["destinations"])),
            f"{move['evictionCost']:g}",
            _saved(move),
        )
    return table


def _reason(move: Mapping[str, Any]) -> str:
    """Return the reason of a move, and for drift also what has drifted."""
    _, _, drift = move["message"].partition(": ")
    return f"{move['reason']}\n{drift}" if move["reason"] == Reason.DRIFTED and drift else str(move["reason"])


def _saved(move: Mapping[str, Any]) -> Text:
    saved = price_text(Price(move["savingHourly"], move["savingEstimated"]))
    saved.stylize("green" if move["savingHourly"] > 0 else "yellow")
    return saved


def _nothing(move: Mapping[str, Any]) -> str:
    return "existing nodes" if move["destinations"] else "none"


def _alike(nodes: Iterable[Mapping[str, Any]]) -> str:
    """Count nodes by type, capacity type and zone, one line each."""
    kinds = Counter(f"{node['instanceType'] or '?'} {node['capacityType']} {node['zone']}" for node in nodes)
    return "\n".join(f"{count} × {kind}" for kind, count in kinds.items())


def _kept_table(kept: Iterable[Mapping[str, str]], most: int) -> Table:
    """Return one row for each rule and object, the one that keeps the most nodes first."""
    table = plain_table("nodes", "kept", "why")
    by_reason: dict[tuple[str, str, str], list[str]] = {}
    for entry in kept:
        key = entry["rule"], entry["object"], entry["message"]
        by_reason.setdefault(key, []).append(entry["node"] or entry["nodeClaim"])
    ordered = sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))
    for (rule, on, message), names in ordered[:most]:
        more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        table.add_row(f"{len(names):,}", Text(names[0] + more, style="yellow"), f"{rule} ({on}): {message}")
    add_rest(table, sum(len(names) for _, names in ordered[most:]))
    return table
