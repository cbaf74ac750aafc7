"""The cluster as the inputs of nodesmith's decisions, as if nodesmith managed all of its priced nodes.

Nodes of NodePools stand for their NodeClaims. All other priced nodes belong to one NodePool that buys nothing, which
allows any of them to be moved. Nodes of unknown price stay as they are on both sides and take no pods.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from nodesmith.decisions.provisioning import Inputs, as_read
from nodesmith.decisions.shadow.fleet import OTHERS, lasting_claim
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import (
    CAPACITY_TYPE,
    DISRUPTED,
    DO_NOT_DISRUPT,
    INITIALIZED,
    NODEPOOL,
    ON_DEMAND,
    RESERVED,
    SPOT,
)
from nodesmith.model.apimachinery.requirements import Requirements, requirement
from nodesmith.model.ec2.instancetypes import instance_types
from nodesmith.model.karpenter.nodepools import NodePool, parsed_nodepools
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.model.snapshot import Snapshot
from nodesmith_cli.costs.savings.nodeprices import PricedNode, nodepool_of

_QUIET = timedelta(days=1)
_PAID = (ON_DEMAND, RESERVED)
_MANY = 1_000_000


def with_accumulated_budgets(nodepool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a NodePool with budgets that allow in one step all that they would allow over time.

    Budgets limit how fast nodes are replaced. One that allows no node at any time is kept.
    """
    spec = nodepool.get("spec") if isinstance(nodepool.get("spec"), Mapping) else {}
    disruption = spec.get("disruption") if isinstance(spec, Mapping) else None
    budgets = (disruption.get("budgets") if isinstance(disruption, Mapping) else None) or ()
    never = [
        budget
        for budget in (budgets if isinstance(budgets, Sequence) else ())
        if isinstance(budget, Mapping)
        and str(budget.get("nodes")) in ("0", "0%")
        and not budget.get("schedule")
    ]
    wider = {
        **(disruption if isinstance(disruption, Mapping) else {}),
        "budgets": never or [{"nodes": "100%"}],
    }
    return {**nodepool, "spec": {**spec, "disruption": wider}} if spec else dict(nodepool)


@dataclass(frozen=True, slots=True)
class Adopted:
    """A cluster in the form in which nodesmith would manage it.

    `pinned` are the pods (namespace/name) that stay on on-demand capacity; in `free` they may go anywhere.
    """

    inputs: Inputs
    free: Inputs
    pinned: frozenset[str]


def adopted(inputs: Inputs, nodes: Sequence[PricedNode]) -> Adopted:
    """Return the cluster with a NodeClaim for every priced node, a day after the last pod came or went.

    Pods without a node are left out on both sides, and so are pods of Nodes that do not exist. Pods on on-demand nodes
    stay on on-demand capacity unless the NodePool of their node allows spot.
    """
    pools = parsed_nodepools(inputs.snapshot.nodepools)
    at = _latest(inputs) + _QUIET
    types = {kind.name: kind.labels for kind in instance_types(inputs.catalog, NodeConfiguration())}
    current = tuple(_seen(entry, at, types.get(entry.instance_type, {})) for entry in nodes)
    claims = tuple(
        lasting_claim(node, nodepool_of(entry) or OTHERS, pools)
        for entry, node in zip(nodes, current, strict=True)
        if entry.price is not None
    )
    names = {node.name for node in current}
    pods = tuple(pod for pod in inputs.snapshot.pods if pod.node in names)
    budgets = tuple(
        replace(budget, disruptions_allowed=_MANY) if budget.disruptions_allowed > 0 else budget
        for budget in inputs.snapshot.budgets
    )
    snapshot = replace(inputs.snapshot, nodes=current, pods=pods, taken_at=at, budgets=budgets, nodeclaims=())
    ledger = replace(inputs.ledger, claims=tuple(sorted(claims, key=lambda claim: claim.name)), moves=())
    free = replace(inputs, snapshot=snapshot, ledger=as_read(ledger, snapshot), now=at)
    pinned = frozenset(pod.key for pod in pods if pod.node in _on_demand(nodes, pools))
    return Adopted(replace(free, snapshot=on_demand_only(snapshot, pinned)), free, pinned)


def _latest(inputs: Inputs) -> datetime:
    """Return the time of the reading, or that of the youngest object if clocks differ."""
    young = (*(n.created_at for n in inputs.snapshot.nodes), *(p.created_at for p in inputs.snapshot.pods))
    return max((*young, inputs.now))


def _seen(priced_node: PricedNode, at: datetime, of_type: Mapping[str, str]) -> Node:
    """Return a node as an initialized one with the labels of its type; one of unknown price takes no pods."""
    node = priced_node.node
    labels = dict(of_type) | {
        key: value for key, value in node.labels.items() if key != NODEPOOL or priced_node.owner.is_ours
    }
    lasting = tuple(taint for taint in node.taints if taint.identity != DISRUPTED.identity)
    return replace(
        node,
        labels=FrozenMap({**labels, INITIALIZED: "true"}),
        provider_id=node.provider_id or f"savings:///{node.name}",
        taints=lasting if priced_node.price is not None else (*lasting, DISRUPTED),
        deleting=False,
        created_at=min(node.created_at, at - _QUIET),
        last_pod_event_at=at - _QUIET,
    )


def _on_demand(nodes: Iterable[PricedNode], pools: Mapping[str, NodePool]) -> set[str]:
    """Return the names of on-demand nodes without a NodePool, or with one that allows only on-demand."""
    return {
        node.name
        for node in nodes
        if node.capacity_type in _PAID and not _allows_spot(pools.get(nodepool_of(node)))
    }


def _allows_spot(pool: NodePool | None) -> bool:
    if pool is None:
        return False
    requirement_of_type = pool.requirements.get(CAPACITY_TYPE)
    return requirement_of_type is None or requirement_of_type.allows(SPOT)


def on_demand_only(snapshot: Snapshot, keys: Collection[str]) -> Snapshot:
    """Return the snapshot with these pods requiring capacity that is not spot."""
    paid = requirement(CAPACITY_TYPE, "In", _PAID)

    def narrowed(terms: tuple[Requirements, ...]) -> tuple[Requirements, ...]:
        return tuple(term.adding(paid) for term in terms)

    def pinned(shape: Shape) -> Shape:
        return replace(shape, terms=narrowed(shape.terms), own_terms=narrowed(shape.own_terms))

    chosen = frozenset(keys)
    return reshaped(snapshot, lambda pod: pinned if pod.key in chosen and not pod.shape.is_daemon else None)


def reshaped(snapshot: Snapshot, change_of: Any) -> Snapshot:
    """Return the snapshot with changed shapes. `change_of` returns the change of a pod's shape, or None.

    Pods of one shape with the same change share one shape afterwards, too.
    """
    shapes: dict[tuple[Shape, Any], Shape] = {}
    pods: list[Pod] = []
    for pod in snapshot.pods:
        change = change_of(pod)
        if change is None:
            pods.append(pod)
            continue
        key = pod.shape, change
        if key not in shapes:
            shapes[key] = change(pod.shape)
        pods.append(replace(pod, shape=shapes[key]))
    return replace(snapshot, pods=tuple(pods))


def unprotected(shape: Shape) -> Shape:
    """Return a shape that may be moved at any time, regardless of its annotations and its owner."""
    annotations = {key: text for key, text in shape.annotations.items() if key != DO_NOT_DISRUPT}
    return replace(shape, annotations=FrozenMap(annotations), owner=shape.owner or "Pod/")
