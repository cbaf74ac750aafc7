"""Commands: what is to be done about one claim. Closed unions; one without an effect fails the type check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.evictions import PodOnNode


@dataclass(frozen=True, slots=True)
class Nominate:
    """Tell kube-scheduler that pods (namespace/name) are to go onto the claim's Node; nothing of the claim changes."""

    claim: NodeClaim
    node: str
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClearNominations:
    """Tell kube-scheduler that pods (namespace/name) no longer go onto the claim's Node; the claim stays as it is."""

    claim: NodeClaim
    node: str
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Open:
    """Bring the claim's Node in line with it and let pods in; nothing of the claim changes."""

    claim: NodeClaim
    node: str


@dataclass(frozen=True, slots=True)
class Register:
    """Note that the claim's Node is open; the claim is as it is from then on."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class Initialize:
    """Mark the Node as ready for pods; the claim is as it will be once that is done."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class Wait:
    """Note why the claim does not advance."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End the claim; what was launched for it is terminated."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove what is left of a claim that was given up: instance, object, ledger entry, in this order."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class Dismiss:
    """End what is left of a user's own claim that was given up, but for the ledger entry: its object may still show."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class Show:
    """Make the NodeClaim object say what the ledger says."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class End:
    """Note that the claim is to go, and why; nothing has been done about it yet."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class Close:
    """Keep new pods and load balancers off the claim's Node, and mark both objects as being deleted.

    `node` is empty where there is no Node (any more). Nothing of the claim changes.
    """

    claim: NodeClaim
    node: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Ask for these pods to leave, as far as their budgets allow; nothing of the claim changes."""

    claim: NodeClaim
    pods: tuple[PodOnNode, ...]


@dataclass(frozen=True, slots=True)
class DeletePods:
    """End these pods within the claim's deadline, whatever protects them; nothing of the claim changes."""

    claim: NodeClaim
    pods: tuple[PodOnNode, ...]


@dataclass(frozen=True, slots=True)
class Advance:
    """Note that the claim's end has come a step further."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class TerminateInstances:
    """Terminate what runs for the claim; the claim is as it is from then on."""

    claim: NodeClaim
    instances: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """Let go of a claim whose instance is gone: Node, object, ledger entry, in this order.

    While finalizers of others hold the Node, the claim waits: it is as it is from then on. `node` is empty where it had
    none.
    """

    claim: NodeClaim
    node: str


Command: TypeAlias = (
    Nominate | ClearNominations | Open | Register | Initialize | Wait | GiveUp | Forget | Dismiss | Show | End
)
SingleEnding: TypeAlias = Close | Wait | Advance | TerminateInstances
"""Done for each claim by itself; instances are terminated for all claims in one call before that is noted of each."""
JointEnding: TypeAlias = Evict | DeletePods
"""Done for all claims in one call."""
TerminationCommand: TypeAlias = SingleEnding | JointEnding | Release
