"""When each concern must look again even if nothing changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.controllers.runs import AHEAD, tick_for, wait_until
from nodesmith.decisions import garbagecollection as garbagecollection
from nodesmith.decisions.disruption import expiration, repair
from nodesmith.decisions.disruption.search import search as disruption
from nodesmith.decisions.garbagecollection import Inventory
from nodesmith.decisions.lifecycle import steps as lifecycle_steps
from nodesmith.decisions.provisioning.decide import next_change as provisioning_change
from nodesmith.decisions.readiness.launchconditions import next_resolution
from nodesmith.decisions.takeover import next_hold
from nodesmith.decisions.termination.beginning import to_end_later
from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT, NODECLASS_FINALIZER
from nodesmith.model.apimachinery.times import first, first_after, format_time
from nodesmith.model.commands import Owned, OwnedKind
from nodesmith.model.ec2.launches import Instance, OfferingKey
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.kubernetes.nodes import Condition
from nodesmith.model.ledger.learned import Backoff, RegistrationHealth, Risk
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.status import StatusCondition
from tests import builders
from tests.builders import NOW, ZONES
from tests.objects.fleets import Worker, changed, fleet, pool, running, worker

SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
OLD = worker("a", claim={"created_at": NOW - 2 * DAY, "initialized_at": NOW - 2 * DAY})
POOLS = parsed_nodepools((pool(after="30s"),))
OFFERING = OfferingKey("spot", "m5.large", ZONES[0])


def test_the_first_future_moment_counts_and_none_means_never() -> None:
    assert first_after(NOW, [None, NOW + HOUR, NOW, NOW + MINUTE]) == NOW + MINUTE
    assert first_after(NOW, [None, NOW]) is None
    assert (first([NOW + HOUR, None, NOW]), first([None])) == (NOW, None)


def test_a_look_that_is_due_within_ninety_seconds_is_requested_at_once() -> None:
    assert wait_until(None, NOW) is None
    assert wait_until(NOW + SECOND, NOW) == SECOND
    assert wait_until(NOW + AHEAD, NOW) == AHEAD == 90 * SECOND
    assert wait_until(NOW + AHEAD + SECOND, NOW) is None


def test_for_a_later_look_a_tick_comes_a_minute_before_it() -> None:
    assert tick_for(None, NOW) is None
    assert tick_for(NOW + 5 * MINUTE, NOW) == NOW + 4 * MINUTE
    assert tick_for(NOW + SECOND, NOW) == NOW


class TestLifecycle:
    def due(
        self, *workers: Worker, claims: Sequence[NodeClaim] = (), pools: Any = POOLS, **seen: Any
    ) -> datetime | None:
        shown = tuple(
            {"metadata": {"name": each.claim.name, "annotations": {"nodesmith.dev/decision": "d"}}}
            for each in workers
        )
        nodes = tuple(each.node for each in workers)
        snapshot = builders.snapshot(**{"nodes": nodes, "nodeclaims": shown, **seen})
        ledger = Ledger(claims=(*(each.claim for each in workers), *claims))
        return lifecycle_steps.next_change(ledger, snapshot, pools, NOW)

    def test_nodes_in_service_give_it_nothing_to_do(self) -> None:
        assert self.due(*(worker(f"n{number}") for number in range(50))) is None

    @pytest.mark.parametrize("phase", [Phase.LAUNCHED, Phase.GIVEN_UP])
    def test_a_claim_that_is_not_a_node_yet_is_looked_at_again_at_once(self, phase: Phase) -> None:
        assert self.due(claims=[builders.claim(phase=phase)]) == NOW

    def test_a_claim_whose_node_is_gone_is_looked_at_again_at_once(self) -> None:
        assert self.due(OLD, nodes=()) == NOW

    def test_a_node_is_due_when_it_may_be_replaced_and_once_more_when_it_expires(self) -> None:
        aged = replace(OLD.claim, expire_after="720h")
        from_, end = expiration.replaceable_from(aged), expiration.expires_at(aged)
        assert self.due(Worker(OLD.node, aged)) == from_
        ledger, seen = Ledger(claims=(aged,)), builders.snapshot(nodes=(OLD.node,))
        assert from_ is not None
        assert expiration.next_change(ledger, seen, POOLS, from_) == end

    def test_a_node_that_budgets_keep_past_its_moment_is_due_when_the_window_ends(self) -> None:
        aged = Worker(OLD.node, replace(OLD.claim, created_at=NOW - 239 * HOUR, expire_after="240h"))
        closed = [{"nodes": "0", "schedule": "0 9 * * *", "duration": "3h30m"}]
        assert (
            self.due(aged, pools=parsed_nodepools((pool(after="30s", budgets=closed),))) == NOW + 30 * MINUTE
        )
        assert self.due(aged) == NOW + HOUR

    def test_a_node_becomes_consolidatable(self) -> None:
        assert self.due(changed(OLD, last_pod_event_at=NOW - 10 * SECOND)) == NOW + 20 * SECOND

    def test_a_pod_gets_an_event_when_its_protection_ends(self) -> None:
        shape = replace(builders.shape(), annotations={DO_NOT_DISRUPT: "5m"})
        assert self.due(OLD, pods=running(shape, {"a": 1}, started_at=NOW - MINUTE)) == NOW + 4 * MINUTE

    def test_a_nodeclaim_that_a_user_created_is_looked_at_again_at_once(self) -> None:
        assert self.due(nodeclaims=({"metadata": {"name": "mine"}, "spec": {}},)) == NOW


class TestTermination:
    @pytest.mark.parametrize(
        ("deleted", "waits"), [({}, False), ({"deletionTimestamp": format_time(NOW)}, True)]
    )
    def test_a_deleted_claim_that_is_not_ending_yet_waits_for_its_budgets(
        self, deleted: dict[str, Any], waits: bool
    ) -> None:
        shown = {"metadata": {"name": OLD.claim.name, **deleted}}
        snapshot = builders.snapshot(nodes=(OLD.node,), nodeclaims=(shown,))
        assert to_end_later([OLD.claim], snapshot) is waits


class TestReadiness:
    def test_nodeclasses_are_resolved_five_minutes_after_they_were(self) -> None:
        statuses = {
            name: builders.nodeclass_status(name, resolved_at=NOW - ago * MINUTE)
            for name, ago in {"a": 1, "b": 3}.items()
        }
        assert (
            next_resolution([builders.nodeclass("a"), builders.nodeclass("b")], statuses) == NOW + 2 * MINUTE
        )
        assert next_resolution([builders.nodeclass("c")], statuses) is None

    def test_a_nodeclass_that_is_not_ready_or_selects_reservations_is_resolved_after_a_minute(self) -> None:
        missing = builders.nodeclass_status(
            conditions=(StatusCondition("AMIsReady", "False"),), resolved_at=NOW
        )
        assert next_resolution([builders.nodeclass()], {"default": missing}) == NOW + MINUTE
        reserving = builders.nodeclass(capacityReservationSelectorTerms=[{"id": "cr-0123456789abcdef0"}])
        known = builders.nodeclass_status(resolved_at=NOW)
        assert next_resolution([reserving], {"default": known}) == NOW + MINUTE

    def test_karpenters_finalizer_is_checked_after_karpenter_had_five_minutes(self) -> None:
        manifest = builders.nodeclass_manifest()
        deleted = {"finalizers": [NODECLASS_FINALIZER], "deletionTimestamp": format_time(NOW - MINUTE)}
        manifest["metadata"] |= deleted
        snapshot = builders.snapshot(nodeclasses=(manifest,))
        assert next_hold(snapshot, (), NOW) == NOW + 4 * MINUTE
        assert next_hold(snapshot, (), NOW + 4 * MINUTE) is None


class TestRepair:
    def due(self, mode: str = "On", /, **conditions: Condition) -> datetime | None:
        manifest = pool()
        manifest["metadata"]["annotations"] = {"nodesmith.dev/node-repair": mode}
        sick = changed(OLD, conditions={"Ready": Condition("True", since=NOW - DAY), **conditions})
        snapshot = builders.snapshot(nodes=(sick.node,))
        return repair.next_change([sick.claim], snapshot, parsed_nodepools((manifest,)), NOW)

    def test_a_healthy_node_is_never_due(self) -> None:
        assert self.due() is None

    def test_an_unhealthy_node_is_due_when_its_toleration_is_over(self) -> None:
        since = NOW - 4 * MINUTE
        assert self.due(Ready=Condition("Unknown", since=since)) == since + 30 * MINUTE
        sicker = {"AcceleratedHardwareReady": Condition("False", since=since)}
        assert self.due(Ready=Condition("False", since=since), **sicker) == since + 10 * MINUTE
        assert self.due("Off", **sicker) is None
        assert self.due(Ready=Condition("False", since=NOW - HOUR)) is None


class TestGarbageCollection:
    def due(self, *instances: Instance, **fields: Any) -> datetime | None:
        known: dict[str, Any] = {
            "snapshot": builders.snapshot(nodes=(OLD.node,)),
            "owned": {},
            "ledger": Ledger(claims=(OLD.claim,)),
            "living": (),
            "detached_since": {},
        }
        return garbagecollection.next_change(Inventory(instances=instances, now=NOW, **known | fields))

    def instance(self, age: timedelta) -> Instance:
        return Instance(
            "i-1", "claim-a", "m5.large", ZONES[0], "spot", "ami", "running", NOW - age, "subnet-a"
        )

    def test_nodes_in_service_give_it_nothing_to_do(self) -> None:
        assert self.due(self.instance(DAY)) is None

    @pytest.mark.parametrize(("age", "left"), [(20 * SECOND, 40 * SECOND), (20 * MINUTE, 40 * MINUTE)])
    def test_a_young_instance_is_due_when_it_may_be_garbage_and_when_its_template_may_be(
        self, age: timedelta, left: timedelta
    ) -> None:
        assert self.due(self.instance(age)) == NOW + left

    def test_an_unused_resource_is_due_an_hour_after_its_creation(self) -> None:
        template = Owned(OwnedKind.LAUNCH_TEMPLATE, "lt-1", created_at=NOW - 10 * MINUTE)
        assert self.due(owned={OwnedKind.LAUNCH_TEMPLATE: [template]}) == NOW + 50 * MINUTE

    @pytest.mark.parametrize(("claim", "due"), [("", NOW), ("gone", NOW), ("claim-a", None)])
    def test_a_detached_volume_without_an_owner_keeps_it_at_work(
        self, claim: str, due: datetime | None
    ) -> None:
        assert self.due(owned={OwnedKind.VOLUME: [Owned(OwnedKind.VOLUME, "vol-1", claim=claim)]}) == due

    @pytest.mark.parametrize("phase", [Phase.PENDING, Phase.TERMINATING, Phase.TERMINATED])
    def test_a_launch_and_a_termination_keep_it_at_work(self, phase: Phase) -> None:
        assert self.due(ledger=Ledger(claims=(builders.claim(phase=phase),))) == NOW

    def test_a_node_that_is_not_ready_keeps_it_at_work(self) -> None:
        failed = changed(OLD, conditions={"Ready": Condition("Unknown")})
        assert self.due(snapshot=builders.snapshot(nodes=(failed.node,))) == NOW


class TestProvisioning:
    def test_without_pods_that_wait_it_is_due_when_an_offering_is_for_sale_again(self) -> None:
        inputs = fleet([OLD], running(builders.shape(), {"a": 2}))
        assert provisioning_change(inputs) is None
        ledger = replace(inputs.ledger, unavailable={OFFERING: Backoff(NOW + MINUTE, 1)})
        assert provisioning_change(replace(inputs, ledger=ledger)) == NOW + MINUTE

    @pytest.mark.parametrize("phase", [Phase.PENDING, Phase.GIVEN_UP, Phase.TERMINATING])
    def test_a_launch_and_a_termination_keep_it_at_work(self, phase: Phase) -> None:
        assert provisioning_change(fleet([OLD], claims=[builders.claim(phase=phase)])) == NOW

    def test_a_node_that_is_deleted_keeps_it_at_work(self) -> None:
        assert provisioning_change(fleet([changed(OLD, deleting=True)])) == NOW


class TestDisruption:
    def due(self, quiet: timedelta, **fields: Any) -> datetime | None:
        since = NOW - quiet
        quiet_one = worker("a", claim={"created_at": NOW - 9 * DAY, "initialized_at": since})
        inputs = fleet([quiet_one], running(builders.shape(), {"a": 1}), pools=[pool(after="30s", **fields)])
        return disruption.next_search(inputs)

    @pytest.mark.parametrize(
        ("quiet", "wait"),
        [(20 * MINUTE, 40 * MINUTE), (HOUR, disruption.LATEST), (23 * HOUR, disruption.LATEST), (DAY, None)],
    )
    def test_while_a_move_may_become_worth_more_there_is_a_search_every_few_minutes(
        self, quiet: timedelta, wait: timedelta | None
    ) -> None:
        assert self.due(quiet) == (wait and NOW + wait)

    @pytest.mark.parametrize("fields", [{"policy": "WhenEmpty"}, {"replicas": 1}])
    def test_a_node_that_is_not_consolidated_for_money_is_not_waited_for(
        self, fields: dict[str, Any]
    ) -> None:
        assert self.due(2 * HOUR, **fields) is None

    def test_fifty_nodes_that_have_been_quiet_for_a_day_are_never_due(self) -> None:
        made = {"created_at": NOW - 2 * DAY, "initialized_at": NOW - 2 * DAY, "expire_after": "720h"}
        workers = [worker(f"n{number}", claim=made) for number in range(50)]
        pods = running(builders.shape(), {each.node.name: 1 for each in workers})
        assert disruption.next_search(fleet(workers, pods, pools=[pool(budgets=[{"nodes": "10%"}])])) is None

    def test_a_type_may_be_missed_an_hour_after_the_claim_was_made(self) -> None:
        young = worker("a", claim={"created_at": NOW - 20 * MINUTE, "initialized_at": NOW - 2 * DAY})
        assert disruption.next_search(fleet([young])) == NOW + 40 * MINUTE

    def test_prices_are_as_they_were_once_interruptions_are_forgotten_by_a_percent(self) -> None:
        risk = Risk(1.0, NOW)
        inputs = fleet([OLD])
        inputs = replace(inputs, ledger=replace(inputs.ledger, risks={OFFERING: risk}))
        due, hours = disruption.next_search(inputs), inputs.settings.interruption_cost_hours
        assert due is not None
        before = risk.surcharge_percent(NOW, hours)
        assert risk.surcharge_percent(due - 2 * SECOND, hours) == before
        assert risk.surcharge_percent(due, hours) == before - 1

    def test_a_back_off_of_registrations_ends(self) -> None:
        held = Backoff(NOW + MINUTE, 1)
        for health in (
            RegistrationHealth("", backoff=held),
            RegistrationHealth("", offerings={OFFERING: held}),
        ):
            inputs = fleet([OLD])
            inputs = replace(inputs, ledger=replace(inputs.ledger, health={"default": health}))
            assert disruption.next_search(inputs) == NOW + MINUTE
