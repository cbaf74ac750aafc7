"""Gangs: room for all pods of a ProvisioningRequest at once, on existing nodes and on new ones, or for none of them.

Each decision is about one request. Requests take turns by namespace, oldest first. Pods that wait for a node come
before requests: a request gets what they leave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from nodesmith.decisions.provisioning.clusterstate import (
    Rooms,
    effective_snapshot,
    living_claims,
    needs,
    reserved,
    shapes_of,
    too_many_nodes,
    unconsumed,
    with_sources_closed,
)
from nodesmith.decisions.provisioning.nodepools.tiers import pools
from nodesmith.decisions.provisioning.plan import Inputs, Plan, PlannedNode, inputs_of, plan_item, record
from nodesmith.decisions.provisioning.planner import Planner, Search
from nodesmith.decisions.provisioning.reasons import NO_NODEPOOL, left_of
from nodesmith.decisions.scheduling.demands import by_shape
from nodesmith.decisions.scheduling.preferences import PreferenceMode
from nodesmith.model.apimachinery.frozen import canonical
from nodesmith.model.apimachinery.labels import ZONE
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.karpenter.nodeclaims import COMING, Phase
from nodesmith.model.kubernetes.pods import Pod, PodTemplate, planned_pods
from nodesmith.model.kubernetes.provisioningrequests import (
    ACCEPTED,
    Gang,
    GangStage,
    Places,
    ProvisioningRequest,
)
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot

BOOKED_FOR = timedelta(minutes=10)
"""How long room is kept for the pods of a request: Cluster Autoscaler's time."""
MOST_PURCHASES, PURCHASES_FOR = 8, timedelta(minutes=10)
"""How often, and for how long since the first time, nodes are bought for a request before it is rolled back."""
LAUNCH_FOR = timedelta(minutes=20)
"""How long the nodes of a request may take to become ready."""
FIRST_RETRY, LONGEST_RETRY = timedelta(minutes=1), timedelta(minutes=10)
"""The wait before a request that found no room is tried again; it doubles each time. Cluster Autoscaler's times."""
NOT_FOUND, FOUND, BOUGHT = "CapacityIsNotFound", "CapacityIsFound", "CapacityIsProvisioned"
EXPIRED, REVOKED, NO_PODS = "Expired", "CapacityRevoked", "FailedToCreatePods"
"""Reasons of conditions. All but the last but one are Cluster Autoscaler's, which never revokes capacity."""
TEMPLATE_WITHIN = timedelta(minutes=1)
"""How long after a request its PodTemplates may come: snapshots show objects of two kinds in any order."""
_MOST_MESSAGE = 1000
_SERVING = COMING | {Phase.INITIALIZED}


@dataclass(frozen=True, slots=True)
class GangDecision:
    """The next state of a gang, with the nodes to buy for it.

    `reserves` is whether it takes room, which must be committed on the condition that no other decision has taken it.
    """

    gang: Gang
    nodes: tuple[PlannedNode, ...] = ()
    reserves: bool = False


def record_gang(inputs: Inputs, decided: GangDecision, snapshot_digest: str) -> dict[str, Any]:
    """Return the record of a decision about a request. `replay_gang` repeats it."""
    written = record(inputs, Plan(nodes=decided.nodes), snapshot_digest, {})
    return {**written, "request": decided.gang.request}


def replay_gang(written: Mapping[str, Any], snapshot: Snapshot, catalog: Catalog) -> bytes:
    """Repeat a decision about a request; return its plan in the same bytes as `canonical(written["plan"])`."""
    decided = decide_gang(inputs_of(written, snapshot, catalog), written["request"])
    return canonical(plan_item(Plan(nodes=decided.nodes if decided is not None else ())))


def turns(snapshot: Snapshot, ledger: Ledger, now: datetime, *, shared: bool) -> list[str]:
    """Return the requests (namespace/name) to decide about now, in the order of their turns.

    Those that something has been done for come first. The others take turns by namespace, oldest first.
    """
    gangs = {gang.id: gang for gang in ledger.gangs}
    open_requests = [request for request in snapshot.requests if is_ours(request, ledger, shared=shared)]
    started = [r for r in open_requests if r.uid in gangs and gangs[r.uid].is_due(now)]
    new = [r for r in open_requests if r.uid not in gangs and not obstacle(r, snapshot)]
    counts: Counter[str] = Counter()
    order: list[tuple[int, datetime, str]] = []
    for request in sorted(new, key=lambda r: (r.created_at, r.key)):
        order.append((counts[request.namespace], request.created_at, request.key))
        counts[request.namespace] += 1
    first = sorted(started, key=lambda r: (gangs[r.uid].created_at, r.key))
    return [*(request.key for request in first), *(key for _, _, key in sorted(order))]


def is_ours(request: ProvisioningRequest, ledger: Ledger, *, shared: bool) -> bool:
    """Return whether nodesmith serves a request that is not over.

    A request that is Accepted although the ledger has no gang for it has been accepted by another autoscaler.
    """
    if request.is_over or request.is_deleted:
        return False
    is_begun = any(gang.id == request.uid for gang in ledger.gangs)
    return is_begun or (request.is_served(shared=shared) and ACCEPTED not in request.conditions)


def obstacle(request: ProvisioningRequest, snapshot: Snapshot) -> str:
    """Return what is wrong with a request, in a sentence; empty if it can be decided about."""
    if request.faults:
        return "; ".join(request.faults)[:_MOST_MESSAGE]
    templates = (pod_set.template for pod_set in request.pod_sets)
    missing = sorted({name for name in templates if _template(snapshot, request, name) is None})
    if not missing:
        return ""
    return f"PodTemplate {request.namespace}/{missing[0]} does not exist: create it before the request"


def next_turn(snapshot: Snapshot, ledger: Ledger, now: datetime, *, shared: bool) -> datetime | None:
    """Return when provisioning must look at requests again even if nothing changes; None for never."""
    gangs = {gang.id for gang in ledger.gangs}
    own_requests = [request for request in snapshot.requests if is_ours(request, ledger, shared=shared)]
    new = any(request.uid not in gangs and not obstacle(request, snapshot) for request in own_requests)
    if new or any(gang.stage is GangStage.LAUNCHING for gang in ledger.gangs):
        return now
    retries = (gang.retry_at for gang in ledger.gangs if gang.stage is GangStage.WAITING)
    return min((at for at in retries if at is not None), default=None)


def decide_gang(inputs: Inputs, key: str) -> GangDecision | None:
    """Return the next step for the request `key` (namespace/name), None if there is nothing to do for now."""
    request = next((candidate for candidate in inputs.snapshot.requests if candidate.key == key), None)
    if request is None:
        return None
    gang = next((candidate for candidate in inputs.ledger.gangs if candidate.id == request.uid), None)
    if gang is None:
        return _reserve(request, _new_gang(request, inputs), inputs)
    match gang.stage:
        case GangStage.WAITING if gang.is_due(inputs.now):
            return _reserve(request, gang, inputs)
        case GangStage.LAUNCHING:
            return _followed(request, gang, inputs)
        case GangStage.PROVISIONED if gang.keeps_room(inputs.now):
            return _renewed(request, gang, inputs)
        case _:
            return None


def _new_gang(request: ProvisioningRequest, inputs: Inputs) -> Gang:
    templates = [_template(inputs.snapshot, request, pod_set.template) for pod_set in request.pod_sets]
    sets = tuple(template.shape.requests for template in templates if template is not None)
    return Gang(request.uid, request.key, GangStage.WAITING, inputs.now, inputs.now, sets)


def _reserve(request: ProvisioningRequest, gang: Gang, inputs: Inputs) -> GangDecision:
    """Reserve room for all pods of a request, or record that there is none."""
    now = inputs.now
    room = find_room(request, [pod_set.count for pod_set in request.pod_sets], inputs)
    if room.reason:
        return GangDecision(without_room(request, gang, room.reason, now))
    launching = gang.at(
        GangStage.LAUNCHING,
        now,
        places=room.places,
        claims=tuple(node.claim.name for node in room.nodes),
        purchases=1,
        bought_at=now,
        retry_at=None,
        reason=NOT_FOUND,
        message=_waiting(room.places),
    )
    under_way = {claim.name for claim in inputs.ledger.claims if claim.phase is not Phase.INITIALIZED}
    is_there = not room.nodes and under_way.isdisjoint(room.places)
    return GangDecision(
        _booked(request, launching, now) if is_there else launching, room.nodes, reserves=True
    )


def without_room(request: ProvisioningRequest | None, gang: Gang, message: str, now: datetime) -> Gang:
    """Return the gang of a request that got no room: it waits for its next turn, or has failed."""
    failures = gang.failures + 1
    outcome = {"claims": (), "places": {}, "failures": failures, "message": message[:_MOST_MESSAGE]}
    if request is None or request.fails_at_once:
        return _failed(gang, now, reason=NOT_FOUND, **outcome)
    retry_at = now + min(LONGEST_RETRY, FIRST_RETRY * 2 ** min(failures - 1, 10))
    is_late = retry_at > request.created_at + timedelta(seconds=request.valid_seconds)
    if is_late and not request.is_pod_group:
        return _failed(gang, now, reason=EXPIRED, **outcome)
    waits = {"purchases": 0, "bought_at": None, "retry_at": retry_at, "reason": NOT_FOUND, **outcome}
    if gang.stage is GangStage.WAITING:
        return replace(gang, **waits)
    return gang.at(GangStage.WAITING, now, **waits)


def _failed(gang: Gang, now: datetime, **changes: object) -> Gang:
    return gang.at(GangStage.FAILED, now, retry_at=None, **changes)


def _waiting(places: Places) -> str:
    return f"waiting until all of its {len(places)} node{'s' * (len(places) != 1)} are ready"


def _booked(request: ProvisioningRequest, gang: Gang, now: datetime) -> Gang:
    until = now + BOOKED_FOR
    return gang.at(
        GangStage.PROVISIONED,
        now,
        booked_until=until,
        reason=FOUND if request.is_check else BOUGHT,
        message=f"there is room for all of its pods, which is kept for them until {until:%H:%M:%S} UTC",
    )


def _followed(request: ProvisioningRequest, gang: Gang, inputs: Inputs) -> GangDecision | None:
    """Replace nodes that did not come; see whether all are ready; give up what does not come in time."""
    now, kept = inputs.now, _KeptRoom.of(gang, inputs)
    if sum(kept.missing):
        late = gang.bought_at is not None and now - gang.bought_at > PURCHASES_FOR
        if gang.purchases >= MOST_PURCHASES or late:
            return _rolled_back(gang, _loss(kept), now)
        room = find_room(request, kept.missing, kept.seen(inputs))
        return _rolled_back(gang, _loss(kept, room.reason), now) if room.reason else _moved(gang, kept, room)
    coming = {claim.name for claim in inputs.ledger.claims if claim.phase is not Phase.INITIALIZED}
    if coming.isdisjoint({*gang.places, *gang.claims}):
        return GangDecision(_booked(request, gang, now))
    if now - gang.stage_since > LAUNCH_FOR:
        minutes = LAUNCH_FOR.total_seconds() / 60
        return _rolled_back(gang, f"its nodes were not ready within {minutes:g} minutes", now)
    return None


def _renewed(request: ProvisioningRequest, gang: Gang, inputs: Inputs) -> GangDecision | None:
    """Find other room for pods that are still to come if nodes with their room are gone.

    Once all pods of the request have come, no room needs to be kept.
    """
    kept = _KeptRoom.of(gang, inputs)
    if kept.is_consumed and gang.places:
        return GangDecision(replace(gang, places={}, claims=()))
    if not sum(kept.missing):
        return None
    room = find_room(request, kept.missing, kept.seen(inputs))
    if not room.reason and gang.purchases < MOST_PURCHASES:
        return _moved(gang, kept, room)
    revoked = {"reason": REVOKED, "message": _loss(kept, room.reason), "claims": (), "places": {}}
    return GangDecision(gang.at(GangStage.REVOKED, inputs.now, **revoked))


def _rolled_back(gang: Gang, message: str, now: datetime) -> GangDecision:
    return GangDecision(gang.at(GangStage.ROLLING_BACK, now, message=message[:_MOST_MESSAGE]))


def _loss(kept: _KeptRoom, reason: str = "") -> str:
    message = f"{sum(kept.missing)} of its pods lost their room: nodes did not come, or are gone"
    end = f"and there is no other room: {reason}" if reason else "too often or for too long"
    return f"{message}, {end}"


def _moved(gang: Gang, kept: _KeptRoom, room: Room) -> GangDecision:
    """Return the gang with other room in place of what is missing."""
    places = {place: counts for place, counts in kept.places.items() if any(counts)}
    for place, counts in room.places.items():
        before = places.get(place, (0,) * len(counts))
        places[place] = tuple(map(sum, zip(before, counts, strict=True)))
    new_claims = tuple(node.claim.name for node in room.nodes)
    claims = (*(name for name in gang.claims if name in kept.serving), *new_claims)
    changed = replace(gang, places=places, claims=claims, purchases=gang.purchases + 1)
    if gang.stage is GangStage.LAUNCHING:
        changed = replace(changed, message=_waiting(places))
    return GangDecision(changed, room.nodes, reserves=True)


class _KeptRoom(NamedTuple):
    """What a gang still has: its `places`, the pods `missing` of each set, and its claims that are `serving`.

    `is_consumed` is whether all of its pods are on nodes.
    """

    gang: Gang
    places: Mapping[str, tuple[int, ...]]
    missing: tuple[int, ...]
    serving: frozenset[str]
    is_consumed: bool

    @classmethod
    def of(cls, gang: Gang, inputs: Inputs) -> _KeptRoom:
        """Compare a gang's room with the nodes. While its nodes come, others may have taken room on those that are.

        Nodes in zones that are shifted away take no pods.
        """
        others = tuple(other for other in inputs.ledger.gangs if other.id != gang.id)
        without = replace(inputs, ledger=replace(inputs.ledger, gangs=others))
        snapshot = with_sources_closed(effective_snapshot(without), inputs.ledger)
        claims = [claim for claim in living_claims(inputs) if claim.phase in _SERVING]
        free, away = reserved(snapshot, (), without).free, inputs.ledger.shifted(inputs.now)
        rooms = Rooms((node for node in free if node.labels.get(ZONE) not in away), snapshot, claims)
        booked = gang.stage is GangStage.PROVISIONED
        unused, shapes = unconsumed(gang, snapshot, rooms, booked=booked), shapes_of(gang, snapshot)
        missing = [0] * len(gang.sets)
        places: dict[str, tuple[int, ...]] = {}
        for place, counts in sorted(gang.places.items()):
            if place not in rooms:
                missing = [a + b for a, b in zip(missing, unused[place], strict=True)]
                continue
            still = tuple(unused[place])
            available = still if booked else map(rooms.take, [place] * len(counts), shapes, still)
            fitting = tuple(c - s + t for c, s, t in zip(counts, still, available, strict=True))
            missing = [a + b - c for a, b, c in zip(missing, counts, fitting, strict=True)]
            places[place] = fitting
        is_consumed = not any(map(any, unused.values()))
        return cls(gang, places, tuple(missing), frozenset(claim.name for claim in claims), is_consumed)

    def seen(self, inputs: Inputs) -> Inputs:
        """Return the inputs with the gang as it is without what is missing."""
        now_here = replace(self.gang, places=self.places)
        gangs = tuple(now_here if gang.id == self.gang.id else gang for gang in inputs.ledger.gangs)
        return replace(inputs, ledger=replace(inputs.ledger, gangs=gangs))


class Room(NamedTuple):
    """Room for pods, or in `reason` a sentence on why there is none for some of them."""

    places: Places
    nodes: tuple[PlannedNode, ...] = ()
    reason: str = ""


def find_room(request: ProvisioningRequest, counts: Sequence[int], inputs: Inputs) -> Room:
    """Find room for so many pods of each set: on nodes that are ready, and on new ones unless it is only a check."""
    if problem := obstacle(request, inputs.snapshot):
        return Room({}, reason=problem)
    sets = _planned(request, counts, inputs)
    pods = [pod for pods_of_set in sets for pod in pods_of_set]
    snapshot = with_sources_closed(effective_snapshot(inputs), inputs.ledger)
    capacity = reserved(snapshot, needs(snapshot, inputs).wanted, inputs)
    state = inputs.ledger, inputs.catalog, inputs.settings, inputs.now
    offers = pools(snapshot, *state, nodes_of_trial=max(1, len(pods)))
    if request.is_check:
        offers = replace(offers, tiers=())
    known_shapes = [shape for existing in capacity.free for shape in (*existing.hosted, *existing.expected)]
    planner = Planner(inputs, offers, dict(by_shape([*pods, *capacity.fresh])), known_shapes)
    if capacity.fresh:  # pods that wait and fit on existing nodes will be there before those of the request
        planner.assign(capacity.fresh, capacity.free, PreferenceMode.RULE)
    ready = [existing for existing in capacity.free if not (existing.in_flight and request.is_check)]
    attempt, _ = Search(planner, pods, ready).best(PreferenceMode.RULE)
    unserved = left_of(attempt, offers)
    if attempt.left:
        first = min(reason for _, reason in unserved)
        is_full = request.is_check and first.blocking == NO_NODEPOOL
        cause = "the nodes that are ready have too little room, and none is bought" if is_full else first
        # What the others would take counts as used in the cause.
        beside = " once the others have theirs" if len(unserved) < len(pods) and not is_full else ""
        return Room({}, reason=f"{len(unserved)} of {len(pods)} pods find no place{beside}: {cause}")
    if message := too_many_nodes(len(attempt.purchase.nodes), len(attempt.assignment.placed), inputs):
        return Room({}, reason=message)
    new_nodes = planner.written_down(attempt.purchase)
    # planned pods will never be bound under their names
    nodes = tuple(replace(node, claim=replace(node.claim, nominated=())) for node in new_nodes)
    placed = {**attempt.assignment.placed, **{node.claim.name: node.claim.nominated for node in new_nodes}}
    return Room(_places(placed, sets, Rooms(ready, snapshot, living_claims(inputs))), nodes)


def _planned(request: ProvisioningRequest, counts: Sequence[int], inputs: Inputs) -> list[list[Pod]]:
    pods_by_set = []
    for number, (pod_set, count) in enumerate(zip(request.pod_sets, counts, strict=not request.is_pod_group)):
        template = _template(inputs.snapshot, request, pod_set.template)
        if template is None:  # `obstacle` has said so
            continue
        owner, priority = f"ProvisioningRequest/{request.name}/{number}", template.shape.priority
        pods_by_set.append(planned_pods(template, owner, count, request.created_at, priority))
    return pods_by_set


def _template(snapshot: Snapshot, request: ProvisioningRequest, name: str) -> PodTemplate | None:
    return snapshot.podtemplates.get(f"PodTemplate/{request.namespace}/{name}")


def _places(
    placed: Mapping[str, Iterable[str]], sets: Sequence[Sequence[Pod]], rooms: Rooms
) -> dict[str, tuple[int, ...]]:
    """Count the pods of each set by place; `placed` is pods by the name of an existing node or new NodeClaim."""
    set_of = {pod.key: number for number, pods in enumerate(sets) for pod in pods}
    places: dict[str, tuple[int, ...]] = {}
    for name, keys in sorted(placed.items()):
        counts = Counter(set_of[key] for key in keys)
        if counts:
            places[rooms.place_of(name)] = tuple(counts[number] for number in range(len(sets)))
    return places
