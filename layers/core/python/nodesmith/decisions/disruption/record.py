"""The record of a look for moves, or of the second look at one: enough to explain it, and to look again at the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from nodesmith.decisions.disruption.proposals import Proposal
from nodesmith.decisions.disruption.search import look_again, propose
from nodesmith.decisions.provisioning.decide import Inputs
from nodesmith.decisions.provisioning.record import canonical, heading, inputs_of, node_item
from nodesmith.model.catalog import Catalog
from nodesmith.model.snapshot import Snapshot

DISRUPTION = "disruption"


def record(
    inputs: Inputs,
    proposals: Sequence[Proposal],
    snapshot_digest: str,
    *,
    looked_at: Mapping[str, datetime] | None = None,
    move: str = "",
) -> dict[str, Any]:
    """Write down what was proposed: of `move` again, where its id is given, or of all nodes as last `looked_at`."""
    times = {name: at.isoformat() for name, at in sorted((looked_at or {}).items())}
    return {
        **heading(DISRUPTION, inputs, snapshot_digest),
        "move": move,
        "lookedAt": times,
        "plan": proposals_item(proposals),
    }


def replay(written: Mapping[str, Any], snapshot: Snapshot, catalog: Catalog) -> bytes:
    """Look again; give what comes of it in the same canonical bytes as `canonical(written["plan"])`."""
    inputs = inputs_of(written, snapshot, catalog)
    if written["move"]:
        move = next(each for each in inputs.ledger.moves if each.id == written["move"])
        found = look_again(move, inputs)
        return canonical(proposals_item([found] if isinstance(found, Proposal) else []))
    looked_at = {name: datetime.fromisoformat(at) for name, at in written["lookedAt"].items()}
    return canonical(proposals_item(propose(inputs, looked_at).proposals))


def proposals_item(proposals: Sequence[Proposal]) -> dict[str, Any]:
    """Write proposals as JSON data. `nodes` are all that would be bought."""
    return {
        "nodes": [node_item(node) for each in proposals for node in each.replacements],
        "proposals": [
            {
                "reason": each.reason.value,
                "sources": list(each.sources),
                "replacements": [node.claim.name for node in each.replacements],
                "destinations": dict(sorted(each.destinations.items())),
                "savingHourlyUsd": round(each.saving_hourly_usd, 6),
                "harm": round(each.harm, 6),
                "worthUsd": round(each.worth_usd, 6),
                "why": each.why,
            }
            for each in proposals
        ],
    }
