"""Nodes that EC2 reclaims with two minutes' notice: replacements are bought first, and pods get their grace period."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.controllers.termination import InterruptionMetrics, Termination, end_nodes
from nodesmith.model.apimachinery.labels import RESERVATION_ID
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.launches import LaunchOutcome, LaunchRequest, OfferingKey
from nodesmith.model.ec2.notices import InterruptionCause, Notice
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from tests import builders
from tests.fakes.cloud import Call
from tests.samples import sampled
from tests.scenarios.crashes import throttled
from tests.scenarios.interruptions import killed_everywhere
from tests.smallworld.world import STEP, Boundaries, Killed, Messages, World, pod_manifest

SMALL = [*builders.EXPRESS, builders.expression("karpenter.k8s.aws/instance-cpu", "In", "4")]
LIFE = timedelta(minutes=8)
"""By then any interruption is over, despite all faults."""


def settled(nodes: int = 2, messages: Messages | None = None, **spec: Any) -> World:
    """Return a world with `nodes` nodes, each of which runs one pod."""
    pods = {f"web-{n}": pod_manifest(f"web-{n}", "3", **spec) for n in range(nodes)}
    world = World(pods, nodepool=builders.nodepool_manifest(requirements=SMALL))
    world.settle()
    assert world.violations() == []
    assert len(world.cloud.instances) == nodes
    world.messages = messages or Messages()
    return world


def claims(world: World) -> list[NodeClaim]:
    return [world.store.claims[name] for name in sorted(world.store.claims)]


def test_the_replacement_is_requested_in_the_run_that_reads_the_warning() -> None:
    world = settled()
    victim = claims(world)[0]
    world.warn(victim.instance_id)
    world._deliver()
    before = len(world.cloud.calls)
    world.run(Concern.INTERRUPTION)
    assert "launch" in [call.method for call in world.cloud.calls[before:]]
    ending = world.store.claims[victim.name]
    assert (ending.phase, ending.cause) == (Phase.TERMINATING, "SpotInterrupted")
    assert ending.deadline == world.now + timedelta(minutes=2)
    (bought,) = (c for c in claims(world) if c.phase is Phase.LAUNCHED)
    assert bought.nominated == ("default/web-0",) or bought.nominated == ("default/web-1",)
    assert OfferingKey(victim.capacity_type, victim.instance_type, victim.zone) in world.store.unavailable
    assert (bought.instance_type, bought.zone) != (victim.instance_type, victim.zone)


def test_the_risk_of_a_nodes_pool_is_counted_once_however_often_the_warning_arrives() -> None:
    world = settled()
    victim = claims(world)[0]
    pool = OfferingKey(victim.capacity_type, victim.instance_type, victim.zone)
    here = sum(OfferingKey(c.capacity_type, c.instance_type, c.zone) == pool for c in claims(world))
    for _ in range(3):
        world.warn(victim.instance_id)
    world.live(LIFE)
    assert {key: risk.losses for key, risk in world.store.risks.items()} == {pool: 1 / here}


def test_the_duration_of_a_drain_is_recorded_for_its_nodepool() -> None:
    world = settled(terminationGracePeriodSeconds=0)
    world.warn(claims(world)[0].instance_id)
    world.live(LIFE)
    (known,) = world.store.drain_times.items()
    assert known[0] == "default"
    assert 0 < known[1].beyond_seconds <= 3 * STEP.total_seconds(), "no more than runs and steps take"


def test_pods_stay_until_the_replacement_is_ready_and_get_their_grace_period() -> None:
    world = settled(terminationGracePeriodSeconds=20)
    victim = claims(world)[0]
    began = world.now
    evictions: list[tuple[datetime, list[Phase]]] = []

    def look(call: Call) -> None:
        if call.method in {"evict", "delete_pods"}:
            evictions.append((world.now, [claim.phase for claim in claims(world)]))

    world.cluster.raise_before = look
    world.warn(victim.instance_id)
    world.live(LIFE)
    assert world.violations() == []
    assert victim.name not in world.store.claims
    first, phases = evictions[0]
    assert phases.count(Phase.INITIALIZED) == 2
    assert first - began < timedelta(seconds=80)
    assert len(world.cloud.instances) == 3


@pytest.mark.parametrize("grace", [10, 60, 100])
def test_pods_leave_in_time_even_without_a_replacement(grace: int) -> None:
    world = settled(terminationGracePeriodSeconds=grace)
    world.boots = lambda instance: instance.launched_at < world.now - timedelta(minutes=4)
    world.warn(claims(world)[0].instance_id)
    world.live(LIFE)
    assert world.harm == []


def test_a_pod_that_a_budget_protects_is_deleted_just_in_time_for_its_grace_period() -> None:
    world = settled(terminationGracePeriodSeconds=30)
    world.guard(maxUnavailable=0, expected=2)
    began = world.now
    deletions: list[datetime] = []

    def look(call: Call) -> None:
        if call.method == "delete_pods":
            deletions.append(world.now)

    world.cluster.raise_before = look
    world.warn(claims(world)[0].instance_id)
    world.live(LIFE)
    assert world.harm == []
    assert timedelta(seconds=75) <= deletions[0] - began <= timedelta(seconds=90)
    (reported,) = {event.message for event in world.cluster.events if event.reason == "Disrupted"}
    assert f"ends at {format_time(began + timedelta(minutes=2))}" in reported


def test_launches_are_retried_while_ec2_throttles_for_half_a_minute() -> None:
    world = settled()
    until = world.now + timedelta(seconds=30)

    def throttle(request: LaunchRequest) -> LaunchOutcome:
        if world.now < until:
            world.cloud.script.append(throttle)
            return throttled(request)
        return world.cloud._launch(request)

    world.cloud.script.append(throttle)
    victim = claims(world)[0]
    world.warn(victim.instance_id)
    world.live(timedelta(seconds=45))
    assert sorted(c.phase for c in claims(world) if c.phase is not Phase.INITIALIZED) == [
        Phase.LAUNCHED,
        Phase.TERMINATING,
    ]
    world.live(LIFE)
    assert world.violations() == []
    assert len(world.cloud.instances) == 3


def noted(world: World, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[float]]:
    """Run termination as one process with interruption metrics, and return these by name."""
    figures: dict[str, list[float]] = {}
    own = Termination(
        builders.CLUSTER,
        *(world.store, world.cloud, world.cluster, world.blobs, world.hints, world.clock),
        interruption_metrics=InterruptionMetrics(
            lambda name, value: figures.setdefault(name, []).append(value)
        ),
    )
    others = world.run
    monkeypatch.setattr(
        world, "run", lambda concern: end_nodes(own) if concern is Concern.TERMINATION else others(concern)
    )
    return figures


def test_a_successful_interruption_records_only_the_duration_of_each_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = settled(terminationGracePeriodSeconds=20)
    figures = noted(world, monkeypatch)
    world.warn(claims(world)[0].instance_id)
    world.live(LIFE)
    assert world.violations() == []
    assert figures.keys() == {"NoticeToLaunchedSeconds", "NoticeToReadySeconds", "NoticeToDrainedSeconds"}
    ((launched,), (ready,), (drained,)) = (figures[name] for name in figures)
    assert 0 <= launched <= STEP.total_seconds() < ready < drained < 120


def test_pods_that_wait_or_are_killed_without_a_replacement_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = settled(terminationGracePeriodSeconds=300)
    figures = noted(world, monkeypatch)
    world.boots = lambda instance: instance.launched_at < world.now - timedelta(minutes=4)
    world.warn(claims(world)[0].instance_id)
    world.live(timedelta(minutes=20))
    assert sum(figures["PodsKilledWithoutGrace"]) == 1
    assert 180 <= sum(figures["PodPendingSeconds"]) <= 300


def test_a_pool_that_interrupts_again_has_a_longer_back_off() -> None:
    world = settled(1)

    def interrupt_and_go_on() -> OfferingKey:
        (claim,) = claims(world)
        world.store.risks.clear()  # so that price alone decides which pool is next
        world.warn(claim.instance_id)
        world.live(LIFE)
        return OfferingKey(claim.capacity_type, claim.instance_type, claim.zone)

    first, second, third = (interrupt_and_go_on() for _ in range(3))
    assert first == third != second
    assert {pool: world.store.unavailable[pool].failures for pool in (first, second)} == {first: 2, second: 1}


def test_several_nodes_interrupted_at_once_are_replaced_in_one_plan() -> None:
    world = settled(4)
    decisions = len(world.store.decisions)
    for claim in claims(world)[:3]:
        world.warn(claim.instance_id)
    world._deliver()
    world.run(Concern.INTERRUPTION)
    assert len(world.store.decisions) == decisions + 1
    world.live(LIFE)
    assert world.violations() == []
    assert len(world.cloud.instances) == 7


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(sampled(4, whole=12)))
def test_lost_duplicated_and_late_messages_do_not_change_the_outcome(seed: int) -> None:
    world = settled(3, Messages(lost=0.2, doubled=1.0, delayed=0.5, seed=seed))
    for claim in claims(world)[:2]:
        world.warn(claim.instance_id)
    world.live(LIFE)
    assert world.violations() == []
    assert len(world.cloud.instances) == 5


def test_a_lost_warning_is_noticed_within_a_minute() -> None:
    world = settled()
    victim = claims(world)[0]
    world.warn(victim.instance_id)
    world.incoming.clear()
    world.live(timedelta(seconds=65))
    assert world.store.claims[victim.name].is_ending
    world.live(LIFE)
    assert world.violations() == []
    assert len(world.cloud.instances) == 3


class DeathAt(Boundaries):
    """Kills a function once, at a call."""

    def __init__(self, where: str) -> None:
        super().__init__(look=None)
        self._where = where

    def cross(self, where: str) -> None:
        if where == self._where:
            self._where = ""
            raise Killed(where)


@pytest.mark.parametrize(
    "where",
    [
        "before FakeNotices.keep",
        "after FakeNotices.keep",
        "before FakeNotices.done",
        "after FakeNotices.done",
        "before FakeStore.release_lock",
        "after FakeStore.release_lock",
    ],
)
def test_after_a_crash_at_a_notice_call_all_notices_are_handled_and_nothing_is_replaced_twice(
    where: str,
) -> None:
    world = settled()
    death = DeathAt(where)
    world.boundaries = death
    world.warn(claims(world)[0].instance_id)
    world.live(LIFE)
    assert not death._where, "the call was never made"
    assert world.violations() == []
    assert len(world.cloud.instances) == 3
    assert world.notices.pending() == []


def test_a_lost_spot_warning_is_noticed_within_a_minute_without_ticks() -> None:
    world = settled()
    world.concerns = ()
    victim = claims(world)[0]
    world.warn(victim.instance_id)
    world.incoming.clear()
    world.live(timedelta(seconds=65))
    assert world.store.claims[victim.name].cause == "SpotInterrupted"


def test_a_warning_whose_first_run_crashes_is_handled_half_a_minute_later() -> None:
    world = settled()
    world.concerns = ()
    world.boundaries = DeathAt("before FakeNotices.pending")
    victim = claims(world)[0]
    world.warn(victim.instance_id)
    world.live(timedelta(seconds=40))
    assert world.store.claims[victim.name].is_ending


@pytest.mark.exhaustive
def test_a_crash_before_or_after_any_call_does_not_change_the_outcome() -> None:
    points, broken = killed_everywhere(sample=sampled(4, whole=0))
    assert points >= sampled(4, whole=40)
    assert broken == {}


def test_an_instance_terminated_without_warning_is_cleaned_up_and_replaced_at_once() -> None:
    world = settled()
    victim = claims(world)[0]
    world.lose(victim.instance_id, "shutting-down")
    world.incoming.append((world.now, builders.state_change(victim.instance_id, "shutting-down", world.now)))
    world._deliver()
    world.run(Concern.INTERRUPTION)
    assert world.store.claims[victim.name].cause == "InstanceTerminated"
    assert len(world.cloud.instances) == 3
    world.live(2 * STEP)
    assert [name for name in world.wanted if name.endswith("-r")]
    world.live(LIFE)
    assert world.violations() == []


def test_an_instance_interrupted_during_another_termination_is_replaced_once() -> None:
    world = settled()
    victim = claims(world)[0]
    world.cluster.delete("NodeClaim", victim.name)
    world.live(2 * STEP)
    world.warn(victim.instance_id)
    world.live(LIFE)
    assert world.violations() == []
    assert len(world.cloud.instances) == 3


def test_a_replacement_that_is_interrupted_while_it_boots_is_replaced() -> None:
    world = settled()
    victim = claims(world)[0]
    world.warn(victim.instance_id)
    world.live(2 * STEP)
    (bought,) = (c for c in claims(world) if c.phase is Phase.LAUNCHED)
    world.warn(bought.instance_id)
    world.live(LIFE)
    assert world.violations() == []
    assert len(world.cloud.instances) == 4


def test_notices_of_foreign_instances_are_ignored() -> None:
    world = settled()
    world.incoming += [(world.now, builders.spot_warning(f"i-{n:017x}", world.now)) for n in range(30)]
    assert Concern.INTERRUPTION not in world._deliver()
    assert world.notices.pending() == []


@pytest.mark.parametrize(("annotation", "replaced"), [("Replace", 1), ("Ignore", 0), (None, 0)])
def test_a_rebalance_recommendation_is_followed_only_if_the_nodepool_requests_it(
    annotation: str | None, replaced: int
) -> None:
    world = settled()
    if annotation:
        world.cluster.nodepools["default"]["metadata"]["annotations"] = {
            "nodesmith.dev/rebalance": annotation
        }
        world.observe()
    victim = claims(world)[0]
    detail = {"instance-id": victim.instance_id}
    world.incoming.append(
        (world.now, builders.ec2_event("EC2 Instance Rebalance Recommendation", detail, world.now))
    )
    world.live(LIFE)
    assert world.violations() == []
    assert len(world.cloud.instances) == 2 + replaced


def test_nodes_with_a_scheduled_change_are_replaced_within_the_budgets() -> None:
    world = settled(4)
    world.cluster.nodepools["default"]["spec"]["disruption"] = {"budgets": [{"nodes": "1"}]}
    until = world.now + timedelta(days=5)
    for claim in claims(world):
        world.cloud.reported[claim.instance_id] = Notice(
            InterruptionCause.SCHEDULED, claim.instance_id, until, "retirement"
        )
    most = 0
    for _ in range(20):
        world.live(timedelta(minutes=1))
        most = max(most, sum(claim.is_ending for claim in claims(world)))
    assert most == 1
    assert world.violations() == []
    assert len(world.cloud.instances) == 8


def test_all_nodes_in_a_capacity_block_are_replaced_before_ec2_reclaims_them() -> None:
    world = settled(3)
    inside = claims(world)[:2]
    for claim in inside:
        world.store.claims[claim.name] = replace(
            claim, labels={**claim.labels, RESERVATION_ID: "cr-00000001"}
        )
    ends = world.now + timedelta(minutes=40)
    detail = {"capacity-reservation-id": "cr-00000001", "end-date": format_time(ends)}
    event = builders.ec2_event("Capacity Block Reservation Expiration Warning", detail, world.now)
    world.incoming.append((world.now, event))
    world._deliver()
    world.run(Concern.INTERRUPTION)
    ending = {claim.name: claim for claim in claims(world) if claim.is_ending}
    assert ending.keys() == {claim.name for claim in inside}
    assert {(c.cause, c.deadline) for c in ending.values()} == {
        ("ReservationExpires", ends - timedelta(minutes=30))
    }
    world.live(LIFE)
    assert world.violations() == []
    assert len(world.cloud.instances) == 5


def test_an_instance_that_fails_ec2s_checks_is_replaced_first() -> None:
    world = settled(terminationGracePeriodSeconds=20)
    victim = claims(world)[0]
    until = world.now + timedelta(minutes=3)
    world.cloud.reported[victim.instance_id] = Notice(
        InterruptionCause.IMPAIRED, victim.instance_id, until, "fails"
    )
    world.live(timedelta(seconds=65))
    assert world.store.claims[victim.name].cause == "InstanceImpaired"
    world.live(LIFE)
    assert world.violations() == []
    assert len(world.cloud.instances) == 3
