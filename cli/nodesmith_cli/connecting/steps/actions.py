"""The actions of connect and disconnect, as values, and the rows that describe a connected cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias


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


AGENT = "eks-pod-identity-agent"


@dataclass(frozen=True, slots=True)
class SetMode:
    """Switch the cluster to access entries in addition to its ConfigMap, and wait until EKS has done so."""


@dataclass(frozen=True, slots=True)
class InstallAgent:
    """Install the add-on that provides Pod Identity credentials on nodes."""


@dataclass(frozen=True, slots=True)
class MakeSpotRole:
    """Create EC2 Spot's service-linked role, of which an account has one."""


@dataclass(frozen=True, slots=True)
class Tag:
    """Add the discovery tag to subnets and security groups."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MakeNodeRole:
    """Create the node role, with its policies."""

    name: str


@dataclass(frozen=True, slots=True)
class AttachPolicies:
    """Attach policies (ARNs) that the node role lacks."""

    role: str
    policies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MakeEntry:
    """Create an access entry."""

    principal: str
    kind: str
    username: str = ""


@dataclass(frozen=True, slots=True)
class ChangeEntry:
    """Set the username of an access entry, and remove its groups."""

    principal: str
    username: str


@dataclass(frozen=True, slots=True)
class ReplaceEntry:
    """Delete an access entry of the wrong type, and create it again."""

    principal: str
    kind: str
    username: str = ""


@dataclass(frozen=True, slots=True)
class Associate:
    """Associate the forwarder's service account with its role. `id` is the association to change, or empty."""

    role: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Register:
    """Write the registration. With `is_new`, fail if another run has written a different one."""

    text: str
    is_new: bool
    observed: bool = False


@dataclass(frozen=True, slots=True)
class Unregister:
    """Remove the registration of a cluster that was only observed and is served from now on."""


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply objects in this order."""

    manifests: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class RestartForwarder:
    """Replace the forwarder's pods, since EKS injects credentials into new pods only."""


Action: TypeAlias = (
    SetMode
    | InstallAgent
    | MakeSpotRole
    | Tag
    | MakeNodeRole
    | AttachPolicies
    | MakeEntry
    | ChangeEntry
    | ReplaceEntry
    | Associate
    | Register
    | Unregister
    | Apply
    | RestartForwarder
)


class ResourceState(StrEnum):
    """The state of a resource, and what happens to it."""

    PRESENT = "present"
    MADE = "will be made"
    CHANGED = "will be changed"
    REMOVED = "will be removed"
    KEPT = "stays"


@dataclass(frozen=True, slots=True)
class Row:
    """One resource of a connected cluster."""

    object: str
    standing: ResourceState
    detail: str = ""
    action: Action | RemoveAction | None = None


def present(what: str, detail: str = "") -> Row:
    """Return the row of a resource that is correct."""
    return Row(what, ResourceState.PRESENT, detail)


def made(what: str, detail: str, action: Action) -> Row:
    """Return the row of a missing resource, with the action that creates it."""
    return Row(what, ResourceState.MADE, detail, action)


def changed(what: str, detail: str, action: Action) -> Row:
    """Return the row of a resource that differs, with the action that changes it."""
    return Row(what, ResourceState.CHANGED, detail, action)
