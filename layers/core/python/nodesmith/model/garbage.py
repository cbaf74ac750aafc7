"""Garbage: what AWS or the cluster still holds and nobody needs, and what is to be done about it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from nodesmith.model.karpenter.nodeclaims import NodeClaim


class Kind(StrEnum):
    """What we make beside instances, in EC2's and IAM's words."""

    LAUNCH_TEMPLATE = "launch-template"
    INSTANCE_PROFILE = "instance-profile"
    VOLUME = "volume"
    NETWORK_INTERFACE = "network-interface"


@dataclass(frozen=True, slots=True)
class Owned:
    """One thing that AWS holds and that was made for this cluster, by us: its tags, or its path, say so.

    `id` is what it is deleted by (a profile's is its name); `name` is a launch template's, by which requests know it.
    `claim` is the NodeClaim that a volume or an interface was made for, empty where one call served several claims;
    `owner_uid` the EC2NodeClass that a profile was made for. EC2 does not say when an interface was made.
    """

    kind: Kind
    id: str
    name: str = ""
    created_at: datetime | None = None
    claim: str = ""
    owner_uid: str = ""


@dataclass(frozen=True, slots=True)
class Terminate:
    """End living instances that no claim stands for. `why` is one word."""

    instances: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Enter claims into the ledger for instances that pods may run on, so that they end as every node does.

    On condition that the ledger is still at `version`.
    """

    version: int
    claims: tuple[NodeClaim, ...]


@dataclass(frozen=True, slots=True)
class End:
    """End a claim whose instance is gone; the claim is as it is from then on."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class Correct:
    """Write down what EC2 shows of a claim's instance by now; the claim is as it is from then on."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class Release:
    """Let go of a Node without instance and claim."""

    node: str
    provider_id: str


@dataclass(frozen=True, slots=True)
class Lift:
    """Let go of a NodeClaim object without instance and claim: the finalizer is lifted, the object deleted."""

    nodeclaim: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete what AWS holds for nothing."""

    owned: Owned


Garbage: TypeAlias = Terminate | TakeBack | End | Correct | Release | Lift | Remove
