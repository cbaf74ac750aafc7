"""What disconnect can take away, each action a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class DeleteRegistration:
    """Delete the registration, and wait until no function goes by it any more."""


@dataclass(frozen=True, slots=True)
class DeleteEntries:
    """Delete access entries."""

    principals: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteAssociation:
    """Delete the Pod Identity association of the forwarder."""

    id: str


@dataclass(frozen=True, slots=True)
class DeleteAgent:
    """Remove the add-on that connect has installed."""


@dataclass(frozen=True, slots=True)
class Untag:
    """Take away the discovery tags that connect has written."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteTemplates:
    """Delete launch templates, by id."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteProfiles:
    """Delete instance profiles, by name, each with the roles in it."""

    profiles: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class DeleteObjects:
    """Delete the cluster's objects in the bucket, in all versions."""


@dataclass(frozen=True, slots=True)
class DeleteItems:
    """Delete the cluster's partition of the table."""


@dataclass(frozen=True, slots=True)
class DeleteNodeRole:
    """Delete the role for nodes that connect has made; `policies` are attached to it."""

    name: str
    policies: tuple[str, ...]


RemoveAction: TypeAlias = (
    DeleteRegistration
    | DeleteEntries
    | DeleteAssociation
    | DeleteAgent
    | Untag
    | DeleteTemplates
    | DeleteProfiles
    | DeleteObjects
    | DeleteItems
    | DeleteNodeRole
)
