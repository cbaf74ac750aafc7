"""Metrics of nodes and pods in the small world: everything is counted once, with Karpenter's labels."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nodesmith.controllers.disruption.interruption import Interruption, handle_notices
from nodesmith.controllers.provisioning import Outcome, provision
from nodesmith.errors import Transient
from nodesmith.model.ec2.notices import InterruptionCause, Notice
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.metrics.metrics import Histogram, Metrics
from tests import builders
from tests.scenarios.moves import ON_DEMAND, settled, shrink
from tests.smallworld.world import World, pod_manifest


class Counted:
    """The metrics recorded since the last time they were taken."""

    def __init__(self, metrics: Metrics) -> None:
        self._recorded = metrics.take()

    def counter(self, name: str) -> list[tuple[dict[str, str], float]]:
        return [(dict(labels), n) for labels, n in sorted(self._recorded.counters.get(name, {}).items())]

    def gauge(self, name: str) -> list[tuple[dict[str, str], float]]:
        return [(dict(labels), n) for labels, n in sorted(self._recorded.gauges[name].series.items())]

    def histogram(self, name: str) -> Histogram:
        (histogram,) = self._recorded.histograms[name].values()
        return histogram


def running(pods: int = 2, **nodepool: Any) -> World:
    """Return a world with one node and `pods` pods on it, with all metrics reset."""
    manifests = {f"web-{n}": pod_manifest(f"web-{n}") for n in range(pods)}
    world = World(manifests, nodepool=builders.nodepool_manifest(**nodepool))
    world.settle()
    world.metrics.take()
    return world


def test_the_cost_of_a_nodepool_is_its_instances_price_until_they_are_terminated() -> None:
    world = settled(6, ON_DEMAND)
    world.run(Concern.LIFECYCLE)
    (claim,) = world.store.claims.values()
    assert claim.price_hourly_usd > 0
    ((about, usd),) = Counted(world.metrics).gauge("nodepools_cost_total")
    assert (about, usd) == ({"nodepool": "default"}, round(claim.price_hourly_usd, 6))
    shrink(world, 0)
    world.live(timedelta(minutes=5))
    assert not world.store.claims
    assert Counted(world.metrics).gauge("nodepools_cost_total") == [({"nodepool": "default"}, 0)]


def test_drained_pods_are_counted_once_by_their_nodes_reason() -> None:
    world = running(3)
    (claim,) = world.store.claims.values()
    world.warn(claim.instance_id)
    world.live(timedelta(minutes=3))
    reported = Counted(world.metrics)
    assert reported.counter("pods_drained_total") == [({"reason": "SpotInterrupted"}, 3)]


def test_pods_of_a_manually_deleted_node_are_counted_as_forceful_termination() -> None:
    world = running(2)
    (claim,) = world.store.claims
    world.cluster.delete("NodeClaim", claim)
    world.live(timedelta(minutes=3))
    assert Counted(world.metrics).counter("pods_drained_total") == [({"reason": "Forceful Termination"}, 2)]


def test_pending_pods_are_counted_by_zone_and_unschedulable_and_ignored_pods_separately() -> None:
    world = running(1)
    zone = "topology.kubernetes.io/zone"
    world.add("anywhere", cpu="3")
    world.add("in-a", cpu="3", nodeSelector={zone: "us-east-1a"})
    world.add("too-large", cpu="1000", nodeSelector={zone: "us-east-1b"})
    contradiction = builders.node_affinity([builders.expression(zone, "In", "us-east-1c")])
    world.add("nowhere", nodeSelector={zone: "us-east-1a"}, affinity=contradiction)
    world.add("never", resourceClaims=[{"name": "gpu", "resourceClaimName": "g"}])
    world.observe()
    world.run(Concern.PROVISIONING)
    reported = Counted(world.metrics)
    by_zone = reported.gauge("scheduler_pending_pods_by_effective_zone_count")
    assert {labels["zone"]: n for labels, n in by_zone} == {
        "flexible": 1,
        "us-east-1a": 1,
        "us-east-1b": 1,
        "none": 1,
    }
    assert reported.gauge("scheduler_unschedulable_pods_count") == [({"controller": "provisioner"}, 1)]
    assert reported.gauge("scheduler_ignored_pods_count") == [({}, 2)]
    world.remove(["too-large", "nowhere", "never"])
    world.settle()
    world.run(Concern.PROVISIONING)
    reported = Counted(world.metrics)
    assert reported.gauge("scheduler_pending_pods_by_effective_zone_count") == []
    assert reported.gauge("scheduler_unschedulable_pods_count") == [({"controller": "provisioner"}, 0)]


def test_launch_failures_are_counted_by_zone_and_reason() -> None:
    world = World({"web-0": pod_manifest("web-0")})
    world.cloud.stock = {"*": 0}
    world.observe()
    world.run(Concern.PROVISIONING)
    failures = Counted(world.metrics).counter("cloudprovider_instance_launch_failures_total")
    assert {labels["reason"] for labels, _ in failures} == {"InsufficientInstanceCapacity"}
    assert {labels["zone"] for labels, _ in failures} <= set(builders.ZONES)
    subnets = world.store.load().nodeclasses["default"].subnets
    ids = {subnet.zone: subnet.zone_id for subnet in subnets}
    assert all(labels["zone_id"] == ids[labels["zone"]] for labels, _ in failures)
    assert sum(n for _, n in failures) == len(world.store.load().unavailable)


def interruption(world: World) -> Interruption:
    return Interruption(
        builders.CLUSTER,
        world.store,
        world.cloud,
        world.blobs,
        world.hints,
        world.notices,
        Outcome,
        world.clock,
        world.metrics,
    )


def test_messages_are_counted_by_type_and_again_when_they_are_deleted() -> None:
    world = running()
    (claim,) = world.store.claims.values()
    world.now += timedelta(seconds=7)
    said = (
        builders.spot_warning(claim.instance_id, world.now - timedelta(seconds=7)),
        builders.state_change("i-00000000000000000", "stopped", world.now - timedelta(seconds=3)),
        builders.state_change(claim.instance_id, "running", world.now),
        '{"detail-type": nonsense',
        "",
    )
    world.notices.keep_all(*said)
    handle_notices(interruption(world))
    reported = Counted(world.metrics)
    assert reported.counter("interruption_received_messages_total") == [
        ({"message_type": "instance_stopped"}, 1),
        ({"message_type": "no_op"}, 3),
        ({"message_type": "spot_interrupted"}, 1),
    ]
    assert reported.counter("interruption_deleted_messages_total") == [({}, 5)]
    waited = reported.histogram("interruption_message_queue_duration_seconds")
    assert (sum(waited.counts), waited.total_seconds) == (2, 10)


def test_a_notice_whose_claim_could_not_be_written_is_not_deleted() -> None:
    world = running()
    (claim,) = world.store.claims.values()

    def refuse(method: str) -> None:
        if method == "save":
            raise Transient("the table is away")

    world.store.raise_before = refuse
    world.notices.keep_all(builders.spot_warning(claim.instance_id, world.now))
    assert handle_notices(interruption(world)).retries_soon
    assert len(world.notices.pending()) == 1
    assert Counted(world.metrics).counter("interruption_deleted_messages_total") == []


@pytest.mark.parametrize(
    ("check", "cause", "category"),
    [
        ("InstanceStatus", InterruptionCause.IMPAIRED, "instance_status"),
        ("SystemStatus", InterruptionCause.IMPAIRED, "system_status"),
    ],
)
def test_a_node_that_fails_a_check_by_ec2_is_counted_once(
    check: str, cause: InterruptionCause, category: str
) -> None:
    world = running()
    (claim,) = world.store.claims.values()
    notice = Notice(cause, claim.instance_id, world.now + timedelta(minutes=2), "it fails", check=check)
    world.cloud.reported[claim.instance_id] = notice
    for _ in range(3):
        handle_notices(interruption(world))
    assert world.store.claims[claim.name].phase is Phase.TERMINATING
    reported = Counted(world.metrics)
    assert reported.counter("interruption_instance_status_unhealthy_total") == [({"category": category}, 1)]


def test_decisions_about_pods_are_timed_and_runs_without_pods_are_not() -> None:
    world = running()
    seconds = iter(range(100))
    run = world.provisioning(stopwatch=lambda: float(next(seconds)))
    provision(run)
    assert not run.metrics.take().histograms
    world.add("late")
    world.observe()
    provision(run)
    (histogram,) = run.metrics.take().histograms["scheduler_scheduling_duration_seconds"].values()
    assert (sum(histogram.counts), histogram.total_seconds) == (1, 1)
