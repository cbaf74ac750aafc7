"""`nodesmith explain node` for a node that no longer exists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from nodesmith_cli.views.explaining.gone import why_gone

ID = "20261121T120000Z-5f0c2a9b"
AT = "2026-11-21T12:00:00+00:00"
NODE = {"name": "claim-a", "node_name": "node-a.ec2.internal", "instance_id": "i-0a", "nodepool": "default"}
MOVE = {
    "reason": "Underutilized",
    "sources": ["claim-a"],
    "message": "moving 3 pods from 1 node into free capacity saves 0.0960 USD an hour",
}


def record(*moves: Mapping[str, Any], id_: str = ID, claims: Any = (NODE,), **fields: Any) -> dict[str, Any]:
    plan = {"nodes": [], "moves": list(moves)}
    return {"id": id_, "at": AT, "plan": plan, "inputs": {"ledger": {"claims": list(claims)}}, **fields}


@pytest.mark.parametrize("name", ["node-a.ec2.internal", "node-a", "claim-a", "i-0a"])
def test_the_move_that_ended_a_node_is_named_with_its_saving(name: str) -> None:
    ending = {**NODE, "cause": "Underutilized"}
    records = [record(claims=[]), record(id_="later", claims=[ending]), record(MOVE)]

    assert why_gone(name, records) == (
        f"it is gone: decision {ID} of 2026-11-21 12:00:00 UTC disrupted it: Underutilized: {MOVE['message']}"
    )


def test_a_move_that_came_to_nothing_is_not_the_reason() -> None:
    expired = record(claims=[{**NODE, "cause": "Expired"}])

    said = f"it is gone: decision {ID} of 2026-11-21 12:00:00 UTC saw it terminate because of Expired"
    assert why_gone("node-a", [expired, record(MOVE, id_="before")]) == said
    superseded = record(MOVE, superseded=True, claims=[{**NODE, "cause": "Underutilized"}])
    assert "because of Underutilized" in why_gone("node-a", [superseded])


def test_a_node_that_no_record_mentions_is_unknown() -> None:
    assert why_gone("node-b", [record(MOVE)]) == ""
    assert why_gone("node-a", [record()]).endswith("of 2026-11-21 12:00:00 UTC was the last to mention it")
