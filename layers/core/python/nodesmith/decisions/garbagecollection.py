"""Garbage collection in both directions: what exists in AWS but not in the ledger, and what is recorded but gone.

It is safe because of the order of the reads: the snapshot is older than AWS's lists, and the ledger is read after them.
A claim is committed before EC2 is asked for its instance, so a listed instance has a claim in the ledger unless that
claim was forgotten. No instance is older than its claim; the minimum age of a minute is a margin.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from nodesmith.decisions.takeover import UNCLAIMED, taken_back
from nodesmith.decisions.termination.beginning import lost_claims, without_node
from nodesmith.decisions.termination.waiting import is_held_by_others
from nodesmith.model.apimachinery.labels import (
    INSTANCE_PROFILE,
    INSTANCE_TYPE,
    NODECLASS,
    REGISTERED,
    ZONE,
)
from nodesmith.model.apimachinery.times import first_after
from nodesmith.model.commands import (
    Correct,
    EndClaim,
    Garbage,
    Lift,
    Owned,
    OwnedKind,
    ReleaseNode,
    Remove,
    TakeBack,
    Terminate,
)
from nodesmith.model.ec2.launches import Instance, fleet_of
from nodesmith.model.karpenter.nodeclaims import HOLDING, NodeClaim, Phase
from nodesmith.model.karpenter.ownership import is_foreign_node, is_karpenters, is_marked, provider_id
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot

YOUNG = timedelta(minutes=1)
"""The minimum age of garbage: EC2 does not list an instance immediately after its launch, and clocks differ."""
DOUBLED = "Doubled"
UNUSED = timedelta(hours=1)
"""How long a launch template or instance profile must be unused to be garbage."""
DETACHED = timedelta(minutes=10)
"""How long a volume or network interface must be seen detached to be garbage."""
Needs = Callable[[Owned], bool]


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything that is known.

    `instances` are nodesmith's living instances. `owned` are its other AWS resources by kind, without kinds that could
    not be listed. `living` are the suspects that are alive after all. `detached_since` is when volumes and network
    interfaces, by id, were first seen detached. `lost` are claims whose Node is gone for long, by name.
    """

    snapshot: Snapshot
    instances: Sequence[Instance]
    owned: Mapping[OwnedKind, Sequence[Owned]]
    ledger: Ledger
    living: Collection[str]
    detached_since: Mapping[str, datetime]
    now: datetime
    lost: Collection[str] = ()

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


def superfluous(inventory: Inventory) -> list[tuple[Instance, str]]:
    """Return running instances without a claim, and second instances of a claim, each with the reason, by id.

    If a claim that names no instance yet has two, provisioning adopts one; the other becomes superfluous after that.
    """
    return sorted(_superfluous(inventory), key=lambda pair: pair[0].id)


def in_service(inventory: Inventory, instance: Instance) -> Node | None:
    """Return the registered Node of an instance, None if there is none. Only registered Nodes can have pods to drain.

    None also for an instance whose tag names no claim, since termination finds instances by that tag.
    """
    if not instance.claim:
        return None
    nodes = (node for node in inventory.snapshot.nodes if node.provider_id == instance.provider_id)
    registered = next((node for node in nodes if node.labels.get(REGISTERED) == "true"), None)
    return registered or _restored(inventory, instance)


def _restored(inventory: Inventory, instance: Instance) -> Node | None:
    """Return a Node, restored from a backup without its provider id, that may belong to this instance.

    Only zone and type can be compared. Draining a node needlessly is better than terminating an instance with pods.
    """
    claimed = inventory.claimed
    kind = {INSTANCE_TYPE: instance.instance_type, ZONE: instance.zone}
    candidates = (
        node
        for node in inventory.snapshot.nodes
        if node.is_restored and node.name not in claimed and not is_foreign_node(node.labels)
    )
    return next((node for node in candidates if kind.items() <= node.labels.items()), None)


def _superfluous(inventory: Inventory) -> Iterator[tuple[Instance, str]]:
    claims = {claim.name: claim for claim in inventory.ledger.claims}
    claimed = {claim.instance_id for claim in inventory.ledger.claims if claim.instance_gone_at is None}
    awaited = {fleet for claim in inventory.pending if (fleet := fleet_of(claim.launch))}
    karpenters = {provider_id(m) for m in inventory.snapshot.nodeclaims if is_karpenters(m)}
    for instance in inventory.instances:
        if instance.provider_id in karpenters:
            continue  # it is being adopted: its tag comes before its claim
        if instance.id in claimed or inventory.now - instance.launched_at < YOUNG:
            continue
        if not instance.claim and instance.fleet in awaited:
            continue  # it is still to be assigned to a pending claim
        claim = claims.get(instance.claim)
        if claim is None:
            yield instance, UNCLAIMED
        elif claim.instance_id:
            yield instance, DOUBLED


def unneeded(inventory: Inventory) -> list[Owned]:
    """Return what may be deleted, by kind and id."""
    resources: list[Owned] = []
    for kind in sorted(inventory.owned):
        needs = _needs(kind, inventory)
        resources += sorted((o for o in inventory.owned[kind] if not needs(o)), key=lambda o: o.id)
    return resources


def still_detached(
    before: Mapping[str, datetime], owned: Mapping[OwnedKind, Sequence[Owned]], now: datetime
) -> dict[str, datetime]:
    """Return since when each detached volume or interface has been seen, by id. EC2 does not record that."""
    detached = (*owned.get(OwnedKind.VOLUME, ()), *owned.get(OwnedKind.NETWORK_INTERFACE, ()))
    return {resource.id: before.get(resource.id, now) for resource in detached}


def _needs(kind: OwnedKind, inventory: Inventory) -> Needs:
    match kind:
        case OwnedKind.LAUNCH_TEMPLATE:
            return _needs_template(inventory)
        case OwnedKind.INSTANCE_PROFILE:
            return _needs_profile(inventory)
        case OwnedKind.VOLUME | OwnedKind.NETWORK_INTERFACE:
            return _needs_detached(inventory)
        case _:
            assert_never(kind)


def _needs_template(inventory: Inventory) -> Needs:
    """Return a predicate: templates that a pending claim requests, or that were made or used within the hour."""
    requested = {name for claim in inventory.pending for name in _templates(claim)}
    last_use: dict[str, datetime] = {}
    for instance in inventory.instances:
        previous = last_use.get(instance.template_id, instance.launched_at)
        last_use[instance.template_id] = max(previous, instance.launched_at)

    def needs(template: Owned) -> bool:
        made_at = template.created_at or inventory.now
        used_at = max(made_at, last_use.get(template.id, made_at))
        return template.name in requested or inventory.now - used_at < UNUSED

    return needs


def _needs_profile(inventory: Inventory) -> Needs:
    """Return a predicate: profiles of living instances, whose nodes would lose their permissions, and of future ones.

    A future instance has the current profile of its EC2NodeClass. If that is unknown, all profiles that the
    EC2NodeClass ever had are needed. An EC2NodeClass may also name a profile that was created for another one.
    """
    in_use = {instance.instance_profile for instance in inventory.instances}
    in_use |= {claim.annotations.get(INSTANCE_PROFILE, "") for claim in inventory.ledger.claims}
    in_use |= {
        str((manifest.get("spec") or {}).get("instanceProfile") or "")
        for manifest in inventory.snapshot.nodeclasses
    }
    coming = {claim.nodeclass.name for claim in inventory.pending}
    owners = {
        str(metadata.get("uid") or metadata.get("name")): str(metadata.get("name"))
        for metadata in (manifest.get("metadata") or {} for manifest in inventory.snapshot.nodeclasses)
    }
    current = {name: status.instance_profile for name, status in inventory.ledger.nodeclasses.items()}

    def needs(profile: Owned) -> bool:
        if (
            profile.name in {*in_use, *current.values()}
            or inventory.now - (profile.created_at or inventory.now) < UNUSED
        ):
            return True
        owner = owners.get(profile.owner_uid)
        if owner is None:
            return not coming <= set(owners.values())  # a claim of its own EC2NodeClass may still be launched
        return owner in coming or not current.get(owner)

    return needs


def _needs_detached(inventory: Inventory) -> Needs:
    """Return a predicate: resources that were detached lately, or that belong to an existing claim or instance."""
    claim_names = {claim.name for claim in inventory.ledger.claims} | {i.claim for i in inventory.instances}

    def needs(owned: Owned) -> bool:
        loose_since = inventory.detached_since.get(owned.id, inventory.now)
        return inventory.now - loose_since < DETACHED or bool(owned.claim and owned.claim in claim_names)

    return needs


def _templates(claim: NodeClaim) -> list[str]:
    """Return the names of the launch templates in a claim's request, as stored in the ledger."""
    overrides = claim.launch.get("overrides")
    return [str(override[0]) for override in overrides] if isinstance(overrides, Sequence) else []


def suspects(snapshot: Snapshot, instances: Iterable[Instance], ledger: Ledger) -> list[str]:
    """Return the ids of instances that claims, Nodes or NodeClaim objects name but that are not among `instances`.

    EC2 is asked for each by id before anything is removed: an instance that lives without our tags belongs to others.
    """
    believed = {claim.instance_id for claim in ledger.claims if claim.phase in HOLDING}
    believed |= {instance_id(node.provider_id) for node in snapshot.nodes if NODECLASS in node.labels}
    believed |= {instance_id(provider_id(manifest)) for manifest in snapshot.nodeclaims}
    gone_ids = {claim.instance_id for claim in ledger.claims if claim.instance_gone_at is not None}
    return sorted(believed - {instance.id for instance in instances} - gone_ids - {""})


def ended_claims(inventory: Inventory) -> Iterator[EndClaim]:
    """Yield ends for claims whose instance is gone but whose Node exists. Lifecycle handles claims without a Node."""
    alive = inventory.alive
    for claim in sorted(inventory.ledger.claims, key=lambda c: c.name):
        nodes = inventory.snapshot.nodes_of(claim)
        if claim.phase not in HOLDING or claim.instance_id in alive or not nodes:
            continue
        if inventory.now - claim.phase_since >= YOUNG and not any(node.is_ready for node in nodes):
            message = f"instance {claim.instance_id} is gone"
            yield EndClaim(claim.terminating("InstanceTerminated", message, inventory.now))


def regrouped_claims(inventory: Inventory) -> Iterator[Correct]:
    """Yield corrections for the claims whose instance no longer has the security groups that it was launched with.

    A user has changed them in EC2. They are compared with what the EC2NodeClass selects, so drift may begin or end.
    """
    groups = {instance.id: instance.security_groups for instance in inventory.instances}
    for claim in sorted(inventory.ledger.claims, key=lambda c: c.name):
        now = groups.get(claim.instance_id, ())
        if (
            claim.phase in HOLDING
            and now
            and claim.security_groups
            and set(now) != set(claim.security_groups)
        ):
            yield Correct(replace(claim, security_groups=now))


def left_nodes(inventory: Inventory) -> Iterator[ReleaseNode]:
    """Yield releases for Nodes of ours without a claim and an instance. A Ready Node has one, whatever EC2 answers.

    A Node of a Karpenter NodeClaim belongs to Karpenter, and one of a foreign NodePool to its own controller.
    """
    claimed, alive, karpenters = inventory.claimed, inventory.alive, _of_karpenter(inventory.snapshot)
    for node in sorted(inventory.snapshot.nodes, key=lambda n: n.name):
        instance = instance_id(node.provider_id)
        if NODECLASS not in node.labels or node.name in claimed or instance in alive:
            continue
        if node.provider_id in karpenters or is_held_by_others(node):
            continue
        if (instance or node.is_restored) and not node.is_ready and inventory.now - node.created_at >= YOUNG:
            yield ReleaseNode(node.name, node.provider_id)


def left_nodeclaims(inventory: Inventory) -> Iterator[Lift]:
    """Yield NodeClaim objects to release: they are no longer in the ledger, and their instance and Node are gone.

    NodeClaims that nodesmith has not launched belong to Karpenter, or to users who still wait for a launch.
    """
    claim_names, alive = {claim.name for claim in inventory.ledger.claims}, inventory.alive
    provider_ids = {node.provider_id for node in inventory.snapshot.nodes if NODECLASS in node.labels} - {""}
    for manifest in inventory.snapshot.nodeclaims:
        name, provider = str((manifest.get("metadata") or {}).get("name")), provider_id(manifest)
        if not is_marked(manifest) or name in claim_names:
            continue
        if instance_id(provider) not in alive and provider not in provider_ids:
            yield Lift(name)


def _of_karpenter(snapshot: Snapshot) -> frozenset[str]:
    """Return the provider ids of the NodeClaims that Karpenter has created or launched."""
    return frozenset(provider_id(m) for m in snapshot.nodeclaims if is_karpenters(m)) - {""}


def instance_id(provider_id: str) -> str:
    """Return the instance id in `aws:///<zone>/<instance id>`, empty if `provider_id` is not EC2's."""
    _, _, last = provider_id.rpartition("/")
    return last if provider_id.startswith("aws://") and last.startswith("i-") else ""


MOST = 90
"""The most deletions in one run, and claims in one commit. The next run finds the rest again."""


def garbage(inventory: Inventory) -> tuple[list[Garbage], int]:
    """Return what to remove, the most expensive first, and how many deletions are left for the next run."""
    instances = superfluous(inventory)
    others: list[Garbage] = [*ended_claims(inventory)]
    others += lost_claims(inventory.ledger, inventory.lost, inventory.alive, inventory.now)
    others += [*left_nodes(inventory), *left_nodeclaims(inventory)]
    others += [Remove(owned) for owned in unneeded(inventory)]
    others += regrouped_claims(inventory)
    batch = instances[:MOST]
    postponed = len(instances) + len(others) - MOST
    return [*_instances(inventory, batch), *others[: MOST - len(batch)]], max(0, postponed)


def _instances(inventory: Inventory, instances: Sequence[tuple[Instance, str]]) -> Iterator[Garbage]:
    """Terminate superfluous instances at once if they cannot have pods; drain the others like any other node.

    Only the Node of the instance that a claim names is ever registered, so a second instance has no pods.
    """
    served: dict[str, NodeClaim] = {}
    idle: dict[str, list[str]] = {}
    for instance, reason in instances:
        node = in_service(inventory, instance) if reason == UNCLAIMED else None
        if node is None:
            idle.setdefault(reason, []).append(instance.id)
        else:
            served.setdefault(instance.claim, taken_back(instance, node, inventory.now))
    yield from (Terminate(tuple(ids), reason) for reason, ids in sorted(idle.items()))
    if served:
        yield TakeBack(inventory.ledger.version, tuple(served.values()))


def next_change(inventory: Inventory) -> datetime | None:
    """Return when time alone first turns something into garbage, once the garbage found now is removed; None for never.

    That is now while something is under way that only EC2 or the record of this process shows: a launch, a termination,
    an instance of which only the Node or the object is left, one without its Node, or a detached volume or interface.
    """
    is_lost = bool(without_node(inventory.snapshot, inventory.ledger))
    if inventory.pending or is_lost or _is_ending(inventory) or _has_orphans(inventory):
        return inventory.now
    return first_after(inventory.now, _moments(inventory))


def _is_ending(inventory: Inventory) -> bool:
    """Return whether a node is ending or not Ready, or a NodeClaim object is left whose claim is forgotten."""
    claims, snapshot = inventory.ledger.claims, inventory.snapshot
    names = {claim.name for claim in claims}
    nodes = (node for claim in claims if claim.phase in HOLDING for node in snapshot.nodes_of(claim))
    leftovers = (m for m in snapshot.nodeclaims if is_marked(m) and m["metadata"].get("name") not in names)
    return (
        any(claim.is_ending for claim in claims)
        or any(not node.is_ready for node in nodes)
        or any(True for _ in leftovers)
    )


def _has_orphans(inventory: Inventory) -> bool:
    """Return whether a detached volume or network interface belongs to no existing claim or instance."""
    names = {claim.name for claim in inventory.ledger.claims} | {i.claim for i in inventory.instances}
    kinds = (OwnedKind.VOLUME, OwnedKind.NETWORK_INTERFACE)
    loose = (owned for kind in kinds for owned in inventory.owned.get(kind, ()))
    return any(not (owned.claim and owned.claim in names) for owned in loose)


def _moments(inventory: Inventory) -> Iterator[datetime]:
    """Yield the moments at which existing things pass their minimum age."""
    for instance in inventory.instances:
        yield instance.launched_at + YOUNG
        yield instance.launched_at + UNUSED  # its launch template has not been used since
    for node in inventory.snapshot.nodes:
        if NODECLASS in node.labels:
            yield node.created_at + YOUNG
    for owned in (each for kind in sorted(inventory.owned) for each in inventory.owned[kind]):
        if owned.created_at is not None:
            yield owned.created_at + UNUSED
