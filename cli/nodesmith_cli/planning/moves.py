"""Moves as JSON: which nodes would be removed and launched, in order, and why the others stay."""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum
from typing import Any

from nodesmith.decisions.budgets import remaining
from nodesmith.decisions.disruption.costs import overlaid_price
from nodesmith.decisions.disruption.proposals import Blocker, Proposal, Proposals
from nodesmith.decisions.provisioning import Inputs, Plan
from nodesmith.decisions.scheduling.offerings.overlays import overlays_of
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.ledger.moves import Reason
from nodesmith_cli.planning.report import plan_json
from nodesmith_formats.prices import HOURS_A_YEAR

_DIGITS = 9


def moves_json(found: Proposals, inputs: Inputs, seconds: float = 0.0) -> dict[str, Any]:
    """Return the result of a pass. Prices are USD an hour, `harm` is the eviction cost, `seconds` is CPU time.

    `moves` are in the order in which they would start. `kept` are nodes that stay, with the rule and its object.
    """
    there = {claim.name: (claim, inputs.snapshot.node_of(claim)) for claim in inputs.ledger.claims}
    price = fsum(_price(claim, node, inputs) for claim, node in there.values() if node)
    saving = fsum(proposal.saving_hourly_usd for proposal in found.proposals)
    return {
        "moves": [_move(proposal, there, inputs) for proposal in found.proposals],
        "kept": [_kept(name, blocker, there) for name, blocker in found.blocked.items()],
        "budgets": _budgets(inputs),
        "nodes": sum(node is not None for _, node in there.values()),
        "priceHourly": round(price, _DIGITS),
        "savingHourly": round(saving, _DIGITS),
        "savingYearly": round(saving * HOURS_A_YEAR, 2),
        "harm": round(fsum(proposal.harm for proposal in found.proposals), 3),
        "isFinished": found.is_finished,
        "seconds": round(seconds, 4),
        "steps": found.steps,
    }


_There = Mapping[str, tuple[NodeClaim, Node | None]]


def _move(proposal: Proposal, there: _There, inputs: Inputs) -> dict[str, Any]:
    return {
        "reason": proposal.reason.value,
        "sources": [_source(name, there, inputs) for name in proposal.sources],
        "replacements": plan_json(Plan(nodes=proposal.replacements))["nodes"],
        "destinations": dict(proposal.destinations),
        "savingHourly": round(proposal.saving_hourly_usd, _DIGITS),
        "harm": round(proposal.harm, 3),
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
