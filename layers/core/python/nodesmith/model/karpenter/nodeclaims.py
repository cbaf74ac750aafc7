"""NodeClaim: what nodesmith knows of one node that it bought or is about to buy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from nodesmith.model.apimachinery.frozen import NO_ITEMS, FrozenMap
from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS, Requirements
from nodesmith.model.apimachinery.resources import NOTHING, Resources
from nodesmith.model.apimachinery.taints import Taint
from nodesmith.model.hashes.statichashes import (
    FIRST_HASH_VERSION,
    NODECLASS_HASH_VERSION,
    NODEPOOL_HASH_VERSION,
)
from nodesmith.model.karpenter.budgets import Budget
from nodesmith.model.karpenter.nodespec import NodeClassRef

BY_HAND = "ByHand"
NOT_REGISTERED = "NodeNotFound", "Node not registered with cluster"
"""What a claim waits for from its launch on, and in a sentence."""
TAGS_DUE = "tagsDue"
"""In a claim's launch data, once its instance is known: the tags that are still to be written on it."""
DEADLINE_PASSED = "TerminationGracePeriodElapsed"
"""Why a step of an end was taken though something was left to do."""


class Phase(StrEnum):
    """Where a claim stands. It only ever moves down this list, along `SUCCESSORS`."""

    PENDING = "Pending"
    """The intent to buy is committed; an instance may or may not exist."""
    LAUNCHED = "Launched"
    REGISTERED = "Registered"
    INITIALIZED = "Initialized"
    TERMINATING = "Terminating"
    """It is to go, whoever asked: no new pods come, those that are there are evicted."""
    DRAINED = "Drained"
    """No pod is left that would need to go; its volumes are let go of."""
    DETACHED = "Detached"
    """Nothing is attached any more."""
    TERMINATED = "Terminated"
    """EC2 has been asked to terminate the instance. Once that is gone, and its Node, so is the claim."""
    GIVEN_UP = "GivenUp"
    """It never became a Node, or only in name: instance, object and entry go without a drain."""


ENDING = frozenset({Phase.TERMINATING, Phase.DRAINED, Phase.DETACHED, Phase.TERMINATED})
"""The phases that termination sees to. None of them leads back."""

SUCCESSORS: Mapping[Phase, frozenset[Phase]] = {
    Phase.PENDING: frozenset({Phase.LAUNCHED, Phase.TERMINATING, Phase.GIVEN_UP}),
    Phase.LAUNCHED: frozenset({Phase.REGISTERED, Phase.TERMINATING, Phase.GIVEN_UP}),
    Phase.REGISTERED: frozenset({Phase.INITIALIZED, Phase.TERMINATING}),
    Phase.INITIALIZED: frozenset({Phase.TERMINATING}),
    Phase.TERMINATING: frozenset({Phase.DRAINED}),
    Phase.DRAINED: frozenset({Phase.DETACHED}),
    Phase.DETACHED: frozenset({Phase.TERMINATED}),
    Phase.TERMINATED: frozenset(),
    Phase.GIVEN_UP: frozenset(),
}
"""What may follow what; after the last two a claim is forgotten."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of a claim's life: the phase it came to, when, and why where there is more to say than its name."""

    phase: Phase
    at: datetime
    cause: str = ""


@dataclass(frozen=True, slots=True)
class NodeClaim:
    """One claim as the ledger holds it. Times are aware; `launch` is JSON data of the effects' own."""

    name: str
    nodepool: str
    nodeclass: NodeClassRef
    created_at: datetime
    phase: Phase
    phase_since: datetime
    nodepool_uid: str = ""
    provisioner: str = ""
    """The Provisioner that its NodePool is read from, whose uid `nodepool_uid` then is."""
    nodepool_hash: str = ""
    nodeclass_hash: str = ""
    nodepool_hash_version: str = FIRST_HASH_VERSION
    nodeclass_hash_version: str = FIRST_HASH_VERSION
    """Of the rules by which the hashes were made."""
    requirements: Requirements = NO_REQUIREMENTS
    labels: Mapping[str, str] = NO_ITEMS
    annotations: Mapping[str, str] = NO_ITEMS
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    requests: Resources = NOTHING
    expire_after: str | None = None
    termination_grace_period: str | None = None
    budgets: tuple[Budget, ...] = ()
    """The NodePool's, as they were at the purchase: they hold for its end, too."""
    launch: Mapping[str, object] = FrozenMap()
    instance_id: str = ""
    provider_id: str = ""
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    image_id: str = ""
    subnet_id: str = ""
    security_groups: tuple[str, ...] = ()
    """Ids of those that its NodeClass selected at the purchase."""
    price_hourly_usd: float = 0.0
    private_dns_name: str = ""
    """As EC2 tells it; empty where that is not known yet, or EC2 gives none."""
    node_name: str = ""
    capacity: Resources = NOTHING
    allocatable: Resources = NOTHING
    nominated: tuple[str, ...] = ()
    """namespace/name of the pods that this claim was bought for."""
    attempts: Mapping[str, int] = FrozenMap()
    """By workload of those pods, which purchase in a row it is without one of them having come to run, from 1."""
    served: tuple[str, ...] = ()
    """Of these workloads such as had more than one attempt, and pods that stayed on its Node."""
    launched_at: datetime | None = None
    registered_at: datetime | None = None
    initialized_at: datetime | None = None
    held_until: datetime | None = None
    """Until then at the latest its Node is cordoned, for the pods of its DaemonSets to come first; None for never."""
    terminating_at: datetime | None = None
    """When its end was decided. `cause` says by what, in one CamelCase word."""
    cause: str = ""
    replaced_by: tuple[str, ...] = ()
    """NodeClaims that were bought for its pods, and were ready, before its end began."""
    deadline: datetime | None = None
    """When its instance goes whatever is still on it; None for never."""
    drained_at: datetime | None = None
    detached_at: datetime | None = None
    terminated_at: datetime | None = None
    instance_gone_at: datetime | None = None
    """When EC2 showed its instance as terminated and other finalizers than ours held its Node; None before."""
    history: tuple[Transition, ...] = ()
    """The steps so far, after Pending."""
    reason: str = ""
    """Why it does not advance or was given up, in one CamelCase word; `message` says it in a sentence."""
    message: str = ""
    inconsistency: str = ""
    """What its Node lacks of what it was bought as."""
    drift: str = ""
    """Why its node is not what would be bought today, in Karpenter's word; empty where it is."""
    drifted_at: datetime | None = None
    """When that last changed; None where it never drifted."""
    decision: str = ""
    """Id of the decision that asked for it."""
    origin: str = ""
    """`BY_HAND` where a user has made the NodeClaim; empty where pods needed it."""
    revision: int = 0
    """Counts writes to the ledger: the optimistic lock."""

    @property
    def comparable_nodepool_hash(self) -> str:
        """Its hash of the NodePool, empty where other rules than today's made it."""
        return self.nodepool_hash if self.nodepool_hash_version == NODEPOOL_HASH_VERSION else ""

    @property
    def comparable_nodeclass_hash(self) -> str:
        """Its hash of the EC2NodeClass, empty where other rules than today's made it."""
        return self.nodeclass_hash if self.nodeclass_hash_version == NODECLASS_HASH_VERSION else ""

    @property
    def is_by_hand(self) -> bool:
        """True where the object is a user's: once it is gone, so is what it asked for."""
        return self.origin == BY_HAND

    @property
    def is_ending(self) -> bool:
        """True from the decision that it goes until it is forgotten."""
        return self.phase in ENDING

    @property
    def is_instance_terminating(self) -> bool:
        """True from the call that terminates its instance on: Karpenter's condition `InstanceTerminating`."""
        return self.phase is Phase.TERMINATED or self.instance_gone_at is not None

    def may_be_named(self, node: str) -> bool:
        """Whether EKS would let the kubelet of this claim's instance join by this name.

        That is the instance's private DNS name or, where the access entry of the node role says so, its id. A subnet
        with resource names gives `<id>.<domain>`. Only the instance itself can have any of them: EKS makes the user
        name of a kubelet from its instance. Any name will do where the private DNS name is not known.
        """
        own = self.instance_id
        return (
            not self.private_dns_name
            or node.lower() in {self.private_dns_name.lower(), own}
            or (bool(own) and node.startswith(f"{own}."))
        )

    def waiting(self, reason: str, message: str) -> NodeClaim:
        """Return the claim with what it waits for; itself where it has been said."""
        said = (self.reason, self.message) == (reason, message)
        return self if said else replace(self, reason=reason, message=message)

    def advanced(self, phase: Phase, now: datetime, reason: str = "", message: str = "") -> NodeClaim:
        """Return the claim in its next phase, with what is said of it there.

        Raises ValueError where none leads there.
        """
        if phase not in SUCCESSORS[self.phase]:
            raise ValueError(f"NodeClaim {self.name}: no step leads from {self.phase} to {phase}")
        step = Transition(phase, now, ": ".join(filter(None, (reason, message))))
        reached: dict[str, Any] = {REACHED_AT[phase]: now} if phase in REACHED_AT else {}
        return replace(
            self,
            phase=phase,
            phase_since=now,
            reason=reason,
            message=message,
            history=(*self.history, step),
            **reached,
        )

    def cause_of(self, phase: Phase) -> str:
        """Return why a phase was come to, where there is more to say than its name."""
        return next((step.cause for step in self.history if step.phase is phase), "")

    def given_up(self, reason: str, message: str, now: datetime) -> NodeClaim:
        """Return the claim as it ends: EC2 is not asked for it again."""
        return replace(self.advanced(Phase.GIVEN_UP, now, reason, message), launch=FrozenMap())

    def terminating(
        self, cause: str, message: str, now: datetime, deadline: datetime | None = None
    ) -> NodeClaim:
        """Return the claim as its end begins. `deadline` is None for however long its pods take."""
        ending = self.advanced(Phase.TERMINATING, now, cause, message)
        return replace(ending, cause=cause, deadline=deadline, launch=FrozenMap())


def known_instances(claims: Iterable[NodeClaim]) -> dict[str, str]:
    """Return the ids of claims' instances by claim, of those that have one."""
    return {claim.name: claim.instance_id for claim in claims if claim.instance_id}


REACHED_AT: Mapping[Phase, str] = {
    Phase.LAUNCHED: "launched_at",
    Phase.REGISTERED: "registered_at",
    Phase.INITIALIZED: "initialized_at",
    Phase.TERMINATING: "terminating_at",
    Phase.DRAINED: "drained_at",
    Phase.DETACHED: "detached_at",
    Phase.TERMINATED: "terminated_at",
}
"""The field that says when a phase was reached."""
