"""Breakers of NodePools: which purchases in vain trip them, what they stop, and what closes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.decisions.budgets import loop_obstacle
from nodesmith.decisions.lifecycle import registrations, uses
from nodesmith.decisions.lifecycle.registrations import JUDGED
from nodesmith.decisions.provisioning import decide
from nodesmith.decisions.provisioning.attempts import removed_soon
from nodesmith.decisions.readiness.launchconditions import breaker_condition, breaker_events
from nodesmith.decisions.scheduling.workloads import Workloads
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.karpenter.nodeclaims import IN_VAIN, USED, WITHDRAWN, NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import parse_nodepool, parsed_nodepools
from nodesmith.model.ledger.breakers import CLOSED, Breaker, PurchaseFailure, Wasted
from nodesmith.model.ledger.learned import RegistrationHealth
from nodesmith.model.ledger.ledger import departure_of
from nodesmith.model.policies import RESET_LAUNCHES
from tests import builders
from tests.builders import NOW, READY

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
WEB = builders.shape()
RESET = {RESET_LAUNCHES: "2026-11-21T12:00:00Z"}


def bought(ago: timedelta, use: str = IN_VAIN, *, name: str = "", **fields: Any) -> NodeClaim:
    """Return a claim of NodePool `default` that was initialized."""
    at = NOW - ago
    known: dict[str, Any] = {
        "created_at": at,
        "phase_since": at,
        "initialized_at": at + MINUTE,
        "nominated": ("default/web-0",),
        "attempts": FrozenMap({"web-1": 1}),
        "use": use,
        "instance_id": "i-1",
    }
    made = name or f"default-{int(ago.total_seconds())}"
    return builders.claim(made, **({"phase": Phase.INITIALIZED} | known | fields))


def judged(
    claims: Sequence[NodeClaim],
    health: RegistrationHealth | None = None,
    now: datetime = NOW,
    **known: Any,
) -> RegistrationHealth:
    """Return the health of NodePool `default` after a look at these claims."""
    manifest = builders.nodepool_manifest(labels=known.pop("labels", None))
    manifest["metadata"]["annotations"] = known.pop("annotations", {})
    before = {"default": health} if health is not None else {}
    ledger = builders.ledger(claims=tuple(claims), health=before, **known)
    after = registrations([], ledger, parsed_nodepools((manifest,)), now)
    return after.get("default", health or RegistrationHealth(""))


THREE = [bought(30 * MINUTE), bought(20 * MINUTE), bought(10 * MINUTE)]


def test_the_third_purchase_in_vain_trips_and_stops_launches_for_two_hours() -> None:
    assert not judged(THREE[:2]).launches.is_tripped
    tripped = judged(THREE).launches
    assert (tripped.trips, tripped.until, tripped.main_failure) == (1, NOW + 2 * HOUR, PurchaseFailure.UNUSED)


def test_nodes_that_were_bought_together_are_one_purchase() -> None:
    together = [bought(30 * MINUTE, name=f"default-{n}") for n in range(50)]
    found = judged(together).launches
    assert [(each.nodes, found.trips) for each in found.wasted] == [(50, 0)]


def test_a_nodepool_that_uses_more_nodes_than_it_wastes_does_not_trip() -> None:
    used = [bought(5 * MINUTE, USED, name=f"default-used-{n}") for n in range(4)]
    assert not judged([*THREE, *used]).launches.is_tripped
    assert judged([*THREE, *used[:2]]).launches.is_tripped


def test_ends_that_ec2_causes_and_claims_without_capacity_do_not_count() -> None:
    taken = [replace(each, phase=Phase.TERMINATING, cause="SpotInterrupted") for each in THREE]
    short = [
        builders.claim(f"default-{n}", phase=Phase.PENDING).given_up("InsufficientCapacity", "none", NOW)
        for n in range(9)
    ]
    assert judged([*taken, *short]) == RegistrationHealth("")


def test_nodes_that_do_not_register_or_initialize_count() -> None:
    lost = [
        replace(bought(n * MINUTE, ""), phase=Phase.GIVEN_UP, reason="RegistrationTimeout") for n in (50, 40)
    ]
    stuck = bought(35 * MINUTE, "", phase=Phase.REGISTERED, phase_since=NOW - 31 * MINUTE)
    assert judged([*lost, stuck]).launches.main_failure is PurchaseFailure.NOT_REGISTERED
    assert not judged([*lost, replace(stuck, phase_since=NOW - MINUTE)]).launches.is_tripped


def test_late_attempts_for_a_workload_stop_no_other_pods() -> None:
    """Its own back-off bounds them."""
    late = [replace(each, attempts=FrozenMap({"web-1": n})) for n, each in enumerate(THREE, start=3)]
    assert judged(late).launches == CLOSED


def test_nodes_whose_pods_are_gone_trip_at_the_eighth_purchase_only() -> None:
    gone = [bought(n * MINUTE, WITHDRAWN) for n in range(10, 90, 10)]
    assert not judged(gone[:7]).launches.is_tripped
    assert judged(gone).launches.main_failure is PurchaseFailure.WITHDRAWN


def test_a_departed_node_counts_as_its_claim_did() -> None:
    ended = [replace(e, phase=Phase.TERMINATING, terminating_at=NOW, cause="Empty") for e in THREE]
    gone = tuple(departure for each in ended if (departure := departure_of(each)) is not None)
    assert judged([], departures=gone).launches == judged(THREE).launches


def test_after_the_wait_one_node_decides_whether_it_closes_or_waits_for_a_day() -> None:
    health, later = judged(THREE), NOW + 3 * HOUR
    trial = replace(bought(timedelta()), created_at=later - 10 * MINUTE, initialized_at=later - 9 * MINUTE)
    again = judged([trial], health, later).launches
    assert (again.trips, again.until) == (2, later + timedelta(days=1))
    assert judged([replace(trial, use=USED)], health, later).launches == CLOSED
    assert judged([replace(trial, use="")], health, later).launches.trips == 1


def test_purchases_are_remembered_for_a_day_and_at_most_eight() -> None:
    many = [bought(n * MINUTE, WITHDRAWN) for n in range(10, 300, 10)]
    assert len(judged(many).launches.wasted) == 8
    old = Breaker((Wasted(NOW - timedelta(days=1, seconds=1), 3, PurchaseFailure.UNUSED, "default-old"),))
    assert judged([], RegistrationHealth("", launches=old)).launches == CLOSED


def decided(health: RegistrationHealth, *claims: NodeClaim) -> tuple[int, str]:
    """Return how many nodes would be bought for two pods that each need one, and why others wait."""
    shape = builders.shape(affinity=builders.anti_affinity("web"))
    looks = builders.snapshot(pods=builders.pods(shape, 2))
    ledger = builders.ledger(claims=claims, health={"default": health})
    plan = decide(builders.inputs(ledger=ledger, snapshot=looks))
    return len(plan.nodes), " ".join(str(each.reason) for each in plan.unplaced)


def test_pods_that_wait_for_it_are_told_what_was_bought_in_vain_and_until_when() -> None:
    nodes, why = decided(judged(THREE))
    assert nodes == 0
    assert (
        "nodes were bought in vain 3 times in a row, the last time NodeClaim default-600 (the pods that they"
        f" were bought for never ran there); its launches are paused until {NOW + 2 * HOUR:%Y-%m-%d %H:%M:%S} UTC"
    ) in why


def test_when_the_wait_is_over_one_node_is_tried_and_the_others_wait_for_it() -> None:
    over = replace(judged(THREE).launches, until=NOW - 10 * MINUTE)
    health = replace(judged(THREE), launches=over)
    assert decided(health)[0] == 1
    trial = bought(5 * MINUTE, "", phase=Phase.LAUNCHED, nominated=("default/other",))
    nodes, why = decided(health, trial)
    assert nodes == 0
    assert f"it is tried with one node, NodeClaim {trial.name}" in why


def test_the_annotation_resets_it_once() -> None:
    reset = judged(THREE, judged(THREE), annotations=RESET)
    assert (reset.launches, reset.resets, reset.reset) == (CLOSED, (NOW,), RESET[RESET_LAUNCHES])
    later = judged(THREE, reset, NOW + MINUTE, annotations=RESET)
    assert later.resets == (NOW,)


def test_a_new_spec_resets_it_and_going_back_to_one_that_was_tried_does_not() -> None:
    first = judged(THREE)
    changed = judged(THREE, first, labels={"team": "red"})
    assert (changed.launches, len(changed.resets)) == (CLOSED, 1)
    again = [replace(each, created_at=NOW + n * MINUTE) for n, each in enumerate(THREE)]
    tripped = judged(again, changed, NOW + 10 * MINUTE, labels={"team": "red"})
    assert judged(again, tripped, NOW + 11 * MINUTE).launches == tripped.launches


def test_a_seventh_reset_in_a_day_is_not_obeyed() -> None:
    tripped = replace(judged(THREE), resets=tuple(NOW - n * HOUR for n in range(7, 1, -1)))
    assert judged(THREE, tripped, annotations=RESET).launches.is_tripped


@pytest.mark.parametrize("value", ["now", "<b>now</b>", "2026-11-21", "2" * 10_000])
def test_a_reset_that_is_no_time_is_reported_and_resets_nothing(value: str) -> None:
    manifest = builders.nodepool_manifest()
    manifest["metadata"]["annotations"] = {RESET_LAUNCHES: value}
    (problem,) = parse_nodepool(manifest).problems
    assert "must be a time such as 2026-11-27T10:00:00Z; nothing is reset" in str(problem)
    assert len(str(problem)) < 400
    assert judged(THREE, judged(THREE), annotations={RESET_LAUNCHES: value}).launches.is_tripped


def test_a_third_replacement_in_a_row_stops_replacements_and_not_launches() -> None:
    row = [bought(10 * MINUTE, USED, removals_before=n, name=f"default-{n}") for n in range(4)]
    health = judged(row)
    assert (health.launches.is_tripped, health.moves.main_failure) == (False, PurchaseFailure.MOVED_AGAIN)
    assert not judged(row[:3]).moves.is_tripped
    assert decided(health)[0] == 2
    ledger = builders.ledger(health={"default": health})
    assert "disruption of its nodes is paused until" in loop_obstacle(row[0], ledger, NOW)
    assert not loop_obstacle(row[0], ledger, NOW + 3 * HOUR)
    assert not loop_obstacle(replace(row[0], created_at=NOW - timedelta(days=2)), ledger, NOW)


@pytest.mark.parametrize(
    ("cause", "age", "soon"),
    [
        ("Drifted", 2 * HOUR, True),
        ("Drifted", 4 * HOUR, False),
        ("Underutilized", 59 * MINUTE, True),
        ("Expired", 21 * MINUTE, False),
        ("Empty", 9 * MINUTE, True),
        ("Deleted", MINUTE, False),
        ("SpotInterrupted", MINUTE, False),
    ],
)
def test_only_ends_that_nodesmith_chose_soon_after_the_purchase_make_a_row(
    cause: str, age: timedelta, *, soon: bool
) -> None:
    assert removed_soon(NOW - age, NOW, cause, 0) == soon


def test_a_loop_goes_on_as_one_after_its_pause() -> None:
    assert removed_soon(NOW - timedelta(days=1), NOW, "Drifted", 3)


def test_what_became_of_a_node_is_seen_in_the_snapshot() -> None:
    made = bought(10 * MINUTE, "")
    node = builders.node(f"node-{made.name}", provider_id=made.provider_id, labels=READY)
    (waiting,) = builders.pods(WEB)
    waiting = replace(waiting, key="default/web-0")
    ledger, there = builders.ledger(claims=(made,)), {"nodes": (node,)}

    def seen(*pods: Any, **known: Any) -> str:
        snapshot = builders.snapshot(pods=pods, **(there | known))
        return uses(ledger, snapshot, NOW, Workloads()).get(made.name, "")

    assert seen(waiting) == IN_VAIN
    assert seen() == WITHDRAWN
    assert seen(waiting, *builders.bind(builders.daemon(), node.name)) == IN_VAIN
    assert seen(waiting, *builders.bind(WEB, node.name)) == USED
    left = replace(node, last_pod_event_at=NOW - MINUTE)
    assert seen(waiting, nodes=(left,)) == USED


@pytest.mark.parametrize(("early", "use"), [(0, IN_VAIN), (1, "")])
def test_a_node_without_pods_is_judged_once_it_has_been_ready_for_long_enough(early: int, use: str) -> None:
    made = bought(HOUR, "", initialized_at=NOW - JUDGED + timedelta(seconds=early))
    node = builders.node(f"node-{made.name}", provider_id=made.provider_id, labels=READY)
    (waiting,) = builders.pods(WEB)
    snapshot = builders.snapshot(pods=(replace(waiting, key="default/web-0"),), nodes=(node,))
    assert uses(builders.ledger(claims=(made,)), snapshot, NOW, Workloads()).get(made.name, "") == use


def test_the_condition_and_events_tell_of_it_once_and_of_its_end() -> None:
    manifest = builders.nodepool_manifest()
    (reported,) = breaker_condition(judged(THREE), manifest, NOW)
    assert (reported.type, reported.status, reported.reason) == ("NodesBoughtInVain", "True", "NodesUnused")
    assert reported.message.endswith(
        "; find the cause, then change the NodePool or its annotation nodesmith.dev/reset-launches"
    )
    (event,) = breaker_events("default", manifest, [reported])
    assert (event.reason, event.warning, event.message) == ("NodesBoughtInVain", True, reported.message)
    shown = {"type": reported.type, "status": "True", "message": reported.message}
    manifest["status"] = {"conditions": [shown]}
    assert breaker_events("default", manifest, [reported]) == []
    over = breaker_condition(RegistrationHealth(""), manifest, NOW)
    assert [(each.status, each.reason) for each in over] == [("False", "NodesUsed")]
    assert [each.reason for each in breaker_events("default", manifest, over)] == ["LaunchesResumed"]


def test_a_kind_of_a_later_release_is_left_out() -> None:
    item = json.loads(json.dumps(judged(THREE).launches.to_item()))
    item["wasted"].append([NOW.isoformat(), 1, "NodesOnFire", "default-x"])
    assert Breaker.from_item(item) == judged(THREE).launches
