"""The record of a decision: enough to explain it to a person and to repeat it with identical bytes.

A record is JSON. `inputs` holds the ledger and settings as they were and names snapshot and catalogue by their content;
`plan` is the decision. `plan` depends on nothing but the inputs, so `replay` returns the same bytes on any machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from nodesmith.decisions.provisioning.decide import decide
from nodesmith.decisions.provisioning.plan import Inputs, Plan, PlannedNode, Room, Unplaced
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ledger.items import claim_to_item, ledger_item, read_ledger
from nodesmith.model.nodeclasses.nodeconfiguration import NodeSettings
from nodesmith.model.snapshot import Snapshot

FORMAT, VERSION = "nodesmith-decision", 1
SCHEMA = "https://nodesmith.dev/schemas/decision.schema.json"
"""The JSON schema of a record, for editors; no reader needs it."""
_ID_DIGITS = 8


def decision_id(snapshot_digest: str, ledger_version: int, now: datetime) -> str:
    """Return the id of a decision, derived from its time and its inputs; ids sort by time."""
    content = hashlib.sha256(f"{snapshot_digest}/{ledger_version}/{now.isoformat()}".encode()).hexdigest()
    return f"{now:%Y%m%dT%H%M%SZ}-{content[:_ID_DIGITS]}"


def record(
    inputs: Inputs, plan: Plan, snapshot_digest: str, durations_ms: Mapping[str, float]
) -> dict[str, Any]:
    """Return the record of a decision. `durations_ms` are informative; a replay leaves them out.

    `superseded` becomes true if the decision had no effect because another run decided first.
    """
    return {
        **heading("provisioning", inputs, snapshot_digest),
        "plan": plan_item(plan),
        "durationsMs": {name: round(ms, 1) for name, ms in durations_ms.items()},
    }


def heading(concern: str, inputs: Inputs, snapshot_digest: str) -> dict[str, Any]:
    """Return who decided, when, and from which inputs."""
    stated = {
        "snapshot": {"sha256": snapshot_digest, "takenAt": inputs.snapshot.taken_at.isoformat()},
        "catalog": {"region": inputs.catalog.region, "ref": inputs.catalog.ref},
        "ledger": ledger_item(inputs.ledger),
        "settings": asdict(inputs.settings),
        **({} if inputs.tried is None else {"tried": list(inputs.tried)}),
    }
    return {
        "$schema": SCHEMA,
        "format": FORMAT,
        "version": VERSION,
        "id": inputs.decision,
        "concern": concern,
        "cluster": inputs.snapshot.cluster,
        "at": inputs.now.isoformat(),
        "superseded": False,
        "inputsHash": hashlib.sha256(canonical(stated)).hexdigest(),
        "inputs": stated,
    }


def replay(written: Mapping[str, Any], snapshot: Snapshot, catalog: Catalog) -> bytes:
    """Repeat the decision; return its plan in the same canonical bytes as `canonical(written["plan"])`."""
    return canonical(plan_item(decide(inputs_of(written, snapshot, catalog))))


def inputs_of(written: Mapping[str, Any], snapshot: Snapshot, catalog: Catalog) -> Inputs:
    """Return the inputs of a recorded decision. `snapshot` and `catalog` are those that the record names."""
    tried = written["inputs"].get("tried")
    return Inputs(
        snapshot,
        read_ledger(written["inputs"]["ledger"]),
        catalog,
        NodeSettings.of(written["inputs"]["settings"]),
        datetime.fromisoformat(written["at"]),
        written["id"],
        None if tried is None else tuple(tried),
    )


def canonical(value: object) -> bytes:
    """Return JSON data as canonical bytes, which are equal for equal data."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def plan_item(plan: Plan) -> dict[str, Any]:
    """Return a plan as JSON data."""
    return {
        "nodes": [node_item(node) for node in plan.nodes],
        "placed": {name: list(pods) for name, pods in sorted((plan.placed or {}).items())},
        "waiting": dict(sorted((plan.waiting or {}).items())),
        "unplaced": [_unplaced_item(u) for u in plan.unplaced],
        "ignored": [_unplaced_item(u) for u in plan.ignored],
        "obstacles": dict(sorted((plan.obstacles or {}).items())),
        "problems": list(plan.problems),
        "priceHourlyUsd": round(plan.price_hourly_usd, 6),
        "boundHourlyUsd": round(plan.bound_hourly_usd, 6),
        "steps": plan.steps,
        **_surcharged(plan),
        **({"starts": [claim_to_item(claim) for claim in plan.starts]} if plan.starts else {}),
        **({"rooms": [room_item(room) for room in plan.rooms]} if plan.rooms else {}),
        **({"forthcoming": [asdict(each) for each in plan.forthcoming]} if plan.forthcoming else {}),
    }


def room_item(room: Room) -> dict[str, Any]:
    """Return a buffer's room as JSON data; counts of instances only if there are any."""
    return {
        name: value for name, value in asdict(room).items() if value or name not in ("stopped", "warming")
    }


def _surcharged(plan: Plan) -> dict[str, Any]:
    """Return what surcharges and the objective of few nodes add to a plan; empty without them."""
    surcharge = {
        "surchargeHourlyUsd": round(plan.surcharge_hourly_usd, 6),
        "costBoundHourlyUsd": round(plan.cost_bound_hourly_usd, 6),
    }
    fewest = {"fewestNodes": plan.fewest} if plan.fewest else {}
    return {**(surcharge if plan.surcharge_hourly_usd else {}), **fewest}


def _unplaced_item(unplaced: Unplaced) -> dict[str, Any]:
    why = unplaced.why
    return {
        "pods": list(unplaced.pods),
        "reason": why.text,
        "nodePool": why.nodepool,
        "blocking": why.blocking,
        "fix": why.fix,
    }


def node_item(node: PlannedNode) -> dict[str, Any]:
    """Return a node to buy as JSON data."""
    commitment = node.request.cheapest.commitment
    is_listed = node.request.is_overlaid or bool(commitment)
    return {
        "claim": claim_to_item(node.claim),
        "launch": node.request.to_item(),
        "templates": [template.name for template in node.templates],
        "priceHourlyUsd": node.price_hourly_usd,
        **({"listPriceHourlyUsd": node.claim.price_hourly_usd} if is_listed else {}),
        **({"commitment": commitment} if commitment else {}),
        **({"surchargeHourlyUsd": node.surcharge_hourly_usd} if node.surcharge_hourly_usd else {}),
        "estimated": node.estimated,
    }
