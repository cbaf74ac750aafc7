"""The record of a search for moves, or of a validation: enough to explain it and to replay it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from nodesmith.decisions.disruption.proposals import Proposal
from nodesmith.decisions.disruption.search.search import look_again, propose
from nodesmith.decisions.provisioning.plan import Inputs, Plan
from nodesmith.decisions.provisioning.record import canonical, heading, inputs_of, node_item, plan_item
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.snapshot import Snapshot

DISRUPTION = "disruption"


def record(
    inputs: Inputs,
    proposals: Sequence[Proposal],
    snapshot_digest: str,
    *,
    looked_at: Mapping[str, datetime] | None = None,
    again: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the record of `proposals`, made by a search or by a validation.

    A search has `looked_at`, the time at which each claim was last examined; a validation has `again`, the ids of its
    moves.
    """
    times = {name: at.isoformat() for name, at in sorted((looked_at or {}).items())}
    return {
        **heading(DISRUPTION, inputs, snapshot_digest),
        "again": list(again),
        "lookedAt": times,
        "plan": moves_item(proposals, is_bought=bool(again)),
        "durationsMs": {},
    }


def replay(written: Mapping[str, Any], snapshot: Snapshot, catalog: Catalog) -> bytes:
    """Decide again, and return the result in the same canonical bytes as `canonical(written["plan"])`."""
    inputs = inputs_of(written, snapshot, catalog)
    if written["again"]:
        there = {move.id: move for move in inputs.ledger.moves}
        found = look_again([there[id_] for id_ in written["again"]], inputs)
        stand = [each for each in found.values() if isinstance(each, Proposal)]
        return canonical(moves_item(stand, is_bought=True))
    looked_at = {name: datetime.fromisoformat(at) for name, at in written["lookedAt"].items()}
    return canonical(moves_item(propose(inputs, looked_at).proposals, is_bought=False))


def moves_item(proposals: Sequence[Proposal], *, is_bought: bool) -> dict[str, Any]:
    """Return proposals as a plan with an additional key `moves`; `nodes` has what they buy once it is bought."""
    nodes = tuple(node for each in proposals for node in each.replacements) if is_bought else ()
    placed: dict[str, list[str]] = {}
    for pod, place in sorted(pair for each in proposals for pair in each.destinations.items()):
        placed.setdefault(place, []).append(pod)
    bought = {node.claim.name for each in proposals for node in each.replacements}
    there = {name: tuple(pods) for name, pods in placed.items() if name not in bought}
    return {**plan_item(Plan(nodes=nodes, placed=there)), "moves": [_move_item(each) for each in proposals]}


def _move_item(found: Proposal) -> dict[str, Any]:
    return {
        "reason": found.reason.value,
        "sources": list(found.sources),
        "replacements": [node_item(node) for node in found.replacements],
        "savingHourlyUsd": round(found.saving_hourly_usd, 6),
        "harm": round(found.harm, 6),
        "worthUsd": round(found.worth_usd, 6),
        "why": found.why,
    }
