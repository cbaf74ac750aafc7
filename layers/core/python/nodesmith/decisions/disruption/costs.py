"""The price of nodes, in USD an hour, and the cost of disrupting their pods, in evictions.

The eviction cost is Karpenter's: 1 for an ordinary pod, adjusted by its priority and its deletion cost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from nodesmith.decisions.provisioning.buffers.room import room_of
from nodesmith.decisions.provisioning.buffers.spendinglimits import runs_something
from nodesmith.decisions.provisioning.clusterstate import living_claims
from nodesmith.decisions.provisioning.plan import Inputs
from nodesmith.decisions.scheduling.offerings.commitments import (
    Running,
    applied_now,
    marginal_prices,
    usage_of,
)
from nodesmith.decisions.scheduling.offerings.overlays import Overlays
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_TYPE, RESERVED, ZONE
from nodesmith.model.apimachinery.quantities import NOTHING, Resources
from nodesmith.model.ec2.catalog import Catalog, Offering, product_of, sold_as
from nodesmith.model.karpenter.capacitybuffers import is_room
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.kubernetes.pods import Pod, Shape

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_DELETION_SCALE, _PRIORITY_SCALE = 2.0**27, 2.0**25
_LEAST, _MOST = -10.0, 10.0
_JOB = "Job/"
EVICTION_MINUTES = 10
"""minutes of a pod's start that the price of an eviction covers"""
_INTEGER = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)


def moving(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return those of a node's pods that need another node when theirs goes.

    A pod that is being deleted does not, unless it belongs to a StatefulSet: it returns as soon as it is gone, not
    before.
    """
    return tuple(pod for pod in pods if pod.shape.moves and (not pod.deleting or pod.shape.comes_back))


def eviction_cost(shape: Shape) -> float:
    """Return the cost of evicting one pod of a shape, from -10 to 10.

    A deletion cost that is not a number counts as 0.
    """
    text = shape.annotations.get(DELETION_COST, "")
    deletion = int(text) if _INTEGER.fullmatch(text) else 0
    cost = 1.0 + deletion / _DELETION_SCALE + shape.priority / _PRIORITY_SCALE
    return max(_LEAST, min(_MOST, cost))


def harm_of(pods: Iterable[Pod]) -> float:
    """Return the total cost of evicting these pods. A pod with a negative cost does not offset others."""
    return sum(max(0.0, eviction_cost(pod.shape)) for pod in pods)


def startups(pods: Iterable[Pod]) -> dict[Shape, int]:
    """Return how many minutes pods of a shape take until they are Ready: the median of running pods, unless 0.

    The values are learned again from the running pods each time; values of departed pods are not remembered.
    """
    slow = {pod.shape for pod in pods if pod.startup_minutes}
    minutes_by_shape: dict[Shape, list[int]] = {shape: [] for shape in slow}
    for pod in pods if slow else ():
        if pod.shape in slow and pod.ready and pod.node:
            minutes_by_shape[pod.shape].append(pod.startup_minutes)
    middles = {
        shape: sorted(minutes)[len(minutes) // 2] for shape, minutes in minutes_by_shape.items() if minutes
    }
    return {shape: minutes for shape, minutes in middles.items() if minutes}


def lost_usd(
    pods: Iterable[Pod], node: Node, price_hourly_usd: float, now: datetime, learned: Mapping[Shape, int]
) -> float:
    """Return the cost of moving a node's pods in addition to the evictions, in USD.

    Pods of Jobs start over, so all they have done since their creation is lost: the longer they have run, the better
    they are left to finish. Other pods are lost for as long as they take until they are Ready, beyond the ten minutes
    that the price of an eviction covers; `learned` has these minutes by shape. An hour of a pod costs its share of the
    node's price: the greater of its shares of the node's allocatable cpu and memory.
    """
    loss = 0.0
    for pod in pods:
        hours = max(0, learned.get(pod.shape, EVICTION_MINUTES) - EVICTION_MINUTES) / 60
        if pod.shape.owner.startswith(_JOB):
            hours += max(timedelta(0), now - pod.created_at) / timedelta(hours=1)
        if hours:
            loss += hours * price_hourly_usd * _share(pod.shape.requests, node.allocatable)
    return loss


def _share(requests: Resources, offered: Resources) -> float:
    return max(requests.of(name) / max(1, offered.of(name)) for name in ("cpu", "memory"))


def overlaid_price(
    claim: NodeClaim, node: Node, catalog: Catalog, overlays: Overlays, pool: NodePool | None
) -> float:
    """Return the present price of a node as decisions see it: the one that a NodeOverlay sets, or `price_of`."""
    listed = price_of(claim, node, catalog)
    if pool is None or not overlays.applied or not listed:
        return listed
    price = overlays.price_of(pool, *_sold_as(claim, node))
    return listed if price is None else price


def price_of(claim: NodeClaim, node: Node, catalog: Catalog) -> float:
    """Return AWS's present price of a node in USD an hour, even if no other is available; 0 if it is unknown.

    Reserved capacity is paid for in any case, so it costs nothing.
    """
    offering = offering_of(claim, node, catalog)
    return offering.price_hourly_usd if offering else 0.0


def offering_of(claim: NodeClaim, node: Node, catalog: Catalog) -> Offering | None:
    """Return the catalogue's offering of a node, or None if it is unknown or reserved."""
    kind, zone, capacity_type = _sold_as(claim, node)
    if capacity_type == RESERVED:
        return None
    product = product_of({**claim.labels, **node.labels})
    offerings = (
        o for o in sold_as(catalog, kind, product) if (o.zone, o.capacity_type) == (zone, capacity_type)
    )
    return next((offering for offering in offerings if not offering.reservation), None)


def unpriced(claim: NodeClaim, node: Node, catalog: Catalog) -> str:
    """Return the reason why a node's price is unknown; empty if it is known."""
    kind, zone, capacity_type = _sold_as(claim, node)
    if capacity_type == RESERVED or price_of(claim, node, catalog) > 0:
        return ""
    if kind not in catalog.facts:
        return f"its instance type {kind!r} is not in the catalogue"
    return f"the catalogue has no price for {kind} ({capacity_type}) in {zone}"


def saved_by_ending(inputs: Inputs) -> Mapping[str, float]:
    """Return what ending each on-demand node would save, by claim, where commitments change that; else empty.

    USD an hour: a node that commitments pay for costs nothing.
    """
    applied = applied_now(inputs.ledger, inputs.catalog, inputs.now)
    if applied is None:
        return {}
    snapshot, requested = inputs.snapshot, dict[str, Resources]()
    for pod in snapshot.pods:
        if pod.node and pod.shape.moves:
            requested[pod.node] = requested.get(pod.node, NOTHING) + pod.shape.requests
    running = []
    for claim in living_claims(inputs):
        node = snapshot.node_of(claim)
        if node is not None and usage_of((claim,)):
            share = _share(requested.get(node.name, NOTHING), node.allocatable)
            price = price_of(claim, node, inputs.catalog)
            running.append(Running(claim.name, claim.instance_type, claim.zone, price, share))
    return marginal_prices(running, applied)


@dataclass(frozen=True, slots=True)
class HeldNode:
    """A claim that only CapacityBuffers (namespace/name) keep, and its present price in USD an hour."""

    claim: NodeClaim
    buffers: tuple[str, ...]
    price_hourly_usd: float
    estimated: bool = False


def held_for_buffers(inputs: Inputs) -> tuple[HeldNode, ...]:
    """Return the nodes that run no pods and are kept, or are being launched, because buffers have room there.

    DaemonSet and static pods do not count. Room on nodes that run pods costs nothing in addition.
    """
    snapshot, buffers = inputs.snapshot, dict[str, set[str]]()
    for pod, name in room_of(inputs).items() if snapshot.capacitybuffers else ():
        buffers.setdefault(name, set()).add(f"{pod.shape.namespace}/{pod.shape.owner.partition('/')[2]}")
    names_in_use = {
        name for pod in snapshot.pods if runs_something(pod.shape) for name in (pod.node, pod.nominated_node)
    }
    held_nodes = []
    for claim in living_claims(inputs):
        node = snapshot.node_of(claim)
        name = snapshot.host_of(claim)
        awaited = node is None and not all(map(is_room, claim.nominated))
        if name in buffers and name not in names_in_use and not awaited:
            price, is_estimated = claim.price_hourly_usd, False
            if node is not None:
                offering = offering_of(claim, node, inputs.catalog)
                price, is_estimated = (
                    (offering.price_hourly_usd, offering.estimated) if offering else (0.0, False)
                )
            held_nodes.append(HeldNode(claim, tuple(sorted(buffers[name])), price, is_estimated))
    return tuple(held_nodes)


def _sold_as(claim: NodeClaim, node: Node) -> tuple[str, str, str]:
    """Return instance type, zone and capacity type."""
    labels = node.labels
    return (
        labels.get(INSTANCE_TYPE) or claim.instance_type,
        labels.get(ZONE) or claim.zone,
        labels.get(CAPACITY_TYPE) or claim.capacity_type,
    )
