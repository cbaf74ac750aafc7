"""NodeClaim: the state of one node that nodesmith bought or is about to buy. NodePools share parts of its spec."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from nodesmith.model.apimachinery.frozen import NO_ITEMS, FrozenMap
from nodesmith.model.apimachinery.labels import Taint
from nodesmith.model.apimachinery.quantities import NOTHING, Resources
from nodesmith.model.apimachinery.requirements import (
    NO_REQUIREMENTS,
    Requirements,
)
from nodesmith.model.ec2.launches import (
    Instance,
)
from nodesmith.model.hashes import FIRST_HASH_VERSION, NODECLASS_HASH_VERSION, NODEPOOL_HASH_VERSION
from nodesmith.model.karpenter.disruption import Budget

BY_HAND = "ByHand"
NOT_REGISTERED = "NodeNotFound", "Node not registered with cluster"
"""The reason and message of a claim that has launched and waits for its Node."""
NODE_NOT_READY = "NodeNotReady"
"""The reason of a claim whose Node has registered and is not Ready."""
ATTEMPTED_AT = "attemptedAt"
"""In a claim's launch data: when EC2 was last about to be called. No other run touches the claim for a while.

None once the run that called EC2 is done with the claim, and empty if EC2 has begun nothing.
"""
LAUNCH_TIMEOUT, TEMPORARILY_UNAVAILABLE = "LaunchTimeout", "TemporarilyUnavailable"
UNANSWERED = frozenset({LAUNCH_TIMEOUT, TEMPORARILY_UNAVAILABLE})
"""The reasons of claims that were given up without an instance because EC2 was away, not for want of capacity."""
STOPPED_PRICE = "nodesmith.dev/stopped-hourly-usd"
"""Annotation on a NodeClaim for warm capacity: what its volumes cost an hour."""
TAGS_DUE = "tagsDue"
"""Key in a claim's launch data, once its instance is known: the tags that it still needs."""
DEADLINE_PASSED = "TerminationGracePeriodElapsed"
"""The cause of an end's step that was taken before the previous work was done."""


class Phase(StrEnum):
    """The phase of a claim. A claim only moves down this list, along `SUCCESSORS`."""

    PENDING = "Pending"
    """The intent to buy is committed. An instance may or may not exist."""
    LAUNCHED = "Launched"
    WARMING = "Warming"
    """Its Node has joined for the first time, closed to pods: it pulls images, and DaemonSets' pods start."""
    STOPPING = "Stopping"
    """EC2 is asked to stop the instance."""
    STOPPED = "Stopped"
    """The instance is stopped, and its Node is gone. It is warm capacity: pods that come have it started."""
    STARTING = "Starting"
    """EC2 is asked to start the instance for pods. It joins like a launched one."""
    REGISTERED = "Registered"
    INITIALIZED = "Initialized"
    TERMINATING = "Terminating"
    """The node must end, for whatever reason. New pods are kept off, and existing pods are evicted."""
    DRAINED = "Drained"
    """No pod is left that has to leave. Volumes are being detached."""
    DETACHED = "Detached"
    """No volume is attached any more."""
    TERMINATED = "Terminated"
    """EC2 has been asked to terminate the instance. The claim is forgotten once the instance and its Node are gone."""
    GIVEN_UP = "GivenUp"
    """The claim never got a working Node. Its instance, object and ledger entry are removed without a drain."""


WARM = frozenset({Phase.WARMING, Phase.STOPPING, Phase.STOPPED})
"""The phases of a claim for warm capacity between its launch and its start. No other claim has them."""
HOLDING = frozenset({Phase.LAUNCHED, *WARM, Phase.STARTING, Phase.REGISTERED, Phase.INITIALIZED})
"""The phases in which a claim has an instance and keeps it."""
COMING = frozenset({Phase.PENDING, Phase.LAUNCHED, Phase.STARTING, Phase.REGISTERED})
"""The phases in which pods wait for a claim's Node to be ready, unless the claim `is_warm`."""
EXPIRED, IMAGES_CHANGED, TEMPLATE_CHANGED = "Expired", "ImagesChanged", "TemplateChanged"
SURPLUS = "WarmCapacityNotNeeded"
"""Reasons, besides that of its drift, for which a claim for warm capacity is given up although nothing has failed."""
ENDING = frozenset({Phase.TERMINATING, Phase.DRAINED, Phase.DETACHED, Phase.TERMINATED})
"""The phases that termination handles. None of them leads back to an earlier phase."""

USED, WITHDRAWN, IN_VAIN = "Used", "Withdrawn", "InVain"
"""A pod other than a DaemonSet's has come; the pods that waited are gone; or they wait, and none has come."""

SUCCESSORS: Mapping[Phase, frozenset[Phase]] = {
    Phase.PENDING: frozenset({Phase.LAUNCHED, Phase.TERMINATING, Phase.GIVEN_UP}),
    Phase.LAUNCHED: frozenset({Phase.REGISTERED, Phase.WARMING, Phase.TERMINATING, Phase.GIVEN_UP}),
    Phase.WARMING: frozenset({Phase.STOPPING, Phase.TERMINATING, Phase.GIVEN_UP}),
    Phase.STOPPING: frozenset({Phase.STOPPED, Phase.TERMINATING, Phase.GIVEN_UP}),
    Phase.STOPPED: frozenset({Phase.STARTING, Phase.TERMINATING, Phase.GIVEN_UP}),
    Phase.STARTING: frozenset({Phase.REGISTERED, Phase.TERMINATING, Phase.GIVEN_UP}),
    Phase.REGISTERED: frozenset({Phase.INITIALIZED, Phase.TERMINATING}),
    Phase.INITIALIZED: frozenset({Phase.TERMINATING}),
    Phase.TERMINATING: frozenset({Phase.DRAINED}),
    Phase.DRAINED: frozenset({Phase.DETACHED}),
    Phase.DETACHED: frozenset({Phase.TERMINATED}),
    Phase.TERMINATED: frozenset(),
    Phase.GIVEN_UP: frozenset(),
}
"""Phase → the phases that may follow it. After the last two, a claim is forgotten."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of a claim's life: the phase that it reached, when, and the cause if there is one to report."""

    phase: Phase
    at: datetime
    cause: str = ""


@dataclass(frozen=True, slots=True)
class NodeClaim:
    """One claim as the ledger holds it. Times have a time zone. `launch` is JSON data that only the effects use."""

    name: str
    nodepool: str
    nodeclass: NodeClassRef
    created_at: datetime
    phase: Phase
    phase_since: datetime
    nodepool_uid: str = ""
    provisioner: str = ""
    """The Provisioner that its NodePool was converted from. `nodepool_uid` is then that Provisioner's uid."""
    nodepool_hash: str = ""
    nodeclass_hash: str = ""
    nodepool_hash_version: str = FIRST_HASH_VERSION
    nodeclass_hash_version: str = FIRST_HASH_VERSION
    """Versions of the hash rules."""
    requirements: Requirements = NO_REQUIREMENTS
    labels: Mapping[str, str] = NO_ITEMS
    annotations: Mapping[str, str] = NO_ITEMS
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    requests: Resources = NOTHING
    expire_after: str | None = None
    termination_grace_period: str | None = None
    budgets: tuple[Budget, ...] = ()
    """The NodePool's budgets at the time of the purchase. They also apply to its end."""
    launch: Mapping[str, object] = FrozenMap()
    instance_id: str = ""
    provider_id: str = ""
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    image_id: str = ""
    subnet_id: str = ""
    security_groups: tuple[str, ...] = ()
    """Ids of the security groups that its NodeClass selected at the time of the purchase."""
    price_hourly_usd: float = 0.0
    private_dns_name: str = ""
    """The private DNS name that EC2 reports; empty if it is not known yet or EC2 assigns none."""
    node_name: str = ""
    capacity: Resources = NOTHING
    allocatable: Resources = NOTHING
    nominated: tuple[str, ...] = ()
    """namespace/name of the pods that this claim was bought for."""
    attempts: Mapping[str, int] = FrozenMap()
    """Workload of those pods → purchases in a row, from 1, on which none of its pods has run; 0 if they run."""
    served: tuple[str, ...] = ()
    """The workloads in `attempts` with more than one attempt whose pods stayed on its Node."""
    use: str = ""
    """What became of the purchase once its Node was ready: `USED`, `WITHDRAWN`, `IN_VAIN`; empty if not known."""
    removals_before: int = 0
    """How many nodes in a row, before this one, nodesmith has removed from under the same pods soon after buying it."""
    launched_at: datetime | None = None
    stopped_at: datetime | None = None
    started_at: datetime | None = None
    """When its start for pods was decided; None unless it was warm capacity."""
    registered_at: datetime | None = None
    initialized_at: datetime | None = None
    held_until: datetime | None = None
    """Until when at the latest its Node is cordoned, so that DaemonSet pods start first; None if it is not held."""
    terminating_at: datetime | None = None
    """When its end was decided. `cause` is the reason, as one CamelCase word."""
    cause: str = ""
    replaced_by: tuple[str, ...] = ()
    """NodeClaims that were bought for its pods and were ready before its end began."""
    deadline: datetime | None = None
    """When its instance is terminated regardless of what still runs on it; None for no deadline."""
    drained_at: datetime | None = None
    detached_at: datetime | None = None
    terminated_at: datetime | None = None
    instance_gone_at: datetime | None = None
    """When EC2 showed its instance as terminated while foreign finalizers held its Node; None before."""
    history: tuple[Transition, ...] = ()
    """All transitions after Pending, oldest first."""
    reason: str = ""
    """Why it does not advance or was given up, as one CamelCase word. `message` explains it in a sentence."""
    message: str = ""
    inconsistency: str = ""
    """How its Node falls short of what was bought."""
    drift: str = ""
    """Why its node has drifted, as Karpenter's reason; empty if it has not."""
    drift_detail: str = ""
    """What exactly has drifted, in a sentence."""
    drifted_at: datetime | None = None
    """When `drift` last changed; None if it never drifted."""
    decision: str = ""
    """Id of the decision that requested it."""
    buffer: str = ""
    """The CapacityBuffer (namespace/name) for whose warm capacity it was bought; empty for any other claim."""
    images: tuple[str, ...] = ()
    """The container images that its instance pulls before it is stopped."""
    stopped_price_hourly_usd: float = 0.0
    """What its volumes cost an hour, which is all that is paid while it is stopped."""
    origin: str = ""
    """`BY_HAND` if a user created the NodeClaim; empty if nodesmith did."""
    revision: int = 0
    """Number of writes to the ledger: the optimistic lock."""

    @property
    def comparable_nodepool_hash(self) -> str:
        """Its hash of the NodePool, empty if the hash was made by rules of another version."""
        return self.nodepool_hash if self.nodepool_hash_version == NODEPOOL_HASH_VERSION else ""

    @property
    def comparable_nodeclass_hash(self) -> str:
        """Its hash of the EC2NodeClass, empty if the hash was made by rules of another version."""
        return self.nodeclass_hash if self.nodeclass_hash_version == NODECLASS_HASH_VERSION else ""

    @property
    def is_by_hand(self) -> bool:
        """True if a user created the object. Once the user deletes it, its node must end."""
        return self.origin == BY_HAND

    @property
    def is_warm(self) -> bool:
        """True while it is kept for a CapacityBuffer: it is being prepared or stopped, and no pod may wait for it."""
        return bool(self.buffer) and (self.phase in {Phase.PENDING, Phase.LAUNCHED} or self.phase in WARM)

    @property
    def was_not_needed(self) -> bool:
        """True if it was given up because its warm capacity is not wanted any more or was replaced."""
        planned = {SURPLUS, EXPIRED, IMAGES_CHANGED, TEMPLATE_CHANGED, self.drift} - {""}
        return bool(self.buffer) and self.reason in planned

    @property
    def bought_at(self) -> datetime:
        """When it was decided about for the pods that it is nominated for: bought, or started from warm capacity."""
        return self.started_at or self.created_at

    @property
    def paid_hourly_usd(self) -> float:
        """What it costs an hour now: while it is stopped, only its volumes."""
        return self.stopped_price_hourly_usd if self.phase is Phase.STOPPED else self.price_hourly_usd

    @property
    def is_ending(self) -> bool:
        """True from the decision that the claim ends until it is forgotten."""
        return self.phase in ENDING

    @property
    def is_instance_terminating(self) -> bool:
        """True once EC2 has been asked to terminate its instance: Karpenter's condition `InstanceTerminating`."""
        return self.phase is Phase.TERMINATED or self.instance_gone_at is not None

    def may_be_named(self, node: str) -> bool:
        """Return whether EKS would let the kubelet of this claim's instance join under this name.

        The name is the instance's private DNS name or, if the access entry of the node role says so, its id. In a
        subnet with resource names it is `<id>.<domain>`. No other instance can have these names, because EKS derives a
        kubelet's user name from its instance. Any name is accepted if the private DNS name is not known.
        """
        instance = self.instance_id
        return (
            not self.private_dns_name
            or node.lower() in {self.private_dns_name.lower(), instance}
            or (bool(instance) and node.startswith(f"{instance}."))
        )

    def on(self, instance: Instance) -> NodeClaim:
        """Return the claim with what EC2 reports about its instance. Security groups stay those of the purchase."""
        return replace(
            self,
            instance_id=instance.id,
            provider_id=instance.provider_id,
            instance_type=instance.instance_type,
            zone=instance.zone,
            capacity_type=instance.capacity_type,
            image_id=instance.image_id,
            subnet_id=instance.subnet_id,
            private_dns_name=instance.private_dns_name,
        )

    def waiting(self, reason: str, message: str) -> NodeClaim:
        """Return the claim with this reason and message, or the claim itself if it already has them."""
        is_same = (self.reason, self.message) == (reason, message)
        return self if is_same else replace(self, reason=reason, message=message)

    def advanced(self, phase: Phase, now: datetime, reason: str = "", message: str = "") -> NodeClaim:
        """Return the claim in its next phase, with a reason and message.

        Raises ValueError if no step leads from its phase to `phase`.
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
        """Return the cause of the transition to a phase, empty if there is none."""
        return next((step.cause for step in self.history if step.phase is phase), "")

    def leased(self, now: datetime) -> NodeClaim:
        """Return the claim with a lease that begins now, because EC2 is about to be called for it."""
        return replace(self, launch={**self.launch, ATTEMPTED_AT: now.isoformat()})

    def freed(self, *, nothing_begun: bool) -> NodeClaim:
        """Return the claim without its lease, because the run that called EC2 for it is done with it.

        `nothing_begun` is True if EC2 has certainly not begun a launch.
        """
        return replace(self, launch={**self.launch, ATTEMPTED_AT: "" if nothing_begun else None})

    def given_up(self, reason: str, message: str, now: datetime) -> NodeClaim:
        """Return the claim as given up, without launch data: its launch is not tried again."""
        return replace(self.advanced(Phase.GIVEN_UP, now, reason, message), launch=FrozenMap())

    def terminating(
        self, cause: str, message: str, now: datetime, deadline: datetime | None = None
    ) -> NodeClaim:
        """Return the claim as its end begins. `deadline` is None to wait for its pods as long as they take."""
        ending = self.advanced(Phase.TERMINATING, now, cause, message)
        return replace(ending, cause=cause, deadline=deadline, launch=FrozenMap())


def known_instances(claims: Iterable[NodeClaim]) -> dict[str, str]:
    """Return claim name → instance id for the claims that have an instance."""
    return {claim.name: claim.instance_id for claim in claims if claim.instance_id}


REACHED_AT: Mapping[Phase, str] = {
    Phase.LAUNCHED: "launched_at",
    Phase.STOPPED: "stopped_at",
    Phase.STARTING: "started_at",
    Phase.REGISTERED: "registered_at",
    Phase.INITIALIZED: "initialized_at",
    Phase.TERMINATING: "terminating_at",
    Phase.DRAINED: "drained_at",
    Phase.DETACHED: "detached_at",
    Phase.TERMINATED: "terminated_at",
}
"""Phase → the field with the time when it was reached."""


@dataclass(frozen=True, slots=True)
class NodeClassRef:
    """The NodeClass that a NodePool or NodeClaim refers to for its AWS settings."""

    name: str
    group: str = "karpenter.k8s.aws"
    kind: str = "EC2NodeClass"

    @property
    def label(self) -> str:
        """The key of the label on nodes of this NodeClass. The label's value is the NodeClass's name."""
        return f"{self.group}/{self.kind.lower()}"


def read_taints(items: Iterable[Mapping[str, Any]]) -> tuple[Taint, ...]:
    """Read a list of taints that has passed its schema."""
    return tuple(Taint(item["key"], item["effect"], item.get("value", "")) for item in items)


def write_taints(taints: Iterable[Taint]) -> list[dict[str, str]]:
    """Write taints as in a manifest."""
    return [{"key": t.key, "effect": str(t.effect)} | ({"value": t.value} if t.value else {}) for t in taints]


def tags_due(claim: NodeClaim) -> Mapping[str, str]:
    """Return the tags that a claim's instance lacks."""
    tags = claim.launch.get(TAGS_DUE)
    return {key: str(value) for key, value in tags.items()} if isinstance(tags, Mapping) else {}
