"""Which purchases a NodePool may make after its nodes have joined the cluster, or have not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.decisions.lifecycle import registrations
from nodesmith.decisions.provisioning import decide
from nodesmith.model.commands import Command, Forget, GiveUp, Register
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.ledger.breakers import Breaker, PurchaseFailure, Wasted
from nodesmith.model.ledger.items import health_item, read_health
from nodesmith.model.ledger.learned import Backoff, Ending, RegistrationHealth
from nodesmith.model.ledger.ledger import Ledger
from tests import builders
from tests.builders import NOW

POOLS = parsed_nodepools((builders.nodepool_manifest(), builders.nodepool_manifest("other")))
OFFERING = OfferingKey("spot", "m5.large", builders.ZONES[0])
POD = builders.pods(builders.shape("1", "1Gi"), 1)


def bought(name: str, **fields: Any) -> NodeClaim:
    known: dict[str, Any] = {"capacity_type": "spot", "instance_type": "m5.large", "zone": builders.ZONES[0]}
    return builders.claim(name, launched_at=NOW, **(known | fields))


def timed_out(name: str, reason: str = "RegistrationTimeout", **fields: object) -> GiveUp:
    return GiveUp(bought(name, **fields).given_up(reason, "no Node has registered", NOW))


def joined(name: str, **fields: object) -> Register:
    return Register(bought(name, phase=Phase.REGISTERED, registered_at=NOW, **fields))


def after(*rounds: Sequence[Command], wait: timedelta = timedelta(minutes=20)) -> RegistrationHealth:
    """Return the NodePool's registration health after rounds of commands, each `wait` after the one before."""
    ledger, now = builders.ledger(), NOW
    for commands in rounds:
        ledger = replace(ledger, health={**ledger.health, **registrations(commands, ledger, POOLS, now)})
        now += wait
    return ledger.health["default"]


def known(health: RegistrationHealth, **fields: object) -> Ledger:
    return builders.ledger(health={"default": health}, **fields)


def decided(ledger: Ledger, now: datetime, pods: int = 1, **snapshot: object) -> tuple[int, str]:
    """Return how many nodes would be bought for pods that each need one, and the reasons why the others wait."""
    shape = builders.shape("1", "1Gi", affinity=builders.anti_affinity("web"))
    looks = builders.snapshot(pods=builders.pods(shape, pods), **snapshot)
    plan = decide(builders.inputs(ledger=ledger, now=now, snapshot=looks))
    return len(plan.nodes), " ".join(str(u.reason) for u in plan.unplaced)


def test_one_node_that_did_not_join_closes_its_offering_and_not_the_nodepool() -> None:
    health = after([timed_out("a")])
    assert (health.failures, health.is_unhealthy, health.backoff) == (1, False, None)
    assert health.offerings == {OFFERING: Backoff(NOW + timedelta(minutes=5), 1, "RegistrationTimeout")}


def test_the_second_of_four_closes_the_nodepool_for_five_minutes_doubling_to_thirty() -> None:
    waits = []
    for failures in range(2, 7):
        health = after(*([timed_out(f"n{n}")] for n in range(failures)), wait=timedelta(hours=1))
        assert health.backoff is not None
        waits.append((health.backoff.until - NOW - timedelta(hours=failures - 1)).total_seconds() / 60)
    assert waits == [5, 10, 20, 30, 30]


def test_nodes_that_fail_together_count_as_one_failure_of_the_nodepool() -> None:
    health = after([timed_out(f"n{n}") for n in range(10)])
    assert health.backoff == Backoff(NOW + timedelta(minutes=5), 1, "RegistrationTimeout")
    assert len(health.endings) == 4


def test_a_node_that_joins_opens_nodepool_and_offering_though_the_condition_needs_more_of_them() -> None:
    health = after([timed_out("a"), timed_out("b")], [joined("c")])
    assert (health.backoff, health.offerings, health.is_unhealthy) == (None, {}, True)
    again = after([timed_out("a"), timed_out("b")], [joined("c")], [joined("d"), joined("e")])
    assert not again.is_unhealthy


def test_another_offering_of_the_nodepool_stays_closed_when_one_works() -> None:
    health = after([timed_out("a", instance_type="m5.xlarge")], [joined("b")])
    assert [key.instance_type for key in health.offerings] == ["m5.xlarge"]


def test_an_ending_that_is_reported_twice_counts_once() -> None:
    gave_up = timed_out("a")
    assert after([gave_up], [gave_up]).failures == 1
    assert after([gave_up], [Forget(gave_up.claim)]).failures == 1


@pytest.mark.parametrize("reason", ["Unauthorized", "LaunchFailed"])
def test_a_claim_that_was_given_up_at_its_launch_counts_when_it_is_forgotten(reason: str) -> None:
    pending = builders.claim("a", phase=Phase.PENDING).given_up(reason, "no", NOW)
    health = after([Forget(pending)])
    assert (health.failures, health.reason, health.offerings) == (1, reason, {})


@pytest.mark.parametrize("reason", ["InsufficientCapacity", "InstanceInterrupted", "LaunchTimeout"])
def test_failures_that_the_nodepool_did_not_cause_do_not_count(reason: str) -> None:
    assert registrations([timed_out("a", reason)], builders.ledger(), POOLS, NOW) == {}
    pending = builders.claim("b", phase=Phase.PENDING).given_up(reason, "none", NOW)
    assert registrations([Forget(pending)], builders.ledger(), POOLS, NOW) == {}


def test_a_node_that_joined_and_left_is_not_a_failed_registration() -> None:
    left = timed_out("a", "InstanceTerminated", registered_at=NOW)
    assert registrations([left], builders.ledger(), POOLS, NOW) == {}


def test_claims_of_a_nodepool_that_is_gone_are_passed_over() -> None:
    assert registrations([timed_out("a", nodepool="gone")], builders.ledger(), POOLS, NOW) == {}


def test_one_more_node_that_joins_a_healthy_nodepool_causes_no_write() -> None:
    sound = after([joined(name) for name in "abcd"])
    assert [ending.registered for ending in sound.endings] == [True] * 4
    assert registrations([joined("e")], known(sound), POOLS, NOW) == {}


def test_each_nodepool_is_judged_by_its_own_nodes() -> None:
    found = registrations([timed_out("a"), timed_out("b", nodepool="other")], builders.ledger(), POOLS, NOW)
    assert {name: health.failures for name, health in found.items()} == {"default": 1, "other": 1}


def test_a_changed_nodepool_nodeclass_or_image_starts_over_and_older_claims_no_longer_count() -> None:
    broken = after([timed_out("a"), timed_out("b")])
    touched = builders.nodepool_manifest()
    touched["metadata"]["generation"] = 2
    status = builders.nodeclass_status()
    others = (
        (parsed_nodepools((touched,)), builders.ledger()),
        (POOLS, builders.ledger(nodeclasses={"default": replace(status, generation=2)})),
        (POOLS, builders.ledger(nodeclasses={"default": replace(status, images=status.images[:1])})),
    )
    for pools, ledger in others:
        later = NOW + timedelta(minutes=1)
        renewed = registrations([], replace(ledger, health={"default": broken}), pools, later)["default"]
        assert (renewed.endings, renewed.backoff, renewed.offerings) == ((), None, {})
        ledger = replace(ledger, health={"default": renewed})
        assert registrations([timed_out("old", created_at=NOW)], ledger, pools, later) == {}
        assert registrations([timed_out("new", created_at=later)], ledger, pools, later)


def test_nothing_is_written_where_nothing_is_known_and_nothing_ends() -> None:
    assert registrations([], builders.ledger(), POOLS, NOW) == {}


def test_offerings_that_failed_more_than_a_day_ago_are_forgotten_with_the_next_failure() -> None:
    health = after(
        [timed_out("a", instance_type="m5.xlarge")], [timed_out("b")], wait=timedelta(days=1, minutes=6)
    )
    assert [key.instance_type for key in health.offerings] == ["m5.large"]


def test_a_closed_nodepool_buys_nothing_and_its_pods_show_the_reason() -> None:
    ledger = known(after([timed_out("a"), timed_out("b")]))
    nodes, why = decided(ledger, NOW + timedelta(minutes=4))
    assert nodes == 0
    assert "NodePool default: 2 of its last 2 nodes did not join (RegistrationTimeout: no Node has" in why
    assert "tried again after 12:05:00 UTC" in why


def test_afterwards_it_is_tried_with_one_node_and_the_other_pods_show_the_reason() -> None:
    ledger = known(after([timed_out("a"), timed_out("b")]))
    nodes, why = decided(ledger, NOW + timedelta(minutes=5), pods=3)
    assert nodes == 1
    assert "it is tried with one node first" in why


def test_nothing_is_bought_in_addition_to_the_trial_node() -> None:
    trial = builders.claim("default-try", created_at=NOW, phase_since=NOW)
    ledger = known(after([timed_out("a"), timed_out("b")]), claims=(trial,))
    nodes, why = decided(ledger, NOW + timedelta(minutes=6), pods=3)
    assert nodes == 0
    assert "it is tried with one node, NodeClaim default-try" in why


def test_once_a_node_has_joined_all_pods_are_served() -> None:
    ledger = known(after([timed_out("a"), timed_out("b")], [joined("c")]))
    assert decided(ledger, NOW + timedelta(minutes=21), pods=3) == (3, "")


def test_another_nodepool_serves_the_pods_meanwhile() -> None:
    ledger = known(after([timed_out("a"), timed_out("b")]))
    both = (builders.nodepool_manifest(weight=50), builders.nodepool_manifest("other"))
    assert decided(ledger, NOW + timedelta(minutes=1), pods=3, nodepools=both) == (3, "")
    assert decided(ledger, NOW + timedelta(minutes=6), pods=3, nodepools=both) == (3, ""), (
        "one of them on trial"
    )


def test_within_the_nodepool_the_failed_offering_is_avoided() -> None:
    plan = decide(builders.inputs(pods=POD))
    first = plan.nodes[0].request.offerings()[0]
    failed = timed_out(
        "a", instance_type=first.instance_type, zone=first.zone, capacity_type=first.capacity_type
    )
    again = decide(builders.inputs(pods=POD, ledger=known(after([failed]))))
    assert first not in again.nodes[0].request.offerings()


def test_what_is_known_comes_back_as_it_was_written() -> None:
    health = RegistrationHealth(
        "basis",
        NOW,
        (Ending("a", True), Ending("b", False)),
        "r",
        "m",
        Backoff(NOW, 1),
        {OFFERING: Backoff(NOW, 2)},
        Breaker((Wasted(NOW, 2, PurchaseFailure.UNUSED, "a"),), 1, NOW),
        Breaker((Wasted(NOW, 1, PurchaseFailure.MOVED_AGAIN, "b"),)),
        ("spec",),
        "2026-11-27T10:00:00Z",
        (NOW,),
        3,
    )
    assert read_health(json.loads(json.dumps(health_item(health)))) == health
    assert read_health(json.loads(json.dumps(health_item(RegistrationHealth("x"))))) == RegistrationHealth(
        "x"
    )
