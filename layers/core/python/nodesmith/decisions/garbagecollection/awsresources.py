"""The input of garbage collection, in the order in which it was read, and which AWS resources in it nobody needs.

Instances that no claim needs are the most expensive garbage. The others are launch templates, instance profiles,
volumes and network interfaces.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from nodesmith.model.apimachinery.labels import (
    INSTANCE_PROFILE,
    INSTANCE_TYPE,
    NODECLASS,
    NODEPOOL,
    REGISTERED,
    ZONE,
)
from nodesmith.model.ec2.launches import Instance, fleet_of
from nodesmith.model.garbage import Kind, Owned
from nodesmith.model.karpenter.nodeclaims import NodeClaim, NodeClassRef, Phase
from nodesmith.model.karpenter.ownership import is_foreign_node, is_karpenters, provider_id
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot

YOUNG = timedelta(minutes=1)
"""The minimum age of garbage: EC2 does not list an instance immediately after its launch, and clocks differ."""
UNCLAIMED, DOUBLED = "Unclaimed", "Doubled"
UNUSED = timedelta(hours=1)
"""How long a launch template or instance profile must be unused to be garbage."""
DETACHED = timedelta(minutes=10)
"""How long a volume or network interface must be seen detached to be garbage."""
Needs = Callable[[Owned], bool]


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that is known.

    `instances` are nodesmith's living instances. `owned` are its other AWS resources by kind, without kinds that could
    not be listed. `living` are the suspects that are alive after all. `detached_since` is when volumes and network
    interfaces, by id, were first seen detached.
    """

    snapshot: Snapshot
    instances: Sequence[Instance]
    owned: Mapping[Kind, Sequence[Owned]]
    ledger: Ledger
    living: Collection[str]
    detached_since: Mapping[str, datetime]
    now: datetime

    @property
    def alive(self) -> frozenset[str]:
        """The ids of living instances that nodesmith owns or refers to."""
        return frozenset(self.living) | {instance.id for instance in self.instances}

    @property
    def claimed(self) -> frozenset[str]:
        """The names of the Nodes that belong to a claim."""
        return frozenset(node.name for claim in self.ledger.claims for node in self.snapshot.nodes_of(claim))

    @property
    def pending(self) -> list[NodeClaim]:
        """The claims whose instance may appear at any moment."""
        return [claim for claim in self.ledger.claims if claim.phase is Phase.PENDING]


def superfluous(facts: Facts) -> list[tuple[Instance, str]]:
    """Return running instances without a claim, and second instances of a claim, each with the reason, by id.

    If a claim that names no instance yet has two, provisioning adopts one; the other becomes superfluous after that.
    """
    return sorted(_superfluous(facts), key=lambda found: found[0].id)


def in_service(facts: Facts, instance: Instance) -> Node | None:
    """Return the registered Node of an instance, None if there is none. Only registered Nodes can have pods to drain.

    None also for an instance whose tag names no claim, since termination finds instances by that tag.
    """
    if not instance.claim:
        return None
    nodes = (node for node in facts.snapshot.nodes if node.provider_id == instance.provider_id)
    registered = next((node for node in nodes if node.labels.get(REGISTERED) == "true"), None)
    return registered or _restored(facts, instance)


def _restored(facts: Facts, instance: Instance) -> Node | None:
    """Return a Node, restored from a backup without its provider id, that may belong to this instance.

    Only zone and type can be compared. Draining a node needlessly is better than terminating an instance with pods.
    """
    claimed = facts.claimed
    kind = {INSTANCE_TYPE: instance.instance_type, ZONE: instance.zone}
    lost = (
        node
        for node in facts.snapshot.nodes
        if node.is_restored and node.name not in claimed and not is_foreign_node(node.labels)
    )
    return next((node for node in lost if kind.items() <= node.labels.items()), None)


def taken_back(instance: Instance, node: Node, now: datetime) -> NodeClaim:
    """Return an ending claim for an instance in service that has none, filled from the instance and its Node."""
    claim = NodeClaim(
        name=instance.claim,
        nodepool=node.labels.get(NODEPOOL, ""),
        nodeclass=NodeClassRef(node.labels.get(NODECLASS, "")),
        created_at=instance.launched_at,
        phase=Phase.REGISTERED,
        phase_since=now,
        node_name=node.name,
        capacity=node.capacity,
        allocatable=node.allocatable,
        launched_at=instance.launched_at,
        registered_at=node.created_at,
    )
    return claim.on(instance).terminating(
        UNCLAIMED, f"the ledger has no claim for instance {instance.id}", now
    )


def _superfluous(facts: Facts) -> Iterator[tuple[Instance, str]]:
    claims = {claim.name: claim for claim in facts.ledger.claims}
    named = {claim.instance_id for claim in facts.ledger.claims if claim.instance_gone_at is None}
    awaited = {fleet for claim in facts.pending if (fleet := fleet_of(claim.launch))}
    karpenters = {provider_id(each) for each in facts.snapshot.nodeclaims if is_karpenters(each)}
    for instance in facts.instances:
        if instance.provider_id in karpenters:
            continue  # it is being adopted: its tag comes before its claim
        if instance.id in named or facts.now - instance.launched_at < YOUNG:
            continue
        if not instance.claim and instance.fleet in awaited:
            continue  # it is still to be assigned to a pending claim
        claim = claims.get(instance.claim)
        if claim is None:
            yield instance, UNCLAIMED
        elif claim.instance_id:
            yield instance, DOUBLED


def unneeded(facts: Facts) -> list[Owned]:
    """Return what may be deleted, by kind and id."""
    found: list[Owned] = []
    for kind in sorted(facts.owned):
        needs = _needs(kind, facts)
        found += sorted((each for each in facts.owned[kind] if not needs(each)), key=lambda o: o.id)
    return found


def still_detached(
    before: Mapping[str, datetime], owned: Mapping[Kind, Sequence[Owned]], now: datetime
) -> dict[str, datetime]:
    """Return since when each detached volume or interface has been seen, by id. EC2 does not record that."""
    found = (*owned.get(Kind.VOLUME, ()), *owned.get(Kind.NETWORK_INTERFACE, ()))
    return {each.id: before.get(each.id, now) for each in found}


def _needs(kind: Kind, facts: Facts) -> Needs:
    match kind:
        case Kind.LAUNCH_TEMPLATE:
            return _needs_template(facts)
        case Kind.INSTANCE_PROFILE:
            return _needs_profile(facts)
        case Kind.VOLUME | Kind.NETWORK_INTERFACE:
            return _needs_detached(facts)
        case _:
            assert_never(kind)


def _needs_template(facts: Facts) -> Needs:
    """Return a predicate: templates that a pending claim requests, or that were made or used within the hour."""
    asked = {name for claim in facts.pending for name in _templates(claim)}
    last_use: dict[str, datetime] = {}
    for instance in facts.instances:
        known = last_use.get(instance.template_id, instance.launched_at)
        last_use[instance.template_id] = max(known, instance.launched_at)

    def needs(template: Owned) -> bool:
        made_at = template.created_at or facts.now
        return template.name in asked or facts.now - max(made_at, last_use.get(template.id, made_at)) < UNUSED

    return needs


def _needs_profile(facts: Facts) -> Needs:
    """Return a predicate: profiles of living instances, whose nodes would lose their permissions, and of future ones.

    A future instance has the current profile of its EC2NodeClass. If that is unknown, all profiles that the
    EC2NodeClass ever had are needed. An EC2NodeClass may also name a profile that was created for another one.
    """
    used = {instance.instance_profile for instance in facts.instances}
    used |= {claim.annotations.get(INSTANCE_PROFILE, "") for claim in facts.ledger.claims}
    used |= {
        str((manifest.get("spec") or {}).get("instanceProfile") or "")
        for manifest in facts.snapshot.nodeclasses
    }
    coming = {claim.nodeclass.name for claim in facts.pending}
    owners = {
        str(metadata.get("uid") or metadata.get("name")): str(metadata.get("name"))
        for metadata in (manifest.get("metadata") or {} for manifest in facts.snapshot.nodeclasses)
    }
    current = {name: status.instance_profile for name, status in facts.ledger.nodeclasses.items()}

    def needs(profile: Owned) -> bool:
        if (
            profile.name in {*used, *current.values()}
            or facts.now - (profile.created_at or facts.now) < UNUSED
        ):
            return True
        owner = owners.get(profile.owner_uid)
        if owner is None:
            return not coming <= set(owners.values())  # a claim of its own EC2NodeClass may still be launched
        return owner in coming or not current.get(owner)

    return needs


def _needs_detached(facts: Facts) -> Needs:
    """Return a predicate: resources that were detached lately, or that belong to an existing claim or instance."""
    known = {claim.name for claim in facts.ledger.claims} | {i.claim for i in facts.instances}

    def needs(owned: Owned) -> bool:
        loose_since = facts.detached_since.get(owned.id, facts.now)
        return facts.now - loose_since < DETACHED or bool(owned.claim and owned.claim in known)

    return needs


def _templates(claim: NodeClaim) -> list[str]:
    """Return the names of the launch templates in a claim's request, as stored in the ledger."""
    overrides = claim.launch.get("overrides")
    return [str(override[0]) for override in overrides] if isinstance(overrides, Sequence) else []
