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
from nodesmith_cli.planning.table import plain_table
from nodesmith_formats.prices import HOURS_A_YEAR, Price, estimate_mark
from nodesmith_formats.wording import counted

_DIGITS = 9
_CONSOLIDATION = "Consolidation"
"""The rule that consolidation has examined a node, and found nothing cheaper for its pods."""
_MOST_ROWS = 40


def moves_json(found: Proposals, inputs: Inputs, seconds: float = 0.0) -> dict[str, Any]:
    """Return the result of a pass. Prices are USD an hour, `evictionCost` is Karpenter's, `seconds` is CPU time.

    `moves` are in the order in which they would start. `kept` are nodes that stay, with the rule and its object.
    """
    there = {claim.name: (claim, inputs.snapshot.node_of(claim)) for claim in inputs.ledger.claims}
    price = fsum(_price(claim, node, inputs) for claim, node in there.values() if node)
    moves = [_move(proposal, there, inputs) for proposal in found.proposals]
    saving = fsum(proposal.saving_hourly_usd for proposal in found.proposals)
    return {
        "moves": moves,
        "kept": [_kept(name, blocker, there) for name, blocker in _keepers(found).items()],
        "budgets": _budgets(inputs),
        "nodes": sum(node is not None for _, node in there.values()),
        "priceHourly": round(price, _DIGITS),
        "priceEstimated": any(_is_estimated(claim, node, inputs) for claim, node in there.values() if node),
        "savingHourly": round(saving, _DIGITS),
        "savingEstimated": any(move["savingEstimated"] for move in moves),
        "savingYearly": round(saving * HOURS_A_YEAR, 2),
        "evictionCost": round(fsum(proposal.eviction_cost for proposal in found.proposals), 3),
        "isFinished": found.is_finished,
        "seconds": round(seconds, 4),
        "steps": found.steps,
    }


_There = Mapping[str, tuple[NodeClaim, Node | None]]


def _move(proposal: Proposal, there: _There, inputs: Inputs) -> dict[str, Any]:
    sources = (there[name] for name in proposal.sources)
    removed = any(_is_estimated(claim, node, inputs) for claim, node in sources if node)
    return {
        "reason": proposal.reason.value,
        "sources": [_source(name, there, inputs) for name in proposal.sources],
        "replacements": plan_json(Plan(nodes=proposal.replacements))["nodes"],
        "destinations": dict(proposal.destinations),
        "savingHourly": round(proposal.saving_hourly_usd, _DIGITS),
        "savingEstimated": removed or any(node.estimated for node in proposal.replacements),
        "evictionCost": round(proposal.eviction_cost, 3),
        "worth": round(proposal.worth_usd, 6),
        "why": proposal.why,
    }


def _source(name: str, there: _There, inputs: Inputs) -> dict[str, Any]:
    claim, node = there[name]
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


def _keepers(found: Proposals) -> dict[str, Blocker]:
    """Return what keeps each node: a rule, or what consolidation found when it examined the node."""
    needed = {
        name: Blocker(_CONSOLIDATION, f"NodeClaim/{name}", why)
        for name, why in found.needed.items()
        if name not in found.blocked
    }
    return {**found.blocked, **needed}


def _kept(name: str, blocker: Blocker, there: _There) -> dict[str, str]:
    node = there[name][1] if name in there else None
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


def show_moves(to: Console, written: Mapping[str, Any], *, is_wide: bool = False) -> None:
    """Print moves. `written` is their JSON data. If `is_wide`, no row is left out."""
    most = len(written["moves"]) + len(written["kept"]) if is_wide else _MOST_ROWS
    _summary(to, written)
    if written["moves"]:
        to.print()
        to.print(_moves(written["moves"], most))
    if written["kept"]:
        to.print()
        to.print(_kept_table(written["kept"], most))


def _summary(to: Console, written: Mapping[str, Any]) -> None:
    before, saving = written["priceHourly"], written["savingHourly"]
    price = price_text(Price(before, written["priceEstimated"]))
    to.print(f"{counted(written['nodes'], 'node')} at {price}/hour", style="bold")
    if not written["moves"]:
        to.print(_no_moves(written["kept"], written["nodes"]))
    else:
        mark = estimate_mark(written["savingEstimated"])
        going = sum(len(move["sources"]) for move in written["moves"])
        coming = sum(len(move["replacements"]) for move in written["moves"])
        pods = sum(len(move["destinations"]) for move in written["moves"])
        to.print(
            f"{counted(len(written['moves']), 'move')}: {counted(going, 'node')} replaced by {coming},"
            f" {counted(pods, 'pod')} to restart"
        )
        to.print(
            f"saves {mark}${saving:.4f}/hour, {mark}${written['savingYearly']:,.0f} a year"
            f" ({saving / before if before else 0:.0%}), at an eviction cost of {written['evictionCost']:g}",
            style="green",
        )
    if written["priceEstimated"] or written["savingEstimated"]:
        to.print(ESTIMATE, style="dim")
    rest = "" if written["isFinished"] else ", search not finished"
    to.print(f"decided in {written['seconds']:.2f} s, {counted(written['steps'], 'step')}{rest}", style="dim")


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
    """Return the reason of a move, for drift with what has drifted."""
    _, _, drift = move["why"].partition(": ")
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
    found: dict[tuple[str, str, str], list[str]] = {}
    for entry in kept:
        key = entry["rule"], entry["object"], entry["message"]
        found.setdefault(key, []).append(entry["node"] or entry["nodeClaim"])
    ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    for (rule, on, message), names in ordered[:most]:
        more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        table.add_row(f"{len(names):,}", Text(names[0] + more, style="yellow"), f"{rule} ({on}): {message}")
    if len(ordered) > most:
        table.add_row(f"and {sum(len(names) for _, names in ordered[most:]):,} more: see -o json")
    return table
