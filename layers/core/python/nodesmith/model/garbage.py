"""Garbage: resources in AWS or the cluster that are no longer needed, and the commands that clean them up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from nodesmith.model.karpenter.nodeclaims import NodeClaim


class Kind(StrEnum):
    """The kinds of AWS resources that nodesmith creates beside instances, in EC2's and IAM's terms."""

    LAUNCH_TEMPLATE = "launch-template"
    INSTANCE_PROFILE = "instance-profile"
    VOLUME = "volume"
    NETWORK_INTERFACE = "network-interface"


@dataclass(frozen=True, slots=True)
class Owned:
    """An AWS resource that nodesmith created for this cluster, as its tags or its path show.

    `id` identifies it for deletion; a profile's id is its name. `name` is a launch template's name, by which requests
    refer to it. `claim` is the NodeClaim that a volume or an interface was created for, empty if one call served
    several claims. `owner_uid` is the EC2NodeClass that a profile was created for. `created_at` is None for an
    interface, since EC2 does not report when it was created.
    """

    kind: Kind
    id: str
    name: str = ""
    created_at: datetime | None = None
    claim: str = ""
    owner_uid: str = ""


@dataclass(frozen=True, slots=True)
class Terminate:
    """Terminate running instances that have no claim. `why` is one word."""

    instances: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Add claims to the ledger for instances that pods may run on, so that they are drained like any other node.

    The write is conditional on the ledger still being at `version`.
    """

    version: int
    claims: tuple[NodeClaim, ...]


@dataclass(frozen=True, slots=True)
class End:
    """End a claim whose instance is gone. `claim` is its new state."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class Correct:
    """Update a claim with what EC2 now reports about its instance. `claim` is its new state."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class Release:
    """Remove a Node that has neither instance nor claim."""

    node: str
    provider_id: str


@dataclass(frozen=True, slots=True)
class Lift:
    """Remove the finalizer of a NodeClaim object that has neither instance nor claim, and delete the object."""

    nodeclaim: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete an AWS resource that is no longer needed."""

    owned: Owned


Garbage: TypeAlias = Terminate | TakeBack | End | Correct | Release | Lift | Remove
