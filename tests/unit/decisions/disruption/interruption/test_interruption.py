"""What is decided about notices: which claims end, by when, and which capacity pools are avoided."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.decisions.disruption.interruption import (
    LAST_CALL,
    Answer,
    answer,
    expiries,
    next_expiry,
    of_instances,
)
from nodesmith.model.apimachinery.labels import RESERVATION_ID
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.ec2.notices import InterruptionCause, Notice
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.ledger.learned import FIRST_BACKOFF, Backoff
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.status import CapacityReservation
from tests import builders
from tests.builders import NOW, ZONES

SOON = NOW + timedelta(minutes=2)
POOL = OfferingKey("spot", "m5.large", ZONES[0])
CERTAIN = [cause for cause in InterruptionCause if cause.is_certain]


def claim(number: int = 0, phase: Phase = Phase.INITIALIZED, **fields: Any) -> NodeClaim:
    known = {"instance_id": f"i-{number}", "instance_type": "m5.large", "zone": ZONES[0]}
    return builders.claim(f"default-{number}", phase=phase, capacity_type="spot", **(known | fields))


def notice(
    cause: InterruptionCause = InterruptionCause.SPOT, number: int = 0, until: datetime | None = SOON
) -> Notice:
    return Notice(cause, f"i-{number}", until, "EC2 says so")


def answered(
    notices: Iterable[Notice], claims: Iterable[NodeClaim], annotations: Any = None, **known: Any
) -> Answer:
    claims = tuple(claims)
    manifest = builders.nodepool_manifest()
    manifest["spec"]["disruption"] = {"budgets": [{"nodes": "1"}]}
    manifest["metadata"]["annotations"] = annotations or {}
    nodes = tuple(builders.node(f"n-{c.name}", provider_id=c.provider_id) for c in claims if c.provider_id)
    pools = parsed_nodepools((manifest,))
    return answer(notices, Ledger(claims=claims, **known), pools, builders.snapshot(nodes=nodes), NOW)


@pytest.mark.parametrize("phase", [Phase.LAUNCHED, Phase.REGISTERED, Phase.INITIALIZED])
def test_a_claim_whose_instance_gets_a_warning_ends_by_the_time_that_ec2_takes_it(phase: Phase) -> None:
    found = answered([notice()], [claim(phase=phase)])
    (ended,) = found.changed
    assert (ended.phase, ended.cause, ended.deadline) == (Phase.TERMINATING, "SpotInterrupted", SOON)
    assert ended.message == "EC2 says so"
    assert found.terminating == [ended.name]


@pytest.mark.parametrize("cause", [InterruptionCause.TERMINATED, InterruptionCause.STOPPED])
def test_a_claim_whose_instance_is_gone_ends_now(cause: InterruptionCause) -> None:
    (ended,) = answered([notice(cause, until=None)], [claim()]).changed
    assert (ended.cause, ended.deadline) == (cause, NOW)


def test_an_instance_that_is_gone_before_it_joined_is_left_to_lifecycle() -> None:
    found = answered([notice(InterruptionCause.TERMINATED)], [claim(phase=Phase.LAUNCHED)])
    assert (found.changed, found.terminating) == ([], [])
    assert found.to_wake == {Concern.LIFECYCLE}


def test_termination_is_woken_when_an_instance_that_it_waits_for_is_gone() -> None:
    ending = claim(phase=Phase.TERMINATED, deadline=NOW)
    found = answered([notice(InterruptionCause.TERMINATED)], [ending])
    assert (found.changed, found.terminating, found.to_wake) == ([], [], {Concern.TERMINATION})
    assert answered([notice(InterruptionCause.SPOT)], [ending]).to_wake == set()


def test_notices_of_foreign_instances_are_only_counted() -> None:
    found = answered([notice(number=7), notice(number=8)], [claim()])
    assert (found.changed, found.terminating, found.unavailable) == ([], [], {})
    assert found.counts == {"NoticesOfOthers": 2}


def test_the_earliest_of_several_notices_of_an_instance_counts_once() -> None:
    reported = [
        notice(InterruptionCause.REBALANCE, until=None),
        notice(until=SOON + LAST_CALL),
        notice(),
        notice(),
    ]
    found = answered(reported, [claim()])
    assert [(c.cause, c.deadline) for c in found.changed] == [("SpotInterrupted", SOON)]
    assert found.counts == {"SpotInterrupted": 1}


def test_a_termination_that_has_begun_gets_the_earlier_deadline_and_keeps_its_cause() -> None:
    begun = claim().terminating("Expired", "old", NOW)
    (hurried,) = answered([notice()], [begun]).changed
    assert hurried == replace(begun, deadline=SOON)


def test_a_repeated_notice_changes_nothing_but_has_the_replacement_checked() -> None:
    begun = claim().terminating("SpotInterrupted", "EC2 says so", NOW, SOON)
    found = answered([notice()], [begun])
    assert (found.changed, found.unavailable, found.terminating) == ([], {}, [begun.name])


@pytest.mark.parametrize("cause", CERTAIN)
def test_a_claim_that_waits_for_ec2_to_terminate_its_instance_stays_as_it_is(
    cause: InterruptionCause,
) -> None:
    found = answered([notice(cause)], [claim(phase=Phase.TERMINATED)])
    assert (found.changed, found.terminating) == ([], [])


def test_the_interrupted_pool_is_avoided_until_the_time_of_the_notice_and_longer_each_time() -> None:
    first = answered([notice(), notice(number=1)], [claim(), claim(1)])
    assert first.unavailable == {POOL: Backoff(NOW + FIRST_BACKOFF, 1, "SpotInterrupted")}
    before = Backoff(NOW - timedelta(minutes=1), 2, "SpotInterrupted")
    again = answered([notice()], [claim()], unavailable={POOL: before})
    assert again.unavailable == {POOL: Backoff(NOW + 4 * FIRST_BACKOFF, 3, "SpotInterrupted")}
    ends = Backoff(NOW + timedelta(seconds=1), 1, "InsufficientInstanceCapacity")
    assert answered([notice()], [claim()], unavailable={POOL: ends}).unavailable[POOL].until == SOON


def test_a_notice_of_a_reservation_concerns_all_instances_of_ours_in_it_and_no_other() -> None:
    inside = {RESERVATION_ID: "cr-1"}
    claims = [
        claim(labels=inside),
        claim(1, labels={RESERVATION_ID: "cr-2"}),
        claim(2, labels=inside),
        claim(3),
    ]
    reported = Notice(InterruptionCause.EXPIRING, "", SOON, "the block ends", "cr-1")
    assert [each.instance_id for each in of_instances(reported, claims)] == ["i-0", "i-2"]
    assert of_instances(notice(), claims) == [notice()]
    nobodys = replace(reported, reservation_id="cr-3")
    assert answered(of_instances(nobodys, claims), claims).counts == {"NoticesOfOthers": 1}


@pytest.mark.parametrize(
    ("kind", "ahead", "ends"),
    [("capacity-block", 40, 1), ("capacity-block", 41, 0), ("default", 5, 0)],
)
def test_a_capacity_block_that_ends_soon_is_seen_without_a_warning(kind: str, ahead: int, ends: int) -> None:
    ends_at = NOW + timedelta(minutes=ahead)
    block = CapacityReservation("cr-1", "p5.48xlarge", ZONES[0], 1, kind=kind, ends_at=ends_at)
    status = replace(builders.nodeclass_status(), capacity_reservations=(block,))
    used = claim(labels={RESERVATION_ID: "cr-1"})
    found = expiries(Ledger(claims=(used,), nodeclasses={"default": status}), NOW)
    assert [(n.cause, n.until) for n in found] == [
        (InterruptionCause.EXPIRING, ends_at - timedelta(minutes=30))
    ] * ends
    assert expiries(Ledger(claims=(claim(),), nodeclasses={"default": status}), NOW) == []


def test_a_notice_about_one_machine_does_not_affect_its_pool() -> None:
    assert answered([notice(InterruptionCause.STOPPED)], [claim()]).unavailable == {}
    assert answered([notice(InterruptionCause.IMPAIRED)], [claim()]).unavailable == {}


@pytest.mark.parametrize(("mode", "ends"), [({}, 0), ({"nodesmith.dev/rebalance": "Replace"}, 1)])
def test_rebalance_recommendations_are_followed_if_the_nodepool_requests_it_and_within_its_budgets(
    mode: dict[str, str], ends: int
) -> None:
    reported = [notice(InterruptionCause.REBALANCE, number, None) for number in range(3)]
    found = answered(reported, [claim(number) for number in range(3)], mode)
    assert len(found.changed) == ends
    assert found.counts["RebalanceRecommended"] == 3
    assert found.counts["NoticesPutOff"] == 2 * ends


@pytest.mark.parametrize(("ahead", "ends"), [(timedelta(days=3), 1), (LAST_CALL, 2), (-LAST_CALL, 2)])
def test_a_scheduled_change_waits_for_the_budgets_until_shortly_before_its_date(
    ahead: timedelta, ends: int
) -> None:
    reported = [notice(InterruptionCause.SCHEDULED, number, NOW + ahead) for number in range(2)]
    found = answered(reported, [claim(number) for number in range(2)])
    assert len(found.changed) == ends
    assert {c.deadline for c in found.changed} == {NOW + max(ahead, LAST_CALL)}


def test_a_scheduled_change_of_a_node_without_a_nodepool_waits_until_shortly_before_its_date() -> None:
    orphan = claim(nodepool="")
    assert (
        answered([notice(InterruptionCause.SCHEDULED, until=NOW + timedelta(days=3))], [orphan]).changed == []
    )
    assert len(answered([notice(InterruptionCause.SCHEDULED, until=NOW + LAST_CALL)], [orphan]).changed) == 1


def test_scheduled_changes_that_budgets_postpone_report_when_the_first_cannot_wait_any_longer() -> None:
    ahead = [timedelta(days=1), timedelta(days=5), timedelta(days=3)]
    reported = [notice(InterruptionCause.SCHEDULED, number, NOW + days) for number, days in enumerate(ahead)]
    found = answered(reported, [claim(number) for number in range(3)])
    assert [c.instance_id for c in found.changed] == ["i-0"]
    assert found.put_off_until == NOW + timedelta(days=3) - LAST_CALL


def test_without_a_postponed_change_no_moment_is_reported() -> None:
    assert answered([notice()], [claim()]).put_off_until is None


def test_the_next_block_to_end_is_reported_until_all_nodes_in_it_are_ending() -> None:
    ends_at = {"cr-1": NOW + timedelta(hours=2), "cr-2": NOW + timedelta(hours=1)}
    blocks = tuple(
        CapacityReservation(id_, "p5.48xlarge", ZONES[0], 1, kind="capacity-block", ends_at=at)
        for id_, at in ends_at.items()
    )
    status = replace(builders.nodeclass_status(), capacity_reservations=blocks)
    inside = [claim(number, labels={RESERVATION_ID: f"cr-{number}"}) for number in (1, 2)]
    ledger = Ledger(claims=(claim(3), *inside), nodeclasses={"default": status})
    assert next_expiry(ledger, ()) == NOW + timedelta(minutes=20)
    assert next_expiry(ledger, ["default-2"]) == NOW + timedelta(minutes=80)
    begun = replace(ledger, claims=tuple(c.terminating("Expired", "old", NOW) for c in ledger.claims))
    assert next_expiry(begun, ()) is None
    assert next_expiry(Ledger(claims=(claim(3),), nodeclasses={"default": status}), ()) is None
