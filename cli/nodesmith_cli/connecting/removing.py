"""The actions of disconnect, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class DeleteRegistration:
    """Delete the registration, and wait until no function uses it any more."""


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
    """Remove the add-on that connect installed."""


@dataclass(frozen=True, slots=True)
class Untag:
    """Remove the discovery tags that connect added."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteTemplates:
    """Delete launch templates, by id."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteProfiles:
    """Delete instance profiles, given as names with the roles in them."""

    profiles: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class DeleteObjects:
    """Delete the cluster's objects in the bucket, in all versions."""


@dataclass(frozen=True, slots=True)
class DeleteItems:
    """Delete the cluster's items in the table."""


@dataclass(frozen=True, slots=True)
class DeleteNodeRole:
    """Delete the node role that connect created, after detaching `policies`."""

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
