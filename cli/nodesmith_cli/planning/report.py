"""A plan as JSON, for scripts, the audit and the benchmarks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import fsum
from typing import TYPE_CHECKING, Any

from nodesmith.decisions.provisioning import Plan, PlannedNode, plan_item
from nodesmith.decisions.provisioning.plan import room_item
from nodesmith.model.apimachinery.quantities import format_resources
from nodesmith.model.karpenter.nodeclaims import NodeClaim

if TYPE_CHECKING:
    from nodesmith.decisions.disruption.costs import HeldNode

_DIGITS = 9


def plan_json(
    plan: Plan, seconds: float = 0.0, held: Sequence[HeldNode] = (), of_gangs: Collection[str] = ()
) -> dict[str, Any]:
    """Return a plan as JSON data. `seconds` is the duration of the decision; all else depends on the inputs only.

    A node's `zone` is its cheapest; of equally cheap zones, it is the one with the most instance types. `instanceTypes`
    are its options in that zone. Its `labels` come from its NodePool and pods, and its `requests` from pods and
    DaemonSets that will run on it. `existing` are existing and in-flight nodes that take pods. Every pod is
    `namespace/name`, and prices are USD an hour. If the NodeOverlay `overlay` has set a node's price, or a `commitment`
    pays for it, `listPriceHourly` is AWS's.

    With surcharges, `surchargeHourly` is their sum, and `costLowerBoundHourly` a lower bound on price and surcharges.
    If a NodePool's objective is LeastNodes, `nodesLowerBound` is a lower bound on the number of nodes.

    With CapacityBuffers, `capacityBuffers` has their room in pods and what it costs: `held` are the nodes that only
    they keep. A node to launch for them alone is marked `forBuffers`; with `stoppedHourly`, it is stopped once it is
    prepared and costs that from then on. `starts` are stopped instances that start, with the pods that they take.

    `of_gangs` are the names of nodes for ProvisioningRequests and PodGroups, which are marked `forGang`. The lower
    bound is that of the other nodes.
    """
    return {
        "nodes": [
            {**_node(node), **({"forGang": True} if node.claim.name in of_gangs else {})}
            for node in plan.nodes
        ],
        "existing": list(_existing(plan)),
        "unplaced": sorted(_unplaced(plan), key=lambda entry: str(entry["pod"])),
        "priceHourly": round(plan.price_hourly_usd, _DIGITS),
        "lowerBoundHourly": round(plan.bound_hourly_usd, _DIGITS),
        **_surcharged(plan),
        "seconds": round(seconds, 4),
        "steps": plan.steps,
        **({"starts": list(map(_start, plan.starts))} if plan.starts else {}),
        **({"capacityBuffers": _buffers(plan, held)} if plan.rooms else {}),
    }


def gang_names(report: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the nodes that ProvisioningRequests and PodGroups need, from a plan's JSON data."""
    return frozenset(str(node["name"]) for node in report["nodes"] if node.get("forGang"))


def without_room(report: Mapping[str, Any], excluded: Collection[str] = ()) -> Mapping[str, Any]:
    """Return a plan's JSON data without the nodes that wait for pods, which the audit does not verify.

    These are nodes for CapacityBuffers alone, and those with the names in `excluded`.
    """
    nodes = [node for node in report["nodes"] if not node.get("forBuffers") and node["name"] not in excluded]
    if len(nodes) == len(report["nodes"]):
        return report
    price = round(fsum(node["priceHourly"] for node in nodes), _DIGITS)
    return {**report, "nodes": nodes, "priceHourly": price}


def _buffers(plan: Plan, held: Sequence[HeldNode]) -> dict[str, Any]:
    return {
        "rooms": [room_item(room) for room in plan.rooms],
        "held": [
            {
                "node": node.claim.node_name or node.claim.name,
                "buffers": list(node.buffers),
                "priceHourly": round(node.price_hourly_usd, _DIGITS),
            }
            for node in held
        ],
        "heldHourly": round(fsum(node.price_hourly_usd for node in held), _DIGITS),
        "heldEstimated": any(node.estimated for node in held),
        "toLaunchHourly": round(plan.room_hourly_usd, _DIGITS),
        "toLaunchEstimated": any(node.estimated for node in plan.nodes if node.is_room),
    }


def _node(node: PlannedNode) -> dict[str, Any]:
    claim, offered = node.claim, node.request.overrides
    types = Counter(override.zone for override in offered)
    cheapest = min(offered, key=lambda o: (o.price_hourly_usd, -types[o.zone]))
    return {
        "name": claim.name,
        "nodePool": claim.nodepool,
        "instanceType": cheapest.instance_type,
        "instanceTypes": list(dict.fromkeys(o.instance_type for o in offered if o.zone == cheapest.zone)),
        "zone": cheapest.zone,
        "capacityType": claim.capacity_type,
        "priceHourly": round(node.price_hourly_usd, _DIGITS),
        **_overlaid(node),
        **(
            {"surchargeHourly": round(node.surcharge_hourly_usd, _DIGITS)}
            if node.surcharge_hourly_usd
            else {}
        ),
        **_commitment(node),
        "labels": dict(sorted(claim.labels.items())),
        "requests": format_resources(claim.requests),
        "pods": list(claim.nominated),
        **({"forBuffers": True} if node.is_room else {}),
        **({"stoppedHourly": round(claim.stopped_price_hourly_usd, _DIGITS)} if claim.buffer else {}),
    }


def _surcharged(plan: Plan) -> dict[str, Any]:
    sums = {
        "surchargeHourly": round(plan.surcharge_hourly_usd, _DIGITS),
        "costLowerBoundHourly": round(plan.cost_bound_hourly_usd, _DIGITS),
    }
    fewest = {"nodesLowerBound": plan.fewest} if plan.fewest else {}
    return {**(sums if plan.surcharge_hourly_usd else {}), **fewest}


def _start(claim: NodeClaim) -> dict[str, Any]:
    return {"name": claim.name, "buffer": claim.buffer, "pods": list(claim.nominated)}


def _overlaid(node: PlannedNode) -> dict[str, Any]:
    """Return AWS's price of a node if a NodeOverlay has set the one that the plan uses, and its name."""
    overlay = node.request.cheapest.overlay
    return (
        {"listPriceHourly": round(node.claim.price_hourly_usd, _DIGITS), "overlay": overlay}
        if overlay
        else {}
    )


def _commitment(node: PlannedNode) -> dict[str, Any]:
    """Return which commitments pay for a planned node, and what it would cost without them; empty if none do."""
    cheapest = node.request.cheapest
    if not cheapest.commitment:
        return {}
    return {"commitment": cheapest.commitment, "listPriceHourly": round(node.claim.price_hourly_usd, 9)}


def _existing(plan: Plan) -> Iterator[dict[str, Any]]:
    pods_by_node = {name: list(pods) for name, pods in (plan.placed or {}).items()}
    for pod, claim in (plan.waiting or {}).items():
        pods_by_node.setdefault(claim, []).append(pod)
    for name in sorted(pods_by_node):
        yield {"node": name, "pods": sorted(pods_by_node[name])}


def _unplaced(plan: Plan) -> Iterator[dict[str, str]]:
    """Yield every pod that stays pending: unplaced and ignored pods."""
    item: Mapping[str, Any] = plan_item(replace(plan, nodes=()))
    for group in (*item["unplaced"], *item["ignored"]):
        about = {name: str(group.get(name, "")) for name in ("reason", "nodePool", "blocking", "fix")}
        for pod in group["pods"]:
            yield {"pod": pod, **about}
