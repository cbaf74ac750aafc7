"""Zonal shifts: where nothing is launched or disrupted, where pods go instead, how a shift ends, and what shows it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.disruption.expiration import expired
from nodesmith.decisions.disruption.interruption import answer
from nodesmith.decisions.disruption.search.search import may_end, propose
from nodesmith.decisions.provisioning.decide import decide
from nodesmith.decisions.provisioning.nodepools.onsale import considered, on_sale
from nodesmith.decisions.readiness.launchconditions import announcements, reaches, shift_condition
from nodesmith.model.apimachinery.labels import ZONE
from nodesmith.model.ec2.notices import InterruptionCause, Notice
from nodesmith.model.ec2.zonalshifts import (
    AUTOSHIFT,
    UNTOLD_END,
    ZonalShift,
    cluster_of,
    next_end,
    reconciled,
    shifted_zone_ids,
    shifts_to_keep,
    shown_shifts,
)
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.karpenter.nodepools import NodePool, parsed_nodepools
from tests import builders
from tests.builders import NOW, ZONES
from tests.objects.fleets import begun, fleet, pool, running, worker

HOUR = timedelta(hours=1)
A, B, C = ZONES
SHIFT = ZonalShift(A, "use1-az1", NOW + HOUR, "zonal shift")
AUTO = ZonalShift(A, "use1-az1", NOW + UNTOLD_END, AUTOSHIFT)


def away(*zones: str, **fields: Any) -> tuple[ZonalShift, ...]:
    return tuple(replace(SHIFT, zone=zone, **fields) for zone in zones)


def zones_bought(inputs: Any) -> set[str]:
    return {row.zone for node in decide(inputs).nodes for row in node.request.overrides}


# what is bought


def test_nothing_is_launched_in_a_zone_that_is_shifted_away_from_until_the_shift_ends() -> None:
    pods = builders.pods(builders.shape(cpu="1"), 5)
    assert A in zones_bought(builders.inputs(pods=pods))
    shifted = builders.ledger(zonal_shifts=away(A))
    assert zones_bought(builders.inputs(pods=pods, ledger=shifted)) == {B, C}
    expired = builders.ledger(zonal_shifts=away(A, until=NOW))
    assert A in zones_bought(builders.inputs(pods=pods, ledger=expired))


def test_a_shift_is_an_obstacle_only_to_nodeclasses_with_subnets_in_its_zone() -> None:
    def obstacle(*zones: str) -> str:
        status = builders.nodeclass_status(zones=zones)
        known = builders.ledger(nodeclasses={"default": status}, zonal_shifts=away(A))
        return (
            decide(builders.inputs(pods=builders.pods(builders.shape(), 1), ledger=known)).obstacles or {}
        ).get("default", "")

    assert "is shifted away from" in obstacle(A)
    assert "is shifted away from" not in obstacle(B)


def test_pods_are_planned_elsewhere_though_a_node_of_the_zone_has_room() -> None:
    node = builders.node("there", zone=A, cpu="16", memory="64Gi")
    pods = builders.pods(builders.shape(cpu="1"), 2)
    seen = builders.snapshot(pods=pods, nodes=(node,))
    assert decide(builders.inputs(snapshot=seen)).nodes == ()
    plan = decide(builders.inputs(snapshot=seen, ledger=builders.ledger(zonal_shifts=away(A))))
    assert not plan.placed
    assert {row.zone for each in plan.nodes for row in each.request.overrides} <= {B, C}


def test_pods_do_not_wait_for_a_node_that_is_on_its_way_into_the_zone() -> None:
    pods = builders.pods(builders.shape(cpu="1"), 1)
    coming = builders.claim(
        zone=A, nominated=(pods[0].key,), instance_type="m5.large", provider_id=f"aws:///{A}/i-1"
    )
    waiting = decide(builders.inputs(pods=pods, ledger=builders.ledger(claims=(coming,))))
    assert waiting.waiting == {pods[0].key: coming.name}
    plan = decide(builders.inputs(pods=pods, ledger=builders.ledger(claims=(coming,), zonal_shifts=away(A))))
    assert [node.claim.nominated for node in plan.nodes] == [(pods[0].key,)]


def test_a_pod_that_needs_the_zone_is_told_of_the_shift() -> None:
    of = builders.shape(nodeSelector={ZONE: A})
    inputs = builders.inputs(pods=builders.pods(of, 1), ledger=builders.ledger(zonal_shifts=away(A)))
    ((unplaced,)) = decide(inputs).unplaced
    assert f"zone {A} (use1-az1) is shifted away from by a zonal shift until" in unplaced.reason


def test_a_nodepool_that_is_only_in_the_zone_says_why_it_buys_nothing() -> None:
    only = builders.nodepool_manifest(requirements=[*builders.EXPRESS, builders.expression(ZONE, "In", A)])
    seen = builders.snapshot(pods=builders.pods(builders.shape(), 1), nodepools=(only,))
    inputs = builders.inputs(snapshot=seen, ledger=builders.ledger(zonal_shifts=away(A)))
    assert f"zone {A} (use1-az1) is shifted away from" in (decide(inputs).obstacles or {})["default"]
    (found,) = considered(inputs)
    assert f"zone {A} (use1-az1) is shifted away from" in found.obstacle


def test_offerings_of_the_zone_are_shown_as_unavailable() -> None:
    inputs = builders.inputs(ledger=builders.ledger(zonal_shifts=away(A)))
    found = {(o.zone, o.is_available) for of in on_sale(inputs).values() for o in of.offerings}
    assert found == {(A, False), (B, True), (C, True)}


# what is disrupted


def test_a_node_in_the_zone_is_neither_disrupted_nor_a_destination() -> None:
    small = builders.shape(cpu="100m", memory="128Mi")
    there, here = worker("a", zone=A), worker("b", zone=B)
    inputs = fleet([there, here], running(small, {"a": 1, "b": 1}), pools=[pool()])
    moved = propose(inputs)
    assert moved.proposals
    shifted = replace(inputs, ledger=replace(inputs.ledger, zonal_shifts=away(A)))
    found = propose(shifted)
    assert found.blocked["claim-a"].rule == "ZonalShift"
    assert "is shifted away from" in found.blocked["claim-a"].message
    assert all("claim-a" not in each.sources for each in found.proposals)
    assert all(each.destinations.get(pod) != "a" for each in found.proposals for pod in each.destinations)


def test_an_empty_node_in_the_zone_stays_until_the_shift_ends() -> None:
    inputs = fleet([worker("a", zone=A)], pools=[pool()])
    shifted = replace(inputs, ledger=replace(inputs.ledger, zonal_shifts=away(A)))
    assert not propose(shifted).proposals
    over = replace(shifted, now=NOW + HOUR)
    assert [each.sources for each in propose(over).proposals] == [("claim-a",)]


# how shifts are kept


def test_a_shift_is_announced_once_when_it_begins_and_once_when_it_ends() -> None:
    begun = reconciled((), (SHIFT,), NOW)
    assert begun == (SHIFT,)
    known = shifts_to_keep(begun)
    assert reconciled(known, (SHIFT,), NOW) == known
    ended = reconciled(known, (), NOW)
    assert ended == (replace(SHIFT, ended=True),)
    assert reconciled(ended, (), NOW) == ended, "until it is announced"
    assert shifts_to_keep(ended) == ()


def test_a_shift_that_ended_before_it_was_announced_is_forgotten() -> None:
    assert reconciled((SHIFT,), (), NOW) == ()


def test_a_shift_ends_by_itself_when_it_cannot_be_read() -> None:
    known = shifts_to_keep((SHIFT,))
    assert reconciled(known, None, NOW) == known
    assert reconciled(known, None, NOW + HOUR) == (replace(SHIFT, ended=True),)
    assert next_end(known, NOW) == NOW + HOUR
    assert next_end(known, NOW + HOUR) is None


def test_an_extended_shift_is_kept_with_its_new_end_and_not_announced_again() -> None:
    known, longer = shifts_to_keep((SHIFT,)), replace(SHIFT, until=NOW + 2 * HOUR)
    assert reconciled(known, (longer,), NOW) == (replace(longer, announced=True),)


def test_a_zone_that_is_shifted_away_from_again_is_announced_again() -> None:
    assert reconciled((replace(SHIFT, ended=True),), (SHIFT,), NOW) == (SHIFT,)


def test_an_autoshift_is_written_again_only_after_half_of_its_time() -> None:
    known = shifts_to_keep((AUTO,))
    for passed, kept in ((timedelta(minutes=29), True), (timedelta(minutes=31), False)):
        at = NOW + passed
        found = reconciled(known, (replace(AUTO, until=at + UNTOLD_END),), at)
        assert (found == known) is kept


@pytest.mark.parametrize(
    "resource",
    [
        {"appliedWeights": {"use1-az1": 0.0, "use1-az2": 1.0}},
        {"zonalShifts": [{"appliedStatus": "APPLIED", "awayFrom": "use1-az1"}]},
        {"autoshifts": [{"appliedStatus": "APPLIED", "awayFrom": "use1-az1"}], "appliedWeights": {}},
        {
            "zonalShifts": [{"appliedStatus": "NOT_APPLIED", "awayFrom": "use1-az2"}],
            "appliedWeights": {"use1-az1": 0},
        },
    ],
)
def test_weights_shifts_and_autoshifts_in_effect_count(resource: dict[str, Any]) -> None:
    assert shifted_zone_ids(resource) == {"use1-az1"}


@pytest.mark.parametrize(
    ("arn", "name"),
    [
        ("arn:aws:eks:us-east-1:123456789012:cluster/shop", "shop"),
        ("arn:aws-us-gov:eks:us-gov-west-1:123456789012:cluster/a_b-c", "a_b-c"),
        ("arn:aws:elasticloadbalancing:us-east-1:123456789012:loadbalancer/shop", ""),
        ("arn:aws:eks:us-east-1:123456789012:cluster/shop/x", ""),
        ("shop", ""),
    ],
)
def test_only_the_arn_of_an_eks_cluster_names_one(arn: str, name: str) -> None:
    assert cluster_of(arn) == name


# what shows it


def one(*requirements: Any) -> NodePool:
    manifest = builders.nodepool_manifest(requirements=[*builders.EXPRESS, *requirements])
    manifest["metadata"]["uid"] = "uid-1"
    return parsed_nodepools((manifest,))["default"]


def test_only_nodepools_that_can_reach_the_zone_show_the_shift() -> None:
    status = builders.nodeclass_status()
    assert reaches(one(), status, SHIFT)
    assert not reaches(one(builders.expression(ZONE, "In", B)), status, SHIFT)
    assert not reaches(
        one(builders.expression("topology.k8s.aws/zone-id", "NotIn", "use1-az1")), status, SHIFT
    )
    assert not reaches(one(), builders.nodeclass_status(zones=[B]), SHIFT)
    assert not reaches(one(), None, SHIFT)


def test_events_have_karpenters_reasons_and_types() -> None:
    statuses = {"default": builders.nodeclass_status()}
    (begun,) = announcements((SHIFT,), [one()], statuses)
    assert (begun.kind, begun.name, begun.reason, begun.warning) == (
        "NodePool",
        "default",
        "ZonalShiftActive",
        True,
    )
    (over,) = announcements((replace(SHIFT, ended=True),), [one()], statuses)
    assert (over.kind, over.name, over.reason, over.warning) == (
        "NodePool",
        "default",
        "ZonalShiftCleared",
        False,
    )
    assert announcements(shifts_to_keep((SHIFT,)), [one()], statuses) == []


def test_the_condition_shows_each_shift_and_can_be_read_back() -> None:
    shifts = (SHIFT, replace(AUTO, zone=B, zone_id="use1-az2"))
    (shown,) = shift_condition(one(), builders.nodeclass_status(), shifts, {}, NOW)
    assert (shown.type, shown.status, shown.reason) == ("ZoneShifted", "True", "ZonalShiftActive")
    manifest = {"status": {"conditions": [{"type": shown.type, "status": "True", "message": shown.message}]}}
    read = shown_shifts((manifest,), NOW)
    assert [replace(each, announced=False) for each in read] == list(shifts)
    (cleared,) = shift_condition(one(), builders.nodeclass_status(), (), manifest, NOW)
    assert (cleared.status, cleared.reason) == ("False", "ZonalShiftCleared")
    assert shift_condition(one(), builders.nodeclass_status(), (), {}, NOW) == []


def test_nodes_in_the_zone_are_not_replaced_ahead_of_their_expiry() -> None:
    old = builders.claim(
        phase=Phase.INITIALIZED,
        created_at=NOW - timedelta(hours=239, minutes=50),
        expire_after="240h",
        zone=A,
    )
    node = builders.node("n", provider_id=old.provider_id, zone=A)
    pools = parsed_nodepools((pool(),))
    ledger, seen = builders.ledger(claims=(old,)), builders.snapshot(nodes=(node,))
    assert expired(ledger, seen, pools, NOW)
    shifted = replace(ledger, zonal_shifts=away(A))
    assert not expired(shifted, seen, pools, NOW)
    assert expired(shifted, seen, pools, NOW + HOUR)


def test_a_failing_status_check_ends_no_node_in_the_zone_until_the_shift_ends() -> None:
    sick = builders.claim(phase=Phase.INITIALIZED, instance_id="i-1", zone=A)
    shifts_to_keep = [
        Notice(InterruptionCause.IMPAIRED, "i-1", NOW + timedelta(minutes=2), "fails EC2's check")
    ]
    shifted = builders.ledger(claims=(sick,), zonal_shifts=away(A))
    found = answer(shifts_to_keep, shifted, {}, None, NOW)
    assert (found.changed, found.terminating, found.counts) == ([], [], {"NoticesPutOff": 1})
    assert [ended.cause for ended in answer(shifts_to_keep, shifted, {}, None, NOW + HOUR).changed] == [
        InterruptionCause.IMPAIRED
    ]
    gone = [replace(shifts_to_keep[0], cause=InterruptionCause.TERMINATED)]
    assert [ended.cause for ended in answer(gone, shifted, {}, None, NOW).changed] == [
        InterruptionCause.TERMINATED
    ]


def test_a_move_whose_source_is_in_the_zone_is_abandoned_even_if_its_replacements_are_ready() -> None:
    small = builders.shape(cpu="100m", memory="128Mi")
    inputs = fleet([worker("a", zone=A)], running(small, {"a": 1}), pools=[pool()])
    move, during = begun(inputs, propose(inputs).proposals[0])
    assert may_end(move, during) == ""
    shifted = replace(during, ledger=replace(during.ledger, zonal_shifts=away(A)))
    assert "is shifted away from" in may_end(move, shifted)
