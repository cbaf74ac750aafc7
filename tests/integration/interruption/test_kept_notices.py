"""Notices that are kept for interruption: planned together, by one run at a time, and deleted once handled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from nodesmith.controllers.disruption.interruption import LOCKED_FOR, LOOKS, Interruption, handle_notices
from nodesmith.controllers.provisioning import Outcome, provision
from nodesmith.controllers.runs import Report
from nodesmith.errors import Transient
from nodesmith.model.ec2.notices import WARNING, InterruptionCause, Notice
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from tests import builders
from tests.benchmarks.decisions.notices import running
from tests.fakes.cloud import Call
from tests.smallworld.world import World


@dataclass(slots=True)
class Scene:
    """A cluster of full nodes, and runs of interruption in it."""

    world: World
    claims: list[NodeClaim]
    while_planning: list[Callable[[], object]] = field(default_factory=list)
    """Actions during the next plans, one for each."""

    def warnings(self, first: int, last: int) -> list[str]:
        return [builders.spot_warning(claim.instance_id, self.world.now) for claim in self.claims[first:last]]

    def arrive(self, first: int, last: int) -> None:
        """Have routing keep the warnings of these nodes."""
        for event in self.warnings(first, last):
            self.world.route(event)

    def run(self) -> Report:
        world = self.world
        ports = world.store, world.cloud, world.blobs, world.hints, world.notices
        return handle_notices(
            Interruption(builders.CLUSTER, *ports, self._provision, world.clock, world.metrics)
        )

    def _provision(self) -> Outcome:
        if self.while_planning:
            self.while_planning.pop(0)()
        return provision(self.world.provisioning())

    def plans(self) -> int:
        return len(self.world.store.decisions)

    def ending(self) -> list[str]:
        return sorted(name for name, claim in self.world.store.claims.items() if claim.is_ending)


def scene(nodes: int = 6) -> Scene:
    world, claims = running(nodes)
    world.store.claims = {claim.name: claim for claim in claims}
    return Scene(world, claims)


def test_two_hundred_notices_are_two_plans_if_half_of_them_arrive_during_the_first() -> None:
    here = scene(250)
    here.arrive(0, 100)
    others: list[Report] = []

    def more() -> None:
        here.arrive(100, 200)
        others.append(here.run())

    here.while_planning.append(more)
    report = here.run()
    assert [other.counts for other in others] == [{"TurnedAway": 1}]
    assert len(here.ending()) == report.counts["SpotInterrupted"] == 200
    assert here.plans() == 2
    assert here.world.notices.pending() == []


def test_two_hundred_pending_notices_are_one_plan() -> None:
    here = scene(250)
    here.arrive(0, 200)
    here.run()
    assert (len(here.ending()), here.plans()) == (200, 1)


def test_a_concurrent_run_leaves_the_notices_to_the_first() -> None:
    here = scene()
    until = here.world.now + LOCKED_FOR
    here.world.store.take_lock(Concern.INTERRUPTION, here.world.now, until)
    here.arrive(0, 1)
    report = here.run()
    assert (here.ending(), len(here.world.notices.pending())) == ([], 1)
    assert here.world.store.release_lock(Concern.INTERRUPTION, until), "the holder of the lock is notified"
    assert (report.retries_soon, report.due) == (False, until)


def test_notices_of_a_run_that_died_are_handled_after_its_lock_expires() -> None:
    here = scene()
    here.world.store.take_lock(Concern.INTERRUPTION, here.world.now, here.world.now + LOCKED_FOR)
    here.arrive(0, 1)
    here.world.now += LOCKED_FOR
    here.run()
    assert len(here.ending()) == 1


def test_a_run_that_fails_releases_its_lock_so_that_it_can_be_retried_at_once() -> None:
    here = scene()
    here.arrive(0, 1)

    refused: list[str] = []

    def refuse_once(method: str) -> None:
        if method == "pending" and not refused:
            refused.append(method)
            raise Transient("the table is away")

    here.world.notices.raise_before = refuse_once
    with pytest.raises(Transient):
        here.run()
    here.run()
    assert len(here.ending()) == 1


def test_a_second_pass_that_fails_is_retried_and_rejected_notices_are_still_reported() -> None:
    here = scene()
    here.arrive(0, 1)
    here.world.notices.keep_all("no event")

    def more() -> None:
        here.arrive(1, 2)
        here.run()
        here.world.notices.raise_before = refuse

    def refuse(method: str) -> None:
        if method == "pending":
            raise Transient("the table is away")

    here.while_planning.append(more)
    report = here.run()
    assert (report.retries_soon, len(report.rejected), len(here.ending())) == (True, 1, 1)


def test_a_run_with_ever_new_notices_ends_and_requests_another() -> None:
    here = scene(LOOKS + 1)
    here.arrive(0, 1)

    def one_more(number: int) -> Callable[[], None]:
        def more() -> None:
            here.arrive(number, number + 1)
            here.run()

        return more

    here.while_planning += [one_more(number) for number in range(1, LOOKS + 1)]
    report = here.run()
    assert (here.plans(), len(here.ending()), report.retries_soon) == (LOOKS, LOOKS, True)
    assert not here.run().retries_soon
    assert len(here.ending()) == LOOKS + 1


def test_an_unreadable_notice_is_reported_and_deleted_and_the_others_are_handled() -> None:
    here = scene()
    here.world.notices.keep_all("no JSON", *here.warnings(0, 1), "{}", *here.warnings(1, 2))
    report = here.run()
    assert len(report.rejected) == 2
    assert "found 'no JSON'" in report.rejected[0]
    assert (len(here.ending()), here.world.notices.pending()) == (2, [])
    assert not report.retries_soon


def test_a_notice_is_kept_until_its_result_is_committed() -> None:
    here = scene()
    here.arrive(0, 1)
    kept_while_planning: list[int] = []
    here.while_planning.append(lambda: kept_while_planning.append(len(here.world.notices.pending())))
    here.run()
    assert kept_while_planning == [1]
    assert here.world.notices.pending() == []


def test_only_a_notice_whose_claim_cannot_be_written_is_kept_and_retried() -> None:
    here = scene()
    here.arrive(0, 2)
    refused: list[str] = []

    def refuse_once(method: str) -> None:
        if method == "save" and not refused:
            refused.append(method)
            raise Transient("the table is away")

    here.world.store.raise_before = refuse_once
    assert here.run().retries_soon
    assert (len(here.ending()), len(here.world.notices.pending())) == (1, 1)
    assert not here.run().retries_soon
    assert (len(here.ending()), len(here.world.notices.pending())) == (2, 0)


def test_ec2_is_polled_only_if_there_are_no_notices() -> None:
    here = scene()
    victim = here.claims[0].instance_id
    here.world.cloud.reported[victim] = Notice(
        InterruptionCause.SPOT, victim, here.world.now + WARNING, "marked"
    )
    asked: list[Call] = []
    here.world.cloud.raise_before = lambda call: asked.append(call) if call.method == "notices" else None
    here.arrive(1, 2)
    here.run()
    assert (len(here.ending()), len(asked)) == (1, 0)
    here.run()
    assert (len(here.ending()), len(asked)) == (2, 1)


def test_if_ec2_does_not_respond_it_is_polled_again_at_the_next_tick() -> None:
    here = scene()

    def refuse(call: Call) -> None:
        raise Transient(f"{call.method}: EC2 is away")

    here.world.cloud.raise_before = refuse
    report = here.run()
    assert (report.counts["SweepsFailed"], report.retries_soon, report.due) == (1, False, here.world.now)


def test_a_scheduled_change_that_budgets_postpone_is_due_shortly_before_its_date() -> None:
    here = scene()
    here.world.cluster.nodepools["default"]["spec"]["disruption"] = {"budgets": [{"nodes": "0"}]}
    here.world.observe()
    victim, date = here.claims[0].instance_id, here.world.now + timedelta(days=3)
    here.world.cloud.reported[victim] = Notice(InterruptionCause.SCHEDULED, victim, date, "retirement")
    assert here.run().due == date - timedelta(minutes=30)
    here.world.cloud.reported.clear()
    assert here.run().due is None
