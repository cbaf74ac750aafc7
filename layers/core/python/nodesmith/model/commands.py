"""Commands: actions on one claim, and those of garbage collection on what AWS or the cluster no longer need.

The unions are closed, so a command without an effect fails the type check.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.evictions import PodOnNode


@dataclass(frozen=True, slots=True)
class Nominate:
    """Nominate the claim's Node for pods (namespace/name), so that kube-scheduler binds them there.

    The claim does not change.
    """

    claim: NodeClaim
    node: str
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClearNominations:
    """Remove the nomination of the claim's Node from pods (namespace/name). The claim does not change."""

    claim: NodeClaim
    node: str
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Open:
    """Bring the claim's Node in line with the claim and admit pods. The claim does not change."""

    claim: NodeClaim
    node: str


@dataclass(frozen=True, slots=True)
class Register:
    """Record that the claim's Node is open. `claim` is its new state."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class Initialize:
    """Mark the Node as ready for pods. `claim` is its state after that."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class Wait:
    """Record why the claim does not advance."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Give up the claim. Any instance that was launched for it is terminated."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove what is left of a claim that was given up: instance, object and ledger entry, in this order."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Remove what is left of a user's claim that was given up, except its ledger entry: its object may still exist."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class Show:
    """Write the claim's state in the ledger to its NodeClaim object."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class End:
    """Record that the claim must end, and why. Nothing else is done yet."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class Prepare:
    """Close the Node of a claim for warm capacity to pods but DaemonSets', and record it. `claim` is its new state."""

    claim: NodeClaim
    node: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Record that the claim's instance is to be stopped, unless that is recorded, and ask EC2 to stop it."""

    claim: NodeClaim
    is_new: bool


@dataclass(frozen=True, slots=True)
class Shelve:
    """Delete the Node of a claim whose instance is stopped, then record it. `node` is empty if there is none."""

    claim: NodeClaim
    node: str


@dataclass(frozen=True, slots=True)
class Close:
    """Keep new pods and load balancers off the claim's Node, and mark both objects as being deleted.

    `node` is empty if there is no Node, or no longer one. The claim does not change.
    """

    claim: NodeClaim
    node: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict these pods as far as their budgets allow. The claim does not change."""

    claim: NodeClaim
    pods: tuple[PodOnNode, ...]


@dataclass(frozen=True, slots=True)
class DeletePods:
    """Delete these pods within the claim's deadline, regardless of what protects them. The claim does not change."""

    claim: NodeClaim
    pods: tuple[PodOnNode, ...]


@dataclass(frozen=True, slots=True)
class Advance:
    """Record that the claim's end has advanced by a step."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class TerminateInstances:
    """Terminate the claim's instances. `claim` is its new state."""

    claim: NodeClaim
    instances: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """Remove a claim whose instance is gone: its Node, its object and its ledger entry, in this order.

    While foreign finalizers hold the Node, the claim waits; `claim` is its state meanwhile. `node` is empty if the
    claim had none.
    """

    claim: NodeClaim
    node: str


WarmCommand: TypeAlias = Prepare | Stop | Shelve
Command: TypeAlias = (
    Nominate
    | ClearNominations
    | Open
    | Register
    | Initialize
    | Wait
    | GiveUp
    | Forget
    | Dismiss
    | Show
    | End
    | WarmCommand
)
SingleEnding: TypeAlias = Close | Wait | Advance | TerminateInstances
"""Executed for each claim alone. Instances of all claims are terminated in one call before each claim records it."""
JointEnding: TypeAlias = Evict | DeletePods
"""Executed for all claims together."""
TerminationCommand: TypeAlias = SingleEnding | JointEnding | Release


class OwnedKind(StrEnum):
    """The kinds of AWS resources other than instances that nodesmith creates, in EC2's and IAM's terms."""

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

    kind: OwnedKind
    id: str
    name: str = ""
    created_at: datetime | None = None
    claim: str = ""
    owner_uid: str = ""


@dataclass(frozen=True, slots=True)
class Terminate:
    """Terminate running instances that have no claim. `reason` is one word."""

    instances: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Add claims to the ledger for instances that pods may run on, so that they are drained like any other node.

    The write is conditional on the ledger still being at `version`.
    """

    version: int
    claims: tuple[NodeClaim, ...]


@dataclass(frozen=True, slots=True)
class EndClaim:
    """End a claim whose instance is gone. `claim` is its new state."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class Correct:
    """Update a claim with what EC2 now reports about its instance. `claim` is its new state."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class ReleaseNode:
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


Garbage: TypeAlias = Terminate | TakeBack | EndClaim | Correct | ReleaseNode | Lift | Remove
