"""Gangs: room for all pods of a ProvisioningRequest or none, its stages, its booking, and what its conditions say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.disruption.candidates import CandidateSelection
from nodesmith.decisions.disruption.search.search import propose
from nodesmith.decisions.lifecycle import registrations
from nodesmith.decisions.lifecycle.gangs import advanced, endings, is_done, next_change, status_updates
from nodesmith.decisions.provisioning import Inputs, canonical, decide
from nodesmith.decisions.provisioning.clusterstate import Rooms, needs, unconsumed
from nodesmith.decisions.provisioning.gangs import (
    BOOKED_FOR,
    LAUNCH_FOR,
    MOST_PURCHASES,
    GangDecision,
    decide_gang,
    next_turn,
    record_gang,
    replay_gang,
    turns,
)
from nodesmith.decisions.scheduling.existing import existing_nodes
from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.commands import End, GiveUp
from nodesmith.model.ec2.zonalshifts import ZonalShift
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.kubernetes.pods import Pod, PodTemplate
from nodesmith.model.kubernetes.provisioningrequests import (
    CONSUMES,
    ONWARD,
    Gang,
    GangStage,
    ProvisioningRequest,
    gang_item,
    parse_request,
    read_gang,
)
from nodesmith.model.ledger.items import ledger_item, read_ledger
from tests import builders
from tests.builders import NOW
from tests.objects.fleets import fleet, running, worker
from tests.scenarios.gangs import CHECK, request_manifest

LARGE = [*builders.EXPRESS, builders.expression("karpenter.k8s.aws/instance-cpu", "In", "4")]
POOL = builders.nodepool_manifest(requirements=LARGE)
KEY = "default/job"


def request(*counts: int, **how: Any) -> ProvisioningRequest:
    return parse_request(request_manifest("job", *counts, **how))


def templates(*cpus: str) -> dict[str, PodTemplate]:
    made = [PodTemplate("PodTemplate", f"job-{n}", builders.shape(cpu)) for n, cpu in enumerate(cpus)]
    return {each.key: each for each in made}


def given(
    *requests: ProvisioningRequest,
    cpus: Sequence[str] = ("3",),
    nodepool: Mapping[str, Any] = POOL,
    ledger: Mapping[str, Any] | None = None,
    **snapshot: Any,
) -> Inputs:
    seen = builders.snapshot(
        nodepools=(nodepool,), requests=requests, podtemplates=templates(*cpus), **snapshot
    )
    return builders.inputs(snapshot=seen, ledger=builders.ledger(**(ledger or {})))


def decided(inputs: Inputs, key: str = KEY) -> GangDecision:
    found = decide_gang(inputs, key)
    assert found is not None
    return found


def gang(stage: GangStage = GangStage.LAUNCHING, **fields: Any) -> Gang:
    """Return a gang of three pods on two nodes that were bought for it."""
    known: dict[str, Any] = {
        "sets": (builders.shape("3").requests,),
        "claims": ("default-a", "default-b"),
        "places": {"default-a": (2,), "default-b": (1,)},
        "purchases": 1,
        "bought_at": NOW,
    }
    made = Gang(request(3).uid, KEY, stage, NOW, NOW, **known)
    return replace(made, **fields)


def claims(*phases: Phase) -> tuple[NodeClaim, ...]:
    offered = parse_resources({"cpu": "8", "memory": "32Gi", "pods": "58"})
    known = {"capacity_type": "spot", "allocatable": offered, "capacity": offered}
    names = zip(("default-a", "default-b"), phases, strict=True)
    return tuple(builders.claim(name, phase=phase, **known) for name, phase in names)


def nodes_of(*of: NodeClaim) -> tuple[Node, ...]:
    return tuple(
        builders.node(f"node-{each.name}", cpu="8", provider_id=each.provider_id, labels=builders.READY)
        for each in of
    )


def consumers(count: int, node: str = "", name: str = "job", cpu: str = "3") -> list[Pod]:
    shape = replace(builders.shape(cpu), annotations={CONSUMES: name})
    return builders.pods(shape, count, prefix=f"{name}-{node}", node=node)


def later(inputs: Inputs, wait: timedelta) -> Inputs:
    return replace(inputs, now=NOW + wait)


# Decisions


def test_a_gang_gets_nodes_for_all_pods_in_one_commit() -> None:
    found = decided(given(request(3)))
    assert (found.gang.stage, found.reserves) == (GangStage.LAUNCHING, True)
    assert found.gang.claims == tuple(node.claim.name for node in found.nodes)
    assert sum(count for counts in found.gang.places.values() for count in counts) == 3
    assert len(found.nodes) == 3
    assert all(not node.claim.nominated for node in found.nodes), "no pod of that name will come"


def test_a_gang_gets_no_node_if_the_nodepools_limits_leave_room_for_a_part_of_it() -> None:
    short = builders.nodepool_manifest(requirements=LARGE, limits={"cpu": "8"})
    found = decided(given(request(3), nodepool=short))
    assert (found.gang.stage, found.nodes, found.reserves) == (GangStage.FAILED, (), False)
    assert found.gang.reason == "CapacityIsNotFound"
    assert found.gang.message.startswith(
        "1 of 3 pods find no place once the others have theirs: NodePool default: its limit of 8 cpu is reached (8"
    )


def test_a_nodepool_whose_nodes_did_not_join_is_tried_with_a_whole_gang() -> None:
    late = [builders.claim(name, launched_at=NOW, instance_type="m5.xlarge") for name in ("a", "b")]
    gone = [GiveUp(each.given_up("RegistrationTimeout", "no Node has registered", NOW)) for each in late]
    health = registrations(gone, builders.ledger(), parsed_nodepools((POOL,)), NOW)
    inputs = given(request(3), ledger={"health": health})
    assert "tried again after" in decided(later(inputs, timedelta(minutes=1))).gang.message
    after = later(inputs, timedelta(minutes=6))
    assert len(decided(after).nodes) == 3
    plain = replace(after.snapshot, requests=(), pods=tuple(builders.pods(builders.shape("3"), 3)))
    assert len(decide(replace(after, snapshot=plain)).nodes) == 1


def test_existing_room_is_used_before_nodes_are_bought() -> None:
    found = decided(given(request(3), nodes=(builders.node("own", cpu="4"),)))
    assert found.gang.places["own"] == (1,)
    assert len(found.nodes) == 2


def test_several_pod_sets_are_placed_together() -> None:
    found = decided(given(request(2, 4), cpus=("3", "1")))
    assert [sum(each) for each in zip(*found.gang.places.values(), strict=True)] == [2, 4]


def test_a_check_reserves_room_on_ready_nodes_and_buys_nothing() -> None:
    nodes = tuple(builders.node(f"own-{n}", cpu="4") for n in range(3))
    found = decided(given(request(3, class_name=CHECK), nodes=nodes))
    assert (found.gang.stage, found.nodes, found.reserves) == (GangStage.PROVISIONED, (), True)
    assert found.gang.reason == "CapacityIsFound"
    assert found.gang.booked_until == NOW + BOOKED_FOR


def test_a_check_without_room_says_so_and_not_that_there_is_no_nodepool() -> None:
    found = decided(given(request(3, class_name=CHECK), nodes=(builders.node("own", cpu="4"),)))
    assert found.gang.message == (
        "2 of 3 pods find no place: the nodes that are ready have too little room, and none is bought"
    )


@pytest.mark.parametrize(
    ("parameters", "stage"), [({}, GangStage.WAITING), ({"noRetry": "true"}, GangStage.FAILED)]
)
def test_a_check_without_room_waits_or_fails_as_it_asks(parameters: dict[str, str], stage: GangStage) -> None:
    asked = request(3, class_name=CHECK, parameters=parameters)
    found = decided(given(asked, nodes=(builders.node("own", cpu="4"),)))
    assert (found.gang.stage, found.nodes, found.gang.reason) == (stage, (), "CapacityIsNotFound")


def test_a_request_that_waits_is_tried_again_with_growing_waits_until_it_is_no_longer_valid() -> None:
    asked = request(3, class_name=CHECK, parameters={"ValidUntilSeconds": "400"})
    inputs, waits = given(asked), []
    for _ in range(9):
        found = decided(inputs)
        inputs = replace(inputs, ledger=replace(inputs.ledger, gangs=(found.gang,)))
        if found.gang.is_over:
            break
        assert found.gang.retry_at is not None
        assert decide_gang(inputs, KEY) is None, "before that, nothing is done"
        waits.append((found.gang.retry_at - inputs.now).total_seconds())
        inputs = replace(inputs, now=found.gang.retry_at)
    assert waits == [60, 120]
    assert (found.gang.stage, found.gang.reason) == (GangStage.FAILED, "Expired")


def test_pods_that_wait_come_before_requests() -> None:
    waiting = builders.pods(builders.shape("3"), 1)
    found = decided(given(request(1), nodes=(builders.node("own", cpu="4"),), pods=tuple(waiting)))
    assert "own" not in found.gang.places
    assert len(found.nodes) == 1


def test_a_request_does_not_take_the_room_of_an_earlier_one() -> None:
    held = gang(
        GangStage.PROVISIONED, places={"own": (1,)}, claims=(), booked_until=NOW + BOOKED_FOR, id="other"
    )
    found = decided(given(request(1), nodes=(builders.node("own", cpu="4"),), ledger={"gangs": (held,)}))
    assert "own" not in found.gang.places


def test_requests_take_turns_by_namespace_oldest_first() -> None:
    def asked(name: str, namespace: str, seconds: int) -> ProvisioningRequest:
        made = request_manifest(name, 1, namespace=namespace, created_at=NOW + timedelta(seconds=seconds))
        return parse_request(made)

    requests = [asked("a1", "a", 0), asked("a2", "a", 1), asked("a3", "a", 2), asked("b1", "b", 5)]
    known = {
        f"PodTemplate/{each.namespace}/{each.name}-0": PodTemplate(
            "PodTemplate", f"{each.name}-0", builders.shape()
        )
        for each in requests
    }
    seen = builders.snapshot(requests=tuple(requests), podtemplates=known)
    assert turns(seen, builders.ledger(), NOW, shared=True) == ["a/a1", "b/b1", "a/a2", "a/a3"]
    assert turns(seen, builders.ledger(), NOW, shared=False) == []


def test_a_request_that_another_autoscaler_has_accepted_is_left_alone() -> None:
    manifest = request_manifest("job", 1)
    manifest["status"] = {"conditions": [{"type": "Accepted", "status": "True"}]}
    inputs = given(parse_request(manifest))
    assert turns(inputs.snapshot, inputs.ledger, NOW, shared=True) == []
    assert list(status_updates(inputs.ledger, inputs.snapshot, NOW, shared=True)) == []


def test_a_request_that_is_begun_is_finished_although_its_class_is_no_longer_served() -> None:
    inputs = given(request(3), ledger={"gangs": (gang(),)})
    assert turns(inputs.snapshot, inputs.ledger, NOW, shared=False) == [KEY]
    assert list(status_updates(inputs.ledger, inputs.snapshot, NOW, shared=False))


def test_a_decision_about_a_request_is_replayed_with_the_same_bytes() -> None:
    inputs = given(request(3))
    written = json.loads(canonical(record_gang(inputs, decided(inputs), "digest")))
    assert replay_gang(written, inputs.snapshot, inputs.catalog) == canonical(written["plan"])
    assert len(written["plan"]["nodes"]) == 3


# While its nodes come


def test_a_gang_is_provisioned_only_when_all_of_its_nodes_are_ready() -> None:
    for phases in ((Phase.PENDING, Phase.INITIALIZED), (Phase.INITIALIZED, Phase.REGISTERED)):
        coming = claims(*phases)
        there = nodes_of(*(c for c in coming if c.phase is not Phase.PENDING))
        inputs = given(request(3), nodes=there, ledger={"claims": coming, "gangs": (gang(),)})
        assert decide_gang(inputs, KEY) is None
    ready = claims(Phase.INITIALIZED, Phase.INITIALIZED)
    found = decided(given(request(3), nodes=nodes_of(*ready), ledger={"claims": ready, "gangs": (gang(),)}))
    assert (found.gang.stage, found.gang.reason) == (GangStage.PROVISIONED, "CapacityIsProvisioned")
    assert found.gang.booked_until == NOW + BOOKED_FOR


@pytest.mark.parametrize("phase", [Phase.LAUNCHED, Phase.STARTING])
def test_room_on_a_node_that_has_joined_and_is_not_registered_is_not_lost(phase: Phase) -> None:
    there = claims(Phase.INITIALIZED, phase)
    inputs = given(request(3), ledger={"claims": there, "gangs": (gang(),)}, nodes=nodes_of(*there))
    assert decide_gang(inputs, KEY) is None


def test_a_node_that_did_not_come_is_replaced_and_the_others_stay() -> None:
    came = (claims(Phase.INITIALIZED, Phase.INITIALIZED)[0],)
    inputs = given(request(3), nodes=nodes_of(*came), ledger={"claims": came, "gangs": (gang(),)})
    found = decided(inputs)
    assert (found.gang.stage, found.gang.purchases, len(found.nodes)) == (GangStage.LAUNCHING, 2, 1)
    assert found.gang.places["default-a"] == (2,)
    assert "default-b" not in found.gang.claims


@pytest.mark.parametrize(
    ("fields", "wait"),
    [({"purchases": MOST_PURCHASES}, timedelta()), ({}, timedelta(minutes=11))],
    ids=["too often", "too long"],
)
def test_a_gang_whose_nodes_do_not_come_is_rolled_back_within_a_bounded_time(
    fields: dict[str, Any], wait: timedelta
) -> None:
    came = (claims(Phase.INITIALIZED, Phase.INITIALIZED)[0],)
    inputs = given(request(3), nodes=nodes_of(*came), ledger={"claims": came, "gangs": (gang(**fields),)})
    found = decided(later(inputs, wait))
    assert (found.gang.stage, found.nodes) == (GangStage.ROLLING_BACK, ())


def test_a_gang_is_rolled_back_if_there_is_no_other_room() -> None:
    came = (claims(Phase.INITIALIZED, Phase.INITIALIZED)[0],)
    short = builders.nodepool_manifest(requirements=LARGE, limits={"nodes": "1"})
    inputs = given(
        request(3), nodes=nodes_of(*came), nodepool=short, ledger={"claims": came, "gangs": (gang(),)}
    )
    found = decided(inputs)
    assert (found.gang.stage, found.nodes) == (GangStage.ROLLING_BACK, ())
    assert "1 of its pods lost their room" in found.gang.message


def test_a_gang_whose_nodes_never_get_ready_is_rolled_back() -> None:
    coming = claims(Phase.LAUNCHED, Phase.LAUNCHED)
    inputs = given(request(3), ledger={"claims": coming, "gangs": (gang(),)})
    assert decide_gang(later(inputs, LAUNCH_FOR), KEY) is None
    found = decided(later(inputs, LAUNCH_FOR + timedelta(seconds=1)))
    assert found.gang.stage is GangStage.ROLLING_BACK


def test_room_that_other_pods_took_meanwhile_is_found_elsewhere() -> None:
    ready = claims(Phase.INITIALIZED, Phase.INITIALIZED)
    there = nodes_of(*ready)
    others = builders.bind(builders.shape("3"), there[0].name, 1)
    inputs = given(request(3), nodes=there, pods=tuple(others), ledger={"claims": ready, "gangs": (gang(),)})
    found = decided(inputs)
    assert found.gang.stage is GangStage.LAUNCHING
    assert found.gang.places == {"default-a": (1,), "default-b": (2,)}


# Booking


def booked(**fields: Any) -> Gang:
    return gang(GangStage.PROVISIONED, booked_until=NOW + BOOKED_FOR, **fields)


def test_pods_that_do_not_consume_a_request_get_no_room_that_is_kept_for_it() -> None:
    ready = claims(Phase.INITIALIZED, Phase.INITIALIZED)
    strangers = tuple(builders.pods(builders.shape("3"), 2))
    inputs = given(
        request(3), nodes=nodes_of(*ready), pods=strangers, ledger={"claims": ready, "gangs": (booked(),)}
    )
    plan = decide(inputs)
    assert sum(map(len, (plan.placed or {}).values())) == 1, "one node has room for a third pod"
    assert sum(len(node.claim.nominated) for node in plan.nodes) == 1
    free_again = decide(later(inputs, BOOKED_FOR))
    assert not free_again.nodes


def test_pods_that_consume_a_request_wait_for_their_room_and_nothing_is_bought_for_them() -> None:
    ready = claims(Phase.INITIALIZED, Phase.INITIALIZED)
    inputs = given(
        request(3),
        nodes=nodes_of(*ready),
        pods=tuple(consumers(3)),
        ledger={"claims": ready, "gangs": (booked(),)},
    )
    plan = decide(inputs)
    assert not plan.nodes
    assert sorted((plan.waiting or {}).values()) == ["default-a", "default-a", "default-b"]


def test_pods_beyond_the_room_of_their_request_are_pods_like_others() -> None:
    ready = claims(Phase.INITIALIZED, Phase.INITIALIZED)
    inputs = given(
        request(3),
        nodes=nodes_of(*ready),
        pods=tuple(consumers(5)),
        ledger={"claims": ready, "gangs": (booked(),)},
    )
    plan = decide(inputs)
    assert len(plan.waiting or {}) == 3
    assert sum(map(len, (plan.placed or {}).values())) + sum(len(n.claim.nominated) for n in plan.nodes) == 2


def test_a_pod_that_runs_has_consumed_its_room_wherever_it_runs() -> None:
    ready = claims(Phase.INITIALIZED, Phase.INITIALIZED)
    there = nodes_of(*ready)
    pods = [*consumers(1, there[0].name), *consumers(2)]
    inputs = given(request(3), nodes=there, pods=tuple(pods), ledger={"claims": ready, "gangs": (booked(),)})
    assert sorted((decide(inputs).waiting or {}).values()) == ["default-a", "default-b"]


def test_room_is_no_longer_kept_once_all_pods_have_come() -> None:
    ready = claims(Phase.INITIALIZED, Phase.INITIALIZED)
    there = nodes_of(*ready)
    pods = [*consumers(2, there[0].name), *consumers(1, there[1].name)]
    inputs = given(request(3), nodes=there, pods=tuple(pods), ledger={"claims": ready, "gangs": (booked(),)})
    found = decided(inputs)
    assert (found.gang.stage, found.gang.places, found.gang.claims) == (GangStage.PROVISIONED, {}, ())


@pytest.mark.parametrize(
    ("requests", "gangs", "bought"),
    [
        ((), (), 0),
        ((request(3),), (), 0),
        ((request(3),), (gang(GangStage.WAITING),), 0),
        ((request(3, class_name="queued-provisioning.gke.io"),), (), 0),
        ((request(3),), (gang(GangStage.EXPIRED, booked_until=NOW, places={}),), 1),
    ],
    ids=["missing", "new", "waiting", "another's", "expired"],
)
def test_nothing_is_bought_for_pods_whose_request_has_no_room_yet(
    requests: tuple[ProvisioningRequest, ...], gangs: tuple[Gang, ...], bought: int
) -> None:
    inputs = given(*requests, pods=tuple(consumers(1)), ledger={"gangs": gangs})
    assert len(decide(inputs).nodes) == bought
    ignored = [why for _, why in needs(inputs.snapshot, inputs).ignored]
    assert [KEY in why for why in ignored] == [True] * (1 - bought)


def test_a_node_with_room_for_a_request_is_not_disrupted_until_the_booking_ends() -> None:
    ready = claims(Phase.INITIALIZED, Phase.INITIALIZED)
    inputs = given(request(3), nodes=nodes_of(*ready), ledger={"claims": ready, "gangs": (booked(),)})
    blocked = CandidateSelection(inputs).blocked
    assert {name: blocker.rule for name, blocker in blocked.items()} == {
        "default-a": "Booked",
        "default-b": "Booked",
    }
    assert not CandidateSelection(later(inputs, BOOKED_FOR)).blocked


def test_other_pods_move_into_what_is_left_beside_the_room_of_a_request() -> None:
    kept, underused = worker("kept"), worker("underused")
    pods = running(builders.shape("500m", "1Gi"), {"kept": 1, "underused": 1})
    inputs = fleet([kept, underused], pods)
    asked = replace(inputs.snapshot, requests=(request(1),), podtemplates=templates("1"))
    room = booked(sets=(builders.shape("1").requests,), claims=(), places={kept.claim.name: (1,)})
    inputs = replace(inputs, snapshot=asked, ledger=replace(inputs.ledger, gangs=(room,)))
    (proposal,) = propose(inputs).proposals
    assert proposal.sources == (underused.claim.name,)
    assert set(proposal.destinations.values()) == {kept.node.name}


def test_room_that_is_lost_while_it_is_kept_is_found_elsewhere_or_revoked() -> None:
    kept = (claims(Phase.INITIALIZED, Phase.INITIALIZED)[0],)
    ledger = {"claims": kept, "gangs": (booked(),)}
    found = decided(given(request(3), nodes=nodes_of(*kept), ledger=ledger))
    assert (found.gang.stage, len(found.nodes)) == (GangStage.PROVISIONED, 1)
    short = builders.nodepool_manifest(requirements=LARGE, limits={"nodes": "1"})
    lost = decided(given(request(3), nodes=nodes_of(*kept), nodepool=short, ledger=ledger))
    assert (lost.gang.stage, lost.gang.reason) == (GangStage.REVOKED, "CapacityRevoked")


# Ends and conditions


@pytest.mark.parametrize("stage", [GangStage.LAUNCHING, GangStage.PROVISIONED])
def test_room_in_a_zone_that_is_shifted_away_is_found_elsewhere(stage: GangStage) -> None:
    there = claims(Phase.INITIALIZED, Phase.INITIALIZED)
    kept = gang(stage, booked_until=NOW + BOOKED_FOR if stage is GangStage.PROVISIONED else None)
    known = {"claims": there, "gangs": (kept,)}
    away = ZonalShift(builders.ZONES[0], "z-1", NOW + timedelta(hours=1), "zonal shift")
    found = decided(given(request(3), ledger={**known, "zonal_shifts": (away,)}, nodes=nodes_of(*there)))
    assert set(found.gang.places) == {node.claim.name for node in found.nodes}
    zones = [node.claim.requirements["topology.kubernetes.io/zone"].values for node in found.nodes]
    assert zones
    assert all(builders.ZONES[0] not in each for each in zones)


def test_a_rolled_back_gang_ends_what_was_bought_and_fails_once_it_is_gone() -> None:
    rolling = gang(GangStage.ROLLING_BACK, message="too few")
    came = claims(Phase.LAUNCHED, Phase.INITIALIZED)
    inputs = given(request(3), nodes=nodes_of(came[1]), ledger={"claims": came, "gangs": (rolling,)})
    commands = endings(inputs.ledger, inputs.snapshot, NOW)
    assert [type(command) for command in commands] == [GiveUp, End]
    assert advanced(inputs.ledger, inputs.snapshot, NOW) == []
    (failed,) = advanced(replace(inputs.ledger, claims=()), inputs.snapshot, NOW)
    assert (failed.stage, failed.claims, failed.message) == (GangStage.FAILED, (), "too few")


def test_the_end_of_a_rolled_back_gang_does_not_count_against_its_nodepool() -> None:
    rolling = gang(GangStage.ROLLING_BACK)
    came = claims(Phase.LAUNCHED, Phase.LAUNCHED)
    inputs = given(request(3), ledger={"claims": came, "gangs": (rolling,)})
    commands = endings(inputs.ledger, inputs.snapshot, NOW)
    pools = parsed_nodepools(inputs.snapshot.nodepools)
    assert len(commands) == 2
    assert registrations(commands, inputs.ledger, pools, NOW) == {}


def test_a_node_that_runs_other_pods_is_left_to_them() -> None:
    rolling = gang(GangStage.ROLLING_BACK)
    came = claims(Phase.INITIALIZED, Phase.INITIALIZED)
    there = nodes_of(*came)
    pods = (*builders.bind(builders.shape(), there[0].name), *builders.bind(builders.daemon(), there[1].name))
    inputs = given(request(3), nodes=there, pods=pods, ledger={"claims": came, "gangs": (rolling,)})
    assert [command.claim.name for command in endings(inputs.ledger, inputs.snapshot, NOW)] == ["default-b"]


def test_a_deleted_request_is_rolled_back_and_forgotten() -> None:
    inputs = given(ledger={"claims": claims(Phase.LAUNCHED, Phase.LAUNCHED), "gangs": (gang(),)})
    (rolling,) = advanced(inputs.ledger, inputs.snapshot, NOW)
    assert rolling.stage is GangStage.ROLLING_BACK
    assert not is_done(rolling, inputs.snapshot)
    (failed,) = advanced(replace(inputs.ledger, claims=(), gangs=(rolling,)), inputs.snapshot, NOW)
    assert is_done(failed, inputs.snapshot)


def test_a_gang_that_is_newer_than_the_snapshot_is_neither_rolled_back_nor_forgotten() -> None:
    launching = given(ledger={"claims": claims(Phase.PENDING, Phase.PENDING), "gangs": (gang(),)})
    earlier = replace(launching.snapshot, taken_at=NOW - timedelta(seconds=1))
    assert advanced(launching.ledger, earlier, NOW) == []
    assert not is_done(booked(), earlier)
    assert not is_done(gang(GangStage.FAILED), earlier)


def test_a_booking_expires_after_ten_minutes() -> None:
    inputs = given(request(3), ledger={"gangs": (booked(),)})
    assert advanced(inputs.ledger, inputs.snapshot, NOW + timedelta(minutes=9, seconds=59)) == []
    assert next_change(inputs.ledger, inputs.snapshot, NOW, shared=True) == NOW + timedelta(minutes=10)
    (expired,) = advanced(inputs.ledger, inputs.snapshot, NOW + timedelta(minutes=10))
    assert (expired.stage, expired.reason) == (GangStage.EXPIRED, "CapacityReservationTimeExpired")


def shown(inputs: Inputs, wait: timedelta = timedelta()) -> list[tuple[str, str, str]]:
    updates = list(status_updates(inputs.ledger, inputs.snapshot, NOW + wait, shared=True))
    return [(c["type"], c["status"], c["reason"]) for _, _, status in updates for c in status["conditions"]]


@pytest.mark.parametrize(
    ("stage", "reason", "condition"),
    [
        (GangStage.WAITING, "CapacityIsNotFound", ("Provisioned", "False")),
        (GangStage.LAUNCHING, "CapacityIsNotFound", ("Provisioned", "False")),
        (GangStage.ROLLING_BACK, "CapacityIsNotFound", ("Provisioned", "False")),
        (GangStage.PROVISIONED, "CapacityIsProvisioned", ("Provisioned", "True")),
        (GangStage.FAILED, "CapacityIsNotFound", ("Failed", "True")),
        (GangStage.EXPIRED, "CapacityReservationTimeExpired", ("BookingExpired", "True")),
        (GangStage.REVOKED, "CapacityRevoked", ("CapacityRevoked", "True")),
    ],
)
def test_each_stage_shows_its_condition_until_the_request_has_it(
    stage: GangStage, reason: str, condition: tuple[str, str]
) -> None:
    inputs = given(request(3), ledger={"gangs": (gang(stage, reason=reason, message="m"),)})
    assert shown(inputs) == [("Accepted", "True", "Accepted"), (*condition, reason)]
    rows = [(*each, m) for each, m in zip(shown(inputs), ("nodesmith serves the request", "m"), strict=True)]
    there = replace(request(3), shown=tuple(rows))
    assert shown(replace(inputs, snapshot=replace(inputs.snapshot, requests=(there,)))) == []


def test_a_request_whose_podtemplate_is_missing_fails_after_a_minute_with_its_name() -> None:
    inputs = given(request(3, 1))
    assert decide_gang(inputs, KEY) is not None
    assert turns(inputs.snapshot, inputs.ledger, NOW, shared=True) == []
    assert next_turn(inputs.snapshot, inputs.ledger, NOW, shared=True) is None
    assert shown(inputs) == []
    assert shown(inputs, timedelta(minutes=1)) == [("Failed", "True", "FailedToCreatePods")]
    ((_, _, status),) = status_updates(
        inputs.ledger, inputs.snapshot, NOW + timedelta(minutes=1), shared=True
    )
    assert "PodTemplate default/job-1 does not exist" in status["conditions"][0]["message"]


def test_a_gang_is_forgotten_when_its_request_shows_the_end_or_is_gone() -> None:
    failed = gang(GangStage.FAILED)
    inputs = given(request(3))
    assert not is_done(failed, inputs.snapshot)
    reported = replace(request(3), conditions=frozenset({"Failed"}))
    assert is_done(failed, replace(inputs.snapshot, requests=(reported,)))
    assert is_done(booked(), replace(inputs.snapshot, requests=()))
    assert not is_done(gang(), replace(inputs.snapshot, requests=()))


# The ledger item


@pytest.mark.parametrize("stage", GangStage)
def test_no_step_leads_outside_the_table(stage: GangStage) -> None:
    for target in GangStage:
        if target in ONWARD[stage]:
            assert gang(stage).at(target, NOW).stage is target
        else:
            with pytest.raises(ValueError, match="no step leads"):
                gang(stage).at(target, NOW)


def test_a_gang_and_a_ledger_with_gangs_are_read_back_equal() -> None:
    full = booked(retry_at=NOW, failures=2, reason="r", message="m", revision=3)
    assert read_gang(json.loads(json.dumps(gang_item(full)))) == full
    ledger = builders.ledger(gangs=(full,))
    assert read_ledger(json.loads(json.dumps(ledger_item(ledger)))).gangs == (full,)


def test_room_of_a_gang_is_used_up_by_its_pods_wherever_they_run() -> None:
    made, free = (
        gang(GangStage.PROVISIONED),
        existing_nodes(builders.snapshot(), claims(Phase.LAUNCHED, Phase.LAUNCHED)),
    )
    seen = builders.snapshot(requests=(request(3),))
    others = existing_nodes(builders.snapshot(nodes=(builders.node("other"),)), ())
    rooms = Rooms([*free, *others], seen, ())

    def left(*nodes: str, booked: bool = True) -> dict[str, list[int]]:
        pods = builders.pods(builders.shape("3"), len(nodes))
        there = [replace(pod, node=node) for pod, node in zip(pods, nodes, strict=True)]
        return unconsumed(made, seen, rooms, there, booked=booked)

    assert left() == {"default-a": [2], "default-b": [1]}
    assert left("default-a", "default-b") == {"default-a": [1], "default-b": [0]}
    assert left("other") == {"default-a": [1], "default-b": [1]}, "on any other place"
    assert left("default-b", "default-b") == {"default-a": [1], "default-b": [0]}
    assert left("other", "other", "other") == {"default-a": [0], "default-b": [0]}
    assert left("", "unknown") == left(), "it has no node, or one that takes no pods"
    assert left("default-a", booked=False) == left()
