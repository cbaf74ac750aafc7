"""What connect can do, each action a value; and what a served cluster has, a row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from nodesmith_cli.connecting.removing import RemoveAction

AGENT = "eks-pod-identity-agent"


@dataclass(frozen=True, slots=True)
class SetMode:
    """Switch the cluster to access entries besides its ConfigMap, and wait until that is done."""


@dataclass(frozen=True, slots=True)
class InstallAgent:
    """Install the add-on that hands out Pod Identity's credentials on nodes."""


@dataclass(frozen=True, slots=True)
class MakeSpotRole:
    """Make EC2 Spot's service-linked role, once per account."""


@dataclass(frozen=True, slots=True)
class Tag:
    """Write the discovery tag onto subnets and security groups."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MakeNodeRole:
    """Make the role for nodes, with its policies."""

    name: str


@dataclass(frozen=True, slots=True)
class AttachPolicies:
    """Attach policies (ARNs) that the role for nodes lacks."""

    role: str
    policies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MakeEntry:
    """Make an access entry."""

    principal: str
    kind: str
    username: str = ""


@dataclass(frozen=True, slots=True)
class ChangeEntry:
    """Give an access entry its username, and no groups."""

    principal: str
    username: str


@dataclass(frozen=True, slots=True)
class ReplaceEntry:
    """Delete an access entry of another type, and make it again."""

    principal: str
    kind: str
    username: str = ""


@dataclass(frozen=True, slots=True)
class Associate:
    """Give the forwarder's service account its role; `id` is that of the association to change, or empty."""

    role: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Register:
    """Write the registration. `is_new` fails where somebody has written one meanwhile."""

    text: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply objects, in this order."""

    manifests: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class RestartForwarder:
    """Replace the forwarder's pods: credentials are put into new pods only."""


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
    | Apply
    | RestartForwarder
)


class Standing(StrEnum):
    """How something stands, and what becomes of it."""

    PRESENT = "present"
    MADE = "will be made"
    CHANGED = "will be changed"
    REMOVED = "will be removed"
    KEPT = "stays"


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that a served cluster has."""

    object: str
    standing: Standing
    detail: str = ""
    action: Action | RemoveAction | None = None


def present(what: str, detail: str = "") -> Row:
    """Say that something is as it is to be."""
    return Row(what, Standing.PRESENT, detail)


def made(what: str, detail: str, action: Action) -> Row:
    """Say that something is missing, and what makes it."""
    return Row(what, Standing.MADE, detail, action)


def changed(what: str, detail: str, action: Action) -> Row:
    """Say that something is not as it is to be, and what changes it."""
    return Row(what, Standing.CHANGED, detail, action)
