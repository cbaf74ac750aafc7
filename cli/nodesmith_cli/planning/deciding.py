"""The decision of a plan: first the missing nodes of static NodePools, then the nodes for pending pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from nodesmith.decisions.provisioning import Inputs, Plan, PlannedNode, decide, replicas
from nodesmith.decisions.provisioning.clusterstate import NO_TURN_YET
from nodesmith.decisions.provisioning.gangs import decide_gang, is_ours, obstacle, turns
from nodesmith.decisions.provisioning.plan import Unplaced
from nodesmith.model.apimachinery.quantities import total
from nodesmith.model.kubernetes.pods import Shape
from nodesmith.model.kubernetes.provisioningrequests import Gang, title
from nodesmith.model.snapshot import Snapshot
from nodesmith_formats.wording import counted


def planned(inputs: Inputs) -> Plan:
    """Return the plan. Nodes of static NodePools come first, and take the pods that fit on them."""
    lacking, refused = replicas(inputs)
    static = _missing(lacking, inputs)
    claims = (*inputs.ledger.claims, *(node.claim for node in static))
    plan = decide(replace(inputs, ledger=replace(inputs.ledger, claims=claims)))
    placed = dict(plan.placed or {})
    shapes = {pod.key: pod.shape for pod in inputs.snapshot.pods}
    served = tuple(_with_pods(node, placed.pop(node.claim.name, ()), shapes) for node in static)
    bought = {node.claim.nodepool for node in static}
    obstacles = {**(plan.obstacles or {}), **refused}
    return replace(
        plan,
        nodes=(*served, *plan.nodes),
        placed=placed,
        obstacles={name: reason for name, reason in obstacles.items() if name not in bought},
        bound_hourly_usd=plan.bound_hourly_usd + sum(node.price_hourly_usd for node in static),
        cost_bound_hourly_usd=plan.cost_bound_hourly_usd
        + sum(node.price_hourly_usd + node.surcharge_hourly_usd for node in static),
        fewest=plan.fewest + len(static) if plan.fewest else 0,
    )


def planned_requests(inputs: Inputs, plan: Plan) -> tuple[Plan, list[str]]:
    """Return the plan with the nodes for ProvisioningRequests, and a sentence on each of them.

    Requests are decided after the pods, each with the capacity that the earlier ones leave.
    """
    claims = (*inputs.ledger.claims, *(node.claim for node in plan.nodes))
    ledger, shared = replace(inputs.ledger, claims=claims), inputs.settings.shared_provisioning_classes
    nodes, messages, refused = list(plan.nodes), list[str](), dict[str, str]()
    placed = {name: list(pods) for name, pods in (plan.placed or {}).items()}
    for request in inputs.snapshot.requests:
        if is_ours(request, ledger, shared=shared) and (reason := obstacle(request, inputs.snapshot)):
            messages += [f"{title(request.key)} gets no room: {reason}"] if request.lacking != 0 else []
    for number, key in enumerate(turns(inputs.snapshot, ledger, inputs.now, shared=shared)):
        decision = f"{inputs.decision}-{number}"  # the names of its NodeClaims derive from it
        decided = decide_gang(replace(inputs, ledger=ledger, decision=decision), key)
        if decided is None or not decided.reserves:
            refused[key] = decided.gang.message if decided else ""
            messages.append(f"{title(key)} gets no room: {refused[key]}")
            continue
        pods_by_place = _members(decided.gang, inputs.snapshot)
        nodes += [_nominated(node, pods_by_place.pop(node.claim.name, ())) for node in decided.nodes]
        for place, pods in pods_by_place.items():
            placed.setdefault(place, []).extend(pods)
        bought = tuple(node.claim for node in decided.nodes)
        ledger = replace(ledger, claims=(*ledger.claims, *bought), gangs=(*ledger.gangs, decided.gang))
        existing = counted(len(decided.gang.places) - len(bought), "existing node")
        messages.append(f"{title(key)} gets room on {existing} and {counted(len(bought), 'new node')}")
    on_nodes = {key: tuple(pods) for key, pods in placed.items()}
    served = {key for pods in (*on_nodes.values(), *(node.claim.nominated for node in nodes)) for key in pods}
    waiting = (_without(group, served) for group in plan.ignored)
    ignored = tuple(_with_outcome(group, refused) for group in waiting if group.pods)
    return replace(plan, nodes=tuple(nodes), placed=on_nodes, ignored=ignored), messages


def _members(gang: Gang, snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """Return the pods of a group by the place that they get; empty for a request whose pods do not exist."""
    request = next(request for request in snapshot.requests if request.uid == gang.id)
    queues: list[list[str]] = []
    for pod_set in request.pod_sets if request.is_pod_group else ():
        shape = snapshot.podtemplates[f"PodTemplate/{request.namespace}/{pod_set.template}"].shape
        queues.append(sorted(pod.key for pod in snapshot.pods if pod.shape is shape and not pod.node))
    members: dict[str, tuple[str, ...]] = {}
    for place, counts in sorted(gang.places.items()):
        chosen = [queue[:count] for queue, count in zip(queues, counts, strict=False)]
        queues = [queue[count:] for queue, count in zip(queues, counts, strict=False)]
        if any(chosen):
            members[place] = tuple(key for keys in chosen for key in keys)
    return members


def _nominated(node: PlannedNode, pods: Sequence[str]) -> PlannedNode:
    return replace(node, claim=replace(node.claim, nominated=tuple(pods))) if pods else node


def _without(group: Unplaced, pods: Collection[str]) -> Unplaced:
    return replace(group, pods=tuple(key for key in group.pods if key not in pods))


def _with_outcome(group: Unplaced, refused: Mapping[str, str]) -> Unplaced:
    """Return the pods of a group. If they wait for the group's room and it gets none, their reason says why."""
    state = next(
        (reason for key, reason in refused.items() if group.reason.startswith(f"{title(key)} gets ")),
        "",
    )
    if not state or not group.reason.endswith(NO_TURN_YET):
        return group
    return replace(group, cause=replace(group.cause, text=group.reason.removesuffix(NO_TURN_YET) + state))


def _with_pods(node: PlannedNode, pods: Sequence[str], shapes: Mapping[str, Shape]) -> PlannedNode:
    requests = total([node.claim.requests, *(shapes[key].requests for key in pods)])
    return replace(node, claim=replace(node.claim, nominated=tuple(pods), requests=requests))


def _missing(lacking: Sequence[PlannedNode], inputs: Inputs) -> tuple[PlannedNode, ...]:
    """Return the missing nodes of static NodePools, less the existing nodes that have no NodeClaim."""
    claimed = {claim.provider_id for claim in inputs.ledger.claims if claim.provider_id}
    pools = {node.claim.nodepool for node in lacking}
    unclaimed = {
        pool: sum(node.provider_id not in claimed for node in inputs.snapshot.nodes_in(pool))
        for pool in pools
    }
    remaining, missing = Counter(unclaimed), list[PlannedNode]()
    for node in lacking:
        if remaining[node.claim.nodepool] > 0:
            remaining[node.claim.nodepool] -= 1
        else:
            missing.append(node)
    return tuple(missing)
