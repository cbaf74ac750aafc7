"""Commands: actions on one claim. The unions are closed, so a command without an effect fails the type check."""

from __future__ import annotations

from dataclasses import dataclass
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
