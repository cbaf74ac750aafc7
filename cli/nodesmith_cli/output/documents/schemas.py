"""JSON schemas of what commands write and read, derived from the types in `documents`: the implementation of `schema`.

Editors complete and check a document by the schema that its member `$schema` names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.problems import did_you_mean
from nodesmith_cli.output.documents.actions import (
    Check,
    Connection,
    Disconnection,
    Doctor,
    Drain,
    Image,
    Migration,
    Removal,
    RemovalPlan,
    Rollback,
    Takeover,
    Version,
)
from nodesmith_cli.output.documents.clusters import Chaos, Faults, NodeReport, PodReport, Status, Top
from nodesmith_cli.output.documents.comparisons import Costs, Run, Shadow, Simulation
from nodesmith_cli.output.documents.plans import Decision, Moves, Plan
from nodesmith_cli.output.documents.savings import Savings
from nodesmith_cli.output.printing import schema_address

DOCUMENTS: Mapping[str, Any] = {
    "chaos": Chaos,
    "check": Check,
    "connection": Connection,
    "costs": Costs,
    "decision": Decision,
    "disconnection": Disconnection,
    "doctor": Doctor,
    "drain": Drain,
    "faults": Faults,
    "image": Image,
    "migration": Migration,
    "moves": Moves,
    "node": NodeReport,
    "plan": Plan,
    "pod": PodReport,
    "removal": Removal,
    "removal-plan": RemovalPlan,
    "rollback": Rollback,
    "run": Run,
    "savings": Savings,
    "shadow": Shadow,
    "simulation": Simulation,
    "status": Status,
    "takeover": Takeover,
    "top": Top,
    "version": Version,
}
"""The documents by the name of their schema."""
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN: Mapping[Any, Mapping[str, Any]] = {
    Any: {},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    type(None): {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
}
_OWN = {"type": "string", "format": "uri-reference", "description": "the address of this schema"}


def print_schema(name: str) -> None:
    """Print the schema of a kind of document, or the names of all. Raises Rejected for an unknown name."""
    if name:
        print(json.dumps(schema_of(name), indent=2))
        return
    width = max(map(len, DOCUMENTS))
    for document_name, kind in sorted(DOCUMENTS.items()):
        print(f"{document_name:<{width}}  {_first_line(kind)}")


def schema_of(name: str) -> dict[str, Any]:
    """Return the schema of a kind of document. Raises Rejected for an unknown name."""
    if name not in DOCUMENTS:
        known = ", ".join(sorted(DOCUMENTS))
        raise Rejected(f"schema {name!r}: is not known{did_you_mean(name, DOCUMENTS)}; known are {known}")
    kind, definitions = DOCUMENTS[name], dict[str, Any]()
    described = _object(kind, definitions)
    described["properties"] = {"$schema": _OWN, **described["properties"]}
    heading = {"$schema": DIALECT, "$id": schema_address(name), "title": f"{name} of nodesmith"}
    shared = {"$defs": dict(sorted(definitions.items()))} if definitions else {}
    return {**heading, **described, **shared}


def _first_line(kind: Any) -> str:
    return (kind.__doc__ or "").strip().partition("\n")[0]


def _object(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a TypedDict or a dataclass. Those that it mentions are added to the definitions."""
    hints = get_type_hints(kind, include_extras=True)
    optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
    if is_dataclass(kind):
        optional = {field.name for field in fields(kind) if field.metadata.get("optional")}
    return {
        "type": "object",
        "description": _first_line(kind),
        "properties": {name: _schema(hint, definitions) for name, hint in hints.items()},
        "required": [name for name in hints if name not in optional],
        "additionalProperties": False,
    }


def _schema(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type. Raises TypeError for one that JSON data cannot have."""
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    if is_typeddict(hint) or is_dataclass(hint):
        return _defined(hint, definitions)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return {"enum": [str(member) for member in hint]}
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return {**_schema(inside[0], definitions), "description": inside[1]}
    if origin is NotRequired:
        return _schema(inside[0], definitions)
    if origin is Literal:
        return {"enum": list(inside)}
    if origin in (Union, UnionType):
        return {"anyOf": [_schema(member, definitions) for member in inside]}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(inside[1], definitions)}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return {"type": "array", "items": _schema(inside[0], definitions)}
    raise TypeError(f"{hint!r}: JSON data has no such type")


def _defined(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    name = kind.__name__
    if name not in definitions:
        definitions[name] = {}  # so that a type may mention itself
        definitions[name] = _object(kind, definitions)
    return {"$ref": f"#/$defs/{name}"}
