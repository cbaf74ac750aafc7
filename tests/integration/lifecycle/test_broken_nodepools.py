"""A NodePool whose nodes never join the cluster backs off and does not affect others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from nodesmith.model.apimachinery.labels import NODEPOOL
from nodesmith.model.ec2.launches import Instance
from nodesmith.model.ledger.learned import RegistrationHealth
from nodesmith.model.nodeclasses.status import StatusCondition
from tests import builders
from tests.fakes.cloud import ready_status
from tests.samples import sampled
from tests.smallworld.world import BOOT, World, pod_manifest

HOUR = timedelta(hours=1)
LATER = timedelta(minutes=20)
WATCHED = sampled(timedelta(minutes=40), whole=HOUR)
HEALTHY = ("default", "second", "third")
ONE_EACH = builders.anti_affinity("web")


def chosen(nodepool: str, name: str) -> dict[str, object]:
    return pod_manifest(name, nodeSelector={NODEPOOL: nodepool}, affinity=ONE_EACH)


def never(world: World) -> Callable[[Instance], bool]:
    """Let the broken NodePool's instances run without joining. Those of shared fleets have no claim tag."""

    def boots(instance: Instance) -> bool:
        claims = world.store.claims.values()
        claim = next((claim for claim in claims if claim.instance_id == instance.id), None)
        return claim is not None and claim.nodepool != "broken"

    return boots


def dying(world: World) -> Callable[[Instance], bool]:
    """Let the instances shut down as soon as they should join."""

    def boots(instance: Instance) -> bool:
        broken = not never(world)(instance)
        if broken and world.now - instance.launched_at >= BOOT:
            reported = "Client.InternalError: Client error on launch"
            world.cloud.instances[instance.id] = replace(instance, state="terminated", state_reason=reported)
        return not broken

    return boots


def world_of(broken: int) -> World:
    world = World({f"broken-{n}": chosen("broken", f"broken-{n}") for n in range(broken)})
    world.cluster.nodepools["broken"] = builders.nodepool_manifest("broken")
    return world


def launches(world: World, nodepool: str) -> list[datetime]:
    """Return the launch times of a NodePool's instances."""
    ours = [i for i in world.cloud.instances.values() if i.claim.startswith(f"{nodepool}-")]
    return sorted(instance.launched_at for instance in ours)


def most_in_an_hour(moments: list[datetime]) -> int:
    return max(sum(start <= moment < start + HOUR for moment in moments) for start in moments)


@pytest.mark.exhaustive
@pytest.mark.parametrize("ill", [never, dying])
def test_a_broken_nodepool_launches_at_most_six_times_in_an_hour(
    ill: Callable[[World], Callable[[Instance], bool]],
) -> None:
    world = world_of(broken=3)
    world.boots = ill(world)

    world.settle(patience=sampled(1.5, whole=3) * HOUR)

    moments = launches(world, "broken")
    assert 3 <= most_in_an_hour(moments) <= 6
    assert len(moments) >= 4, "attempts are repeated"
    assert len(world.waiting()) == 3
    assert len(world.cloud.alive()) <= 1
    assert [c.name for c in world.store.claims.values()] == [i.claim for i in world.cloud.alive()]


def served_after(world: World) -> dict[str, timedelta]:
    """Run for some time and return the time at which each pod was bound."""
    found: dict[str, timedelta] = {}
    world.observe()
    while world.now < builders.NOW + WATCHED:
        world.step()
        for name, pod in world.pods.items():
            if pod["spec"].get("nodeName"):
                found.setdefault(name, world.now - builders.NOW)
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize("ill", [never, dying])
def test_a_broken_nodepool_does_not_slow_down_three_healthy_ones(
    ill: Callable[[World], Callable[[Instance], bool]], healthy_alone: tuple[World, dict[str, timedelta]]
) -> None:
    """At once, and when more pods arrive while the broken one backs off."""
    alone, expected = healthy_alone
    beside = with_healthy(world_of(broken=3))
    beside.boots = ill(beside)

    found = served_after(beside)
    assert len(expected) == 2 * len(HEALTHY)
    assert found == expected, "the other NodePools' pods waited no longer"
    for pool in HEALTHY:
        assert launches(beside, pool) == launches(alone, pool)
        assert not beside.store.health.get(pool, RegistrationHealth("")).failures
    assert 3 <= most_in_an_hour(launches(beside, "broken")) <= 6


@pytest.fixture(scope="module")
def healthy_alone() -> tuple[World, dict[str, timedelta]]:
    """Return the healthy NodePools' life without a broken one, and when their pods were bound."""
    world = with_healthy(world_of(broken=0))
    return world, served_after(world)


def with_healthy(world: World) -> World:
    """Add the healthy NodePools, each with a pod now and another later."""
    for pool in HEALTHY:
        world.cluster.nodepools[pool] = builders.nodepool_manifest(pool)
        world.add(f"{pool}-early", nodeSelector={NODEPOOL: pool}, affinity=ONE_EACH)
    world.mishaps.append((LATER, more_pods))
    return world


def more_pods(world: World) -> None:
    for pool in HEALTHY:
        world.add(f"{pool}-late", nodeSelector={NODEPOOL: pool}, affinity=ONE_EACH)


def test_the_condition_and_the_pods_events_report_the_problem() -> None:
    world = world_of(broken=3)
    world.boots = never(world)
    world.settle(patience=timedelta(minutes=17))

    shown = world.cluster.nodepools["broken"]["status"]["conditions"]
    reported = {c["type"]: (c["status"], c["reason"]) for c in shown}
    assert reported["NodeRegistrationHealthy"] == ("False", "RegistrationFailed")
    assert reported["Ready"][0] == "True"
    events = [e for e in world.cluster.events if "did not join" in e.message]
    assert {event.name for event in events} >= {"default/broken-0"}


def test_once_the_nodepool_is_fixed_all_pods_are_served_at_once() -> None:
    world = world_of(broken=3)
    world.boots = never(world)
    world.settle(patience=timedelta(minutes=40))
    assert len(world.waiting()) == 3

    world.boots = lambda _: True
    world.cluster.nodepools["broken"]["metadata"]["generation"] = 2
    began = world.now
    world.settle()

    assert world.violations() == []
    assert world.now - began < timedelta(minutes=16), (
        "except for a node whose launch is still being attempted"
    )
    assert [e.registered for e in world.store.health["broken"].endings][-2:] == [True, True]


def without_subnets(world: World) -> None:
    """Let the EC2NodeClass `bare` select no subnet."""
    known = ready_status(builders.nodeclass("bare"), world.cloud.cluster, world.now)
    gone = StatusCondition("SubnetsReady", "False", "SubnetsNotFound", "no subnet has these tags", world.now)
    others = tuple(c for c in known.conditions if c.type != "SubnetsReady")
    world.cloud.statuses["bare"] = replace(known, subnets=(), conditions=(*others, gone))
    world.store.nodeclasses["bare"] = world.cloud.statuses["bare"]
    world.cluster.nodeclasses["bare"] = builders.nodeclass_manifest("bare")
    world.cluster.nodepools["broken"] = builders.nodepool_manifest("broken", nodeclass="bare")


def test_a_nodeclass_without_subnets_launches_nothing_and_does_not_delay_three_others() -> None:
    alone, beside = (
        World({f"{pool}-0": chosen(pool, f"{pool}-0") for pool in pools})
        for pools in (HEALTHY, (*HEALTHY, "broken"))
    )
    for world in (alone, beside):
        for name in ("second", "third"):
            world.cluster.nodepools[name] = builders.nodepool_manifest(name)
    without_subnets(beside)
    alone.settle()
    beside.settle(patience=HOUR)

    for pool in HEALTHY:
        assert launches(beside, pool) == launches(alone, pool) != []
    assert launches(beside, "broken") == []
    assert beside.waiting() == ["broken-0"]
    conditions = beside.cluster.nodepools["broken"]["status"]["conditions"]
    assert next(c["status"] for c in conditions if c["type"] == "Ready") == "False"

    del beside.cloud.statuses["bare"]
    began = beside.now
    beside.settle()
    assert beside.violations() == []
    assert beside.now - began < timedelta(minutes=4), "readiness resolves it every minute"
