"""A cluster's NodeClaims and Nodes in the form of the ledger: existing and in-flight nodes.

`fleet_of` takes them at a time when they have been stable for a while. Files do not show when pods were last added or
removed, and often lack the NodeClaims. A Node of a NodePool therefore stands for its NodeClaim, and the newest pod on
it for its last pod event. Unless a live cluster is read, the time is one day after the youngest object, so that all
objects are at least that old.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from nodesmith.decisions.provisioning import Inputs
from nodesmith.decisions.shadow.fleet import claim_of, hourly_usd
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    NODEPOOL,
    ZONE,
)
from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.karpenter.nodeclaimobjects import parse_nodeclaim
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.karpenter.ownership import is_foreign
from nodesmith.model.kubernetes.nodes import Node
from nodesmith_formats.nodeclaims import with_warm_state

_REACHED = {"Launched": Phase.LAUNCHED, "Registered": Phase.REGISTERED, "Initialized": Phase.INITIALIZED}
"""Conditions in the order in which a NodeClaim reaches them."""
_QUIET = timedelta(days=1)


def claims(manifests: Iterable[Mapping[str, Any]], now: datetime) -> tuple[NodeClaim, ...]:
    """Return the NodeClaims of existing and in-flight nodes, sorted by name. Skips those being deleted."""
    return tuple(sorted(_claims(manifests, now), key=lambda claim: claim.name))


def priced(claims: Iterable[NodeClaim], catalog: Catalog) -> tuple[NodeClaim, ...]:
    """Return NodeClaims with the catalogue's prices, which limits in dollars compare. Objects do not have any."""
    return tuple(
        replace(claim, price_hourly_usd=hourly_usd(_sold_as(claim), catalog) or 0.0) for claim in claims
    )


def _sold_as(claim: NodeClaim) -> Mapping[str, str]:
    sold = {INSTANCE_TYPE: claim.instance_type, ZONE: claim.zone, CAPACITY_TYPE: claim.capacity_type}
    return {**claim.labels, **sold}


def _claims(manifests: Iterable[Mapping[str, Any]], now: datetime) -> Iterator[NodeClaim]:
    for manifest in manifests:
        if is_foreign(manifest):
            continue
        claim = parse_nodeclaim(manifest, now).value
        if claim is None or manifest["metadata"].get("deletionTimestamp"):
            continue
        status: Mapping[str, Any] = manifest.get("status") or {}
        reached = {c.get("type") for c in status.get("conditions") or () if c.get("status") == "True"}
        phase = next((p for name, p in reversed(_REACHED.items()) if name in reached), Phase.PENDING)
        conditions = {c.get("type"): c for c in status.get("conditions") or ()}
        reason = str(conditions.get("Registered", {}).get("reason") or "")
        completed = replace(
            claim,
            phase=phase,
            reason=reason if phase is Phase.LAUNCHED else "",
            annotations=FrozenMap(manifest["metadata"].get("annotations")),
            node_name=str(status.get("nodeName") or ""),
            provider_id=str(status.get("providerID") or ""),
            instance_type=claim.labels.get(INSTANCE_TYPE, ""),
            zone=claim.labels.get(ZONE, ""),
            capacity_type=claim.labels.get(CAPACITY_TYPE, ""),
            capacity=parse_resources(status.get("capacity")),
            allocatable=parse_resources(status.get("allocatable")),
        )
        yield with_warm_state(completed)


def fleet_of(inputs: Inputs, now: datetime | None = None) -> Inputs:
    """Return the inputs with a NodeClaim for every Node of a NodePool. `now` is None unless the cluster is live.

    That includes the Nodes of a missing or unreadable NodePool, so that the output can explain why they stay.
    """
    at = now or _youngest(inputs) + _QUIET
    snapshot = inputs.snapshot
    last: dict[str, datetime] = {}
    for pod in snapshot.pods:
        if pod.node and not pod.shape.is_daemon:
            last[pod.node] = max(pod.created_at, last.get(pod.node, pod.created_at))
    nodes = tuple(_with_pod_event(node, last.get(node.name)) for node in snapshot.nodes)
    current, pools = replace(snapshot, nodes=nodes, taken_at=at), parsed_nodepools(snapshot.nodepools)
    claims = [_as_old_as(claim, current.node_of(claim)) for claim in inputs.ledger.claims]
    claimed = {claim.provider_id for claim in claims}
    for node in nodes:
        name = node.labels.get(NODEPOOL)
        if name and node.provider_id not in claimed:
            claims.append(claim_of(node, name, pools.get(name)))
    return replace(
        inputs,
        snapshot=current,
        ledger=replace(
            inputs.ledger,
            claims=priced(sorted(claims, key=lambda claim: claim.name), inputs.catalog),
        ),
        now=at,
    )


def _youngest(inputs: Inputs) -> datetime:
    nodes, pods = inputs.snapshot.nodes, inputs.snapshot.pods
    return max((*(n.created_at for n in nodes), *(p.created_at for p in pods)), default=inputs.now)


def _with_pod_event(node: Node, last: datetime | None) -> Node:
    last_event = node.last_pod_event_at or last
    return replace(node, last_pod_event_at=last_event, provider_id=node.provider_id or f"plan:///{node.name}")


def _as_old_as(claim: NodeClaim, node: Node | None) -> NodeClaim:
    """Return an initialized NodeClaim with its times of initialization derived from its Node."""
    if claim.phase is not Phase.INITIALIZED or node is None:
        return claim
    since = max(claim.created_at, node.created_at)
    return replace(claim, phase_since=since, initialized_at=since, node_name=node.name)
