"""NodeClaims as JSON data, for the ledger and for decision records.

Additions of later versions are ignored: unknown names, and items at the end of a list that represents a record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from nodesmith.model.apimachinery.frozen import FrozenMap, thaw
from nodesmith.model.apimachinery.requirements import Requirements
from nodesmith.model.apimachinery.resources import Resources
from nodesmith.model.karpenter.budgets import read_budget, write_budget
from nodesmith.model.karpenter.nodeclaims import REACHED_AT, NodeClaim, Phase, Transition
from nodesmith.model.karpenter.nodespec import (
    NodeClassRef,
    read_requirements,
    read_taints,
    write_requirements,
    write_taints,
)

_KEYS = {"nodepool_hash_version": "hash_version"}
"""Field → its name in items if it differs. Releases with one version for both hashes read it under this name."""


def to_item(claim: NodeClaim) -> dict[str, Any]:
    """Write a claim as JSON data without empty or unset fields. The result is identical for equal claims."""
    values = ((field.name, getattr(claim, field.name)) for field in fields(claim))
    return {
        _KEYS.get(name, name): _write(name, value) for name, value in values if value not in (None, "", ())
    }


def from_item(item: Mapping[str, Any]) -> NodeClaim:
    """Read what `to_item` wrote. Unknown names are ignored."""
    item = {"nodepool": "", **item}  # a claim that a user created may have none
    item |= {name: item[key] for name, key in _KEYS.items() if key in item}
    known = {field.name for field in fields(NodeClaim)} & item.keys()
    return NodeClaim(
        **{name: _READERS[name](item[name]) if name in _READERS else item[name] for name in known}
    )


def _write(name: str, value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat()
        case Requirements():
            return write_requirements(value)
        case NodeClassRef():
            return {"group": value.group, "kind": value.kind, "name": value.name}
        case tuple() if name == "budgets":
            return [write_budget(budget) for budget in value]
        case tuple() if name == "history":
            return [[step.phase, step.at.isoformat(), step.cause] for step in value]
        case tuple() if name in ("taints", "startup_taints"):
            return write_taints(value)
        case _:
            return thaw(value)


_TIMES = "created_at", "held_until", "phase_since", "deadline", "drifted_at", "instance_gone_at"
_READERS: Mapping[str, Callable[[Any], Any]] = {
    "inconsistency": lambda value: "" if value == "-" else value,  # older versions wrote "-" for none
    "nodeclass": lambda value: NodeClassRef(value["name"], value["group"], value["kind"]),
    "phase": Phase,
    "requirements": read_requirements,
    **dict.fromkeys(("nominated", "served", "security_groups", "replaced_by"), tuple),
    **dict.fromkeys(("taints", "startup_taints"), read_taints),
    **dict.fromkeys(("requests", "capacity", "allocatable"), Resources),
    **dict.fromkeys(("labels", "annotations", "attempts", "launch"), FrozenMap),
    "budgets": lambda budgets: tuple(map(read_budget, budgets)),
    "history": lambda steps: tuple(
        Transition(Phase(phase), datetime.fromisoformat(at), cause) for phase, at, cause, *_ in steps
    ),
    **dict.fromkeys((*_TIMES, *REACHED_AT.values()), datetime.fromisoformat),
}
