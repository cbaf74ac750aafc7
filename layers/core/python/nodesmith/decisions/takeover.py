"""Karpenter's nodes become nodesmith's and back: who serves the cluster, and the claim that a NodeClaim becomes.

Karpenter and nodesmith serve the same NodePools, so only one of them may act. nodesmith stands by, and neither
launches, ends nor writes anything, while Karpenter shows signs of life, and after the user has released the cluster to
Karpenter. It never contends with Karpenter for a node.

Karpenter removes its finalizer within seconds after no NodeClaim refers to a deleted EC2NodeClass any more. If
Karpenter was uninstalled, the finalizer stays, and the deletion waits until nodesmith removes it.

`taken_back` enters a claim again for an instance in service that has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import (
    CLUSTER_NAME_TAGGED,
    NODECLASS,
    NODECLASS_FINALIZER,
    NODEPOOL,
    TAGGED,
    TERMINATION_TIMESTAMP,
)
from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.apimachinery.times import first_after, parse_time
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ec2.launches import Instance
from nodesmith.model.hashes import (
    NODECLASS_HASH,
    NODECLASS_HASH_VERSION,
    NODEPOOL_HASH,
    NODEPOOL_HASH_VERSION,
)
from nodesmith.model.karpenter.nodeclaimobjects import LIFE, parse_nodeclaim
from nodesmith.model.karpenter.nodeclaims import (
    BY_HAND,
    REACHED_AT,
    NodeClaim,
    NodeClassRef,
    Phase,
    Transition,
)
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.karpenter.ownership import (
    CLUSTER_TAG,
    NODECLAIM_TAG,
    Manifest,
    nodeclass_name,
    owned_tag,
    provider_id,
)
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.snapshot import Snapshot

QUIET = timedelta(minutes=5)
"""How long Karpenter must have shown no sign of life before nodesmith serves the cluster again by itself."""
STANDBY = "nodesmith.dev/Standby"
"""The condition of NodePools while nodesmith stands by."""
KARPENTER = "Karpenter"
"""The origin of NodeClaims that Karpenter has created and nodesmith has adopted."""


UNCLAIMED = "Unclaimed"
"""The reason why an instance in service that has no claim ends."""


@dataclass(frozen=True, slots=True)
class Standby:
    """nodesmith leaves the cluster to Karpenter. `reason` is one CamelCase word, and `message` explains it.

    It ends at `until` if nothing changes before; None if only the user ends it.
    """

    reason: str
    message: str
    until: datetime | None = None


def standby(ledger: Ledger, snapshot: Snapshot, now: datetime) -> Standby | None:
    """Return why nodesmith leaves the cluster to Karpenter, None if nodesmith serves it.

    The message stays the same for as long as the reason does.
    """
    word, sign = ledger.handover, snapshot.karpenter
    if word is not None and word.to_karpenter and word.is_settled:
        since = f"the cluster was released to Karpenter at {word.at:%Y-%m-%d %H:%M} UTC"
        return Standby("ReleasedToKarpenter", f"{since}; `nodesmith adopt` takes it back")
    if sign is None or (word is not None and sign.at <= word.at) or now - sign.at >= QUIET:
        return None
    remedy = "scale Karpenter to zero; nodesmith serves the cluster five minutes later, or after `nodesmith resume`"
    return Standby("KarpenterRuns", f"Karpenter {sign.what}: {remedy}", sign.at + QUIET)


def is_closing(ledger: Ledger) -> bool:
    """Return whether the cluster is being released, so that nodesmith buys nothing and completes what it has begun."""
    return ledger.handover is not None and ledger.handover.to_karpenter


def standby_conditions(nodepools: Iterable[Manifest], held: Standby) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each NodePool that does not show yet that nodesmith stands by, with the condition to write.

    A NodePool without a uid was converted from a Provisioner and does not exist in the cluster.
    """
    for manifest in nodepools:
        metadata, status = manifest.get("metadata") or {}, manifest.get("status") or {}
        expected = {"type": STANDBY, "status": "True", "reason": held.reason, "message": held.message}
        current = (
            condition for condition in status.get("conditions") or () if condition.get("type") == STANDBY
        )
        is_shown = any(expected.items() <= condition.items() for condition in current)
        if metadata.get("uid") and not is_shown:
            generation = int(metadata.get("generation") or 0)
            yield str(metadata["name"]), {**expected, "observedGeneration": generation}


def shown_standby(nodepools: Iterable[Manifest]) -> str:
    """Return the message of the condition that nodesmith stands by, empty if no NodePool shows it."""
    for manifest in nodepools:
        for condition in (manifest.get("status") or {}).get("conditions") or ():
            if condition.get("type") == STANDBY and condition.get("status") == "True":
                return str(condition.get("message") or "")
    return ""


_PROVIDER_ID = re.compile(r"aws:///(?P<zone>[a-z0-9-]+)/(?P<instance>i-[0-9a-z]{1,40})")
_VERSION = re.compile(r"v[1-9][0-9]?")
_MADE = frozenset(
    {
        NODEPOOL_HASH,
        f"{NODEPOOL_HASH}-version",
        NODECLASS_HASH,
        f"{NODECLASS_HASH}-version",
        TAGGED,
        CLUSTER_NAME_TAGGED,
        TERMINATION_TIMESTAMP,
    }
)
"""Annotations that are written from other fields of a claim."""


@dataclass(frozen=True, slots=True)
class ClusterContext:
    """What the NodeClaims of a cluster are compared with.

    NodePools and EC2NodeClasses are by name, tags by instance id, Nodes and instances by provider id. `holders` are the
    names of the NodeClaims with each provider id.
    """

    cluster: str
    pools: Mapping[str, NodePool]
    nodeclasses: Mapping[str, EC2NodeClass]
    instances: Mapping[str, Instance]
    tags: Mapping[str, Mapping[str, str]]
    nodes: Mapping[str, Node]
    holders: Mapping[str, Sequence[str]]
    catalog: Catalog | None = None


def instance_named(manifest: Manifest) -> str:
    """Return the instance id that a NodeClaim states.

    Raises Rejected if the NodeClaim has no instance, or if its provider id is not one of EC2.
    """
    stated = provider_id(manifest)
    if not stated:
        raise Rejected(
            "status.providerID is missing: it has no instance. Let Karpenter launch it, or delete the NodeClaim; "
            "nodesmith buys nodes for its pods"
        )
    match = _PROVIDER_ID.fullmatch(stated)
    if match is None:
        raise Rejected(f"status.providerID is {stated[:80]!r}; expected aws:///ZONE/i-ID")
    return match["instance"]


def claim_of(manifest: Manifest, context: ClusterContext, now: datetime) -> NodeClaim:
    """Return the claim that a NodeClaim of Karpenter becomes. Raises Rejected, with field, value and remedy.

    Nothing in it differs from what Karpenter has recorded, so nothing drifts: hashes are taken over with their
    versions. An older version is renewed afterwards by Karpenter's own rule (`readiness.hashes`).
    """
    instance = _instance(manifest, context)
    parsed = parse_nodeclaim(_readable(manifest), now)
    if parsed.value is None:
        raise Rejected("; ".join(str(problem) for problem in parsed.problems if problem.fatal))
    claim = parsed.value
    pool = context.pools.get(claim.nodepool)
    _refuse_unknown(claim, pool, context)
    node = context.nodes.get(instance.provider_id)
    annotations = _annotations(manifest)
    claim = replace(
        claim,
        origin=KARPENTER if claim.nodepool else BY_HAND,
        annotations=FrozenMap({k: v for k, v in claim.annotations.items() if k not in _MADE}),
        nodepool_uid=_owner(manifest),
        nodepool_hash=annotations.get(NODEPOOL_HASH, ""),
        nodeclass_hash=annotations.get(NODECLASS_HASH, ""),
        budgets=pool.disruption.budgets if pool else (),
        **_versions(annotations),
    )
    return _in_size(_grown(_on_instance(claim, instance, context.catalog), manifest), node, manifest)


def _readable(manifest: Manifest) -> Mapping[str, Any]:
    """Return a NodeClaim without its status, which is read field by field."""
    return {name: part for name, part in manifest.items() if name != "status"}


def _instance(manifest: Manifest, context: ClusterContext) -> Instance:
    """Return the living instance of a NodeClaim. Raises Rejected if it is not proven to be this NodeClaim's."""
    id_, name = instance_named(manifest), str(manifest["metadata"]["name"])
    others = [each for each in context.holders.get(provider_id(manifest), ()) if each != name]
    if others:
        raise Rejected(f"status.providerID {provider_id(manifest)} is also that of NodeClaim {others[0]}")
    instance, tags = context.instances.get(id_), context.tags.get(id_, {})
    if instance is None or not instance.is_alive:
        raise Rejected(f"instance {id_} does not exist any more: delete the NodeClaim")
    if instance.provider_id != provider_id(manifest):
        raise Rejected(f"status.providerID is {provider_id(manifest)}, but EC2 says {instance.provider_id}")
    pool = (manifest["metadata"].get("labels") or {}).get(NODEPOOL)
    expected = {owned_tag(context.cluster): "owned", CLUSTER_TAG: context.cluster}
    expected |= {NODEPOOL: str(pool)} if pool else {}
    expected |= {NODECLAIM_TAG: name} if NODECLAIM_TAG in tags else {}
    for key, value in expected.items():
        if tags.get(key) != value:
            actual = repr(tags[key]) if key in tags else "no such tag"
            raise Rejected(f"instance {id_}: tag {key} must be {value!r}, found {actual}: it is another's")
    return instance


def _refuse_unknown(claim: NodeClaim, pool: NodePool | None, context: ClusterContext) -> None:
    if claim.nodeclass.label != NODECLASS or claim.nodeclass.name not in context.nodeclasses:
        valid = ", ".join(sorted(context.nodeclasses)) or "none"
        raise Rejected(
            f"spec.nodeClassRef names {claim.nodeclass.kind} {claim.nodeclass.name!r}, which is not found or invalid "
            f"(valid: {valid})"
        )
    if claim.nodepool and pool is None:
        valid = ", ".join(sorted(context.pools)) or "none"
        raise Rejected(f"NodePool {claim.nodepool!r} is not found or invalid (valid: {valid})")


def _versions(annotations: Mapping[str, str]) -> dict[str, Any]:
    """Return the versions of a claim's hashes. Raises Rejected for a version whose rules are unknown."""
    fields = (
        ("nodepool_hash_version", NODEPOOL_HASH, NODEPOOL_HASH_VERSION),
        ("nodeclass_hash_version", NODECLASS_HASH, NODECLASS_HASH_VERSION),
    )
    versions: dict[str, Any] = {}
    for field, annotation, current in fields:
        version = annotations.get(f"{annotation}-version", "") or (
            current if annotation not in annotations else "v1"
        )
        if _VERSION.fullmatch(version) is None or int(version[1:]) > int(current[1:]):
            raise Rejected(
                f"annotation {annotation}-version is {version[:20]!r}: this Karpenter is newer than nodesmith, which "
                f"knows up to {current}. Upgrade nodesmith first"
            )
        versions[field] = version
    return versions


def _on_instance(claim: NodeClaim, instance: Instance, catalog: Catalog | None) -> NodeClaim:
    offered = catalog.offerings.get(instance.instance_type, ()) if catalog else ()
    place = instance.zone, instance.capacity_type
    price = next((o.price_hourly_usd for o in offered if (o.zone, o.capacity_type) == place), 0.0)
    return replace(claim.on(instance), security_groups=instance.security_groups, price_hourly_usd=price)


def _grown(claim: NodeClaim, manifest: Manifest) -> NodeClaim:
    """Return the claim in the phase that its conditions show: Launched, Registered or Initialized.

    A NodeClaim with an instance is launched, even if Karpenter did not get to write the condition.
    """
    conditions = {str(c.get("type")): c for c in (manifest.get("status") or {}).get("conditions") or ()}
    history: list[Transition] = []
    for condition, phase in LIFE.items():
        stage = conditions.get(condition) or {}
        if phase is not Phase.LAUNCHED and stage.get("status") != "True":
            break
        at = _moment(stage.get("lastTransitionTime"), claim.created_at)
        reached: dict[str, Any] = {REACHED_AT[phase]: at}
        claim = replace(claim, phase=phase, phase_since=at, **reached)
        history.append(Transition(phase, at))
    drifted = conditions.get("Drifted") or {}
    if drifted.get("status") == "True":
        at = _moment(drifted.get("lastTransitionTime"), claim.phase_since)
        claim = replace(claim, drift=str(drifted.get("reason") or ""), drifted_at=at)
    return replace(claim, history=tuple(history))


def _moment(stated: object, otherwise: datetime) -> datetime:
    try:
        return parse_time(str(stated))
    except ValueError:
        return otherwise


def _in_size(claim: NodeClaim, node: Node | None, manifest: Manifest) -> NodeClaim:
    """Return the claim with what its Node shows or, until it is initialized, with what Karpenter expects of it."""
    if node is not None and claim.phase is not Phase.LAUNCHED:
        claim = replace(claim, node_name=node.name)
    if node is not None and claim.phase is Phase.INITIALIZED:
        return replace(claim, capacity=node.capacity, allocatable=node.allocatable)
    status = manifest.get("status") or {}
    try:
        sizes = (parse_resources(status.get(name)) for name in ("capacity", "allocatable"))
        capacity, allocatable = sizes
    except (TypeError, ValueError) as error:
        raise Rejected(f"status.capacity or status.allocatable: {error}") from None
    return replace(claim, capacity=capacity, allocatable=allocatable)


def _owner(manifest: Manifest) -> str:
    owners = manifest["metadata"].get("ownerReferences") or ()
    return next((str(o.get("uid")) for o in owners if o.get("kind") == "NodePool"), "")


def _annotations(manifest: Manifest) -> Mapping[str, str]:
    return manifest["metadata"].get("annotations") or {}


def holders_of(nodeclaims: Iterable[Manifest]) -> dict[str, list[str]]:
    """Return the names of the NodeClaims with each provider id."""
    by_provider: dict[str, list[str]] = {}
    for manifest in nodeclaims:
        if provider_id(manifest):
            by_provider.setdefault(provider_id(manifest), []).append(str(manifest["metadata"]["name"]))
    return by_provider


FINALIZER_GRACE = timedelta(minutes=5)
"""How long after the deletion the finalizer is left to Karpenter, which may run without being detected."""


def held_nodeclasses(snapshot: Snapshot, claims: Iterable[NodeClaim], now: datetime) -> list[str]:
    """Return the names of the deleted EC2NodeClasses that only Karpenter's finalizer keeps.

    One that a NodeClaim refers to is in use, whether nodesmith or Karpenter created the NodeClaim.
    """
    return sorted(name for name, at in _only_finalized(snapshot, claims) if at <= now)


def next_hold(snapshot: Snapshot, claims: Iterable[NodeClaim], now: datetime) -> datetime | None:
    """Return the first moment after `now` from which another EC2NodeClass counts as held, None if there is none."""
    return first_after(now, (at for _, at in _only_finalized(snapshot, claims)))


def _only_finalized(snapshot: Snapshot, claims: Iterable[NodeClaim]) -> Iterator[tuple[str, datetime]]:
    """Yield the deleted EC2NodeClasses that only the finalizer keeps, each with the end of `FINALIZER_GRACE`."""
    in_use = {claim.nodeclass.name for claim in claims} | set(map(nodeclass_name, snapshot.nodeclaims))
    for manifest in snapshot.nodeclasses:
        metadata = manifest["metadata"]
        deleted = metadata.get("deletionTimestamp")
        is_held = deleted and NODECLASS_FINALIZER in (metadata.get("finalizers") or ())
        if is_held and metadata["name"] not in in_use:
            yield str(metadata["name"]), parse_time(deleted) + FINALIZER_GRACE


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
