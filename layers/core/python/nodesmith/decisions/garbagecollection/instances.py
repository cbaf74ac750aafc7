"""Instances that no claim needs: the most expensive garbage."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from nodesmith.decisions.garbagecollection.facts import YOUNG, Facts
from nodesmith.model.apimachinery.labels import INSTANCE_TYPE, NODECLASS, NODEPOOL, REGISTERED, ZONE
from nodesmith.model.ec2.launches import Instance, fleet_of
from nodesmith.model.karpenter.nodeclaims import NodeClaim, NodeClassRef, Phase
from nodesmith.model.karpenter.ownership import is_foreign_node
from nodesmith.model.kubernetes.nodes import Node

UNCLAIMED, DOUBLED = "Unclaimed", "Doubled"


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
        instance_id=instance.id,
        provider_id=instance.provider_id,
        instance_type=instance.instance_type,
        zone=instance.zone,
        capacity_type=instance.capacity_type,
        image_id=instance.image_id,
        private_dns_name=instance.private_dns_name,
        node_name=node.name,
        capacity=node.capacity,
        allocatable=node.allocatable,
        launched_at=instance.launched_at,
        registered_at=node.created_at,
    )
    return claim.terminating(UNCLAIMED, f"the ledger has no claim for instance {instance.id}", now)


def _superfluous(facts: Facts) -> Iterator[tuple[Instance, str]]:
    claims = {claim.name: claim for claim in facts.ledger.claims}
    named = {claim.instance_id for claim in facts.ledger.claims if claim.instance_gone_at is None}
    awaited = {fleet for claim in facts.pending if (fleet := fleet_of(claim.launch))}
    for instance in facts.instances:
        if instance.id in named or facts.now - instance.launched_at < YOUNG:
            continue
        if not instance.claim and instance.fleet in awaited:
            continue  # it is still to be assigned to a pending claim
        claim = claims.get(instance.claim)
        if claim is None:
            yield instance, UNCLAIMED
        elif claim.instance_id:
            yield instance, DOUBLED
