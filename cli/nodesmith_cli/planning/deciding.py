"""The decision of a plan: first the missing nodes of static NodePools, then the nodes for pending pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nodesmith.decisions.provisioning import Inputs, Plan, PlannedNode, decide, replicas
from nodesmith.model.apimachinery.resources import total
from nodesmith.model.kubernetes.pods import Shape


def planned(inputs: Inputs) -> Plan:
    """Return the plan. Nodes of static NodePools come first, and take the pods that fit on them."""
    lacking, refused = replicas(inputs)
    static = _missing(lacking, inputs)
    claims = (*inputs.ledger.claims, *(node.claim for node in static))
    plan = decide(replace(inputs, ledger=replace(inputs.ledger, claims=claims)))
    taken = dict(plan.placed or {})
    shapes = {pod.key: pod.shape for pod in inputs.snapshot.pods}
    served = tuple(_with_pods(node, taken.pop(node.claim.name, ()), shapes) for node in static)
    bought = {node.claim.nodepool for node in static}
    obstacles = {**(plan.obstacles or {}), **refused}
    return replace(
        plan,
        nodes=(*served, *plan.nodes),
        placed=taken,
        obstacles={name: why for name, why in obstacles.items() if name not in bought},
        bound_hourly_usd=plan.bound_hourly_usd + sum(node.price_hourly_usd for node in static),
    )


def _with_pods(node: PlannedNode, pods: Sequence[str], shapes: Mapping[str, Shape]) -> PlannedNode:
    requests = total([node.claim.requests, *(shapes[key].requests for key in pods)])
    return replace(node, claim=replace(node.claim, nominated=tuple(pods), requests=requests))


def _missing(lacking: Sequence[PlannedNode], inputs: Inputs) -> tuple[PlannedNode, ...]:
    """Return the missing nodes of static NodePools, less the existing nodes that have no NodeClaim."""
    known = {claim.provider_id for claim in inputs.ledger.claims if claim.provider_id}
    pools = {node.claim.nodepool for node in lacking}
    there = {
        pool: sum(node.provider_id not in known for node in inputs.snapshot.nodes_in(pool)) for pool in pools
    }
    left, kept = Counter(there), list[PlannedNode]()
    for node in lacking:
        if left[node.claim.nodepool] > 0:
            left[node.claim.nodepool] -= 1
        else:
            kept.append(node)
    return tuple(kept)
