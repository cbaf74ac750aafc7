"""A zone in which EC2 has nothing left costs a call or two, not one for every few instance types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from nodesmith.controllers.provisioning import provision
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, ON_DEMAND, SPOT, ZONE
from nodesmith.model.ec2.launches import (
    NO_SPOT_ROLE,
    LaunchOutcome,
    LaunchRequest,
    NoCapacity,
    OfferingKey,
    Shortfall,
)
from nodesmith.model.ec2.notices import InterruptionCause
from nodesmith.model.ledger.learned import FIRST_BACKOFF, Backoff
from nodesmith.model.ledger.region import CallBudget, Region, Scarcity
from nodesmith.model.ledger.shortages import lost_zones
from tests import builders
from tests.fakes.cloud import FakeCloud
from tests.smallworld.world import World, pod_manifest

LOST, OTHER, _ = builders.ZONES
CODE = "InsufficientInstanceCapacity"
LONG = timedelta(minutes=1)
HELD = Backoff(builders.NOW + FIRST_BACKOFF, 1, CODE)
GENERAL = [f"{family}.{size}" for family in ("c5", "m5", "r5") for size in ("large", "xlarge", "2xlarge")]
MANY = [*GENERAL, "c6a.large"]


@dataclass(slots=True)
class Lost(FakeCloud):
    """An EC2 without capacity in one zone. It names each pool that it tried."""

    asked: list[str] = field(default_factory=list)

    def launch(self, requests: Sequence[LaunchRequest], *, repeated: bool = False) -> list[LaunchOutcome]:
        found: list[LaunchOutcome] = []
        for request in requests:
            self.asked.append(request.capacity_type)
            left = tuple(row for row in request.overrides if row.zone != LOST)
            if left:
                found += FakeCloud.launch(self, [replace(request, overrides=left)], repeated=repeated)
                continue
            pools = sorted(map(request.pool, request.overrides))
            found.append(NoCapacity(request.claim, tuple(Shortfall(pool, CODE) for pool in pools)))
        return found


def closed(kinds: Sequence[str], backoff: Backoff = HELD) -> dict[OfferingKey, Backoff]:
    return {OfferingKey(SPOT, kind, LOST): backoff for kind in kinds}


def test_a_pod_that_needs_the_lost_zone_costs_one_call_for_each_capacity_type() -> None:
    world = World({"web": pod_manifest("web", nodeSelector={ZONE: LOST})})
    world.observe()
    cloud = Lost(clock=world.clock)

    outcome = provision(replace(world.provisioning(), cloud=cloud))

    assert sorted(cloud.asked) == ["on-demand", "spot"]
    (unplaced,) = outcome.plan.unplaced
    assert f"EC2 lately refused all instance types that the pods select in {LOST}" in unplaced.reason


def test_another_cluster_of_the_region_makes_no_call_for_the_lost_zone() -> None:
    first, second = (World({"web": pod_manifest("web", nodeSelector={ZONE: LOST})}) for _ in range(2))
    second.store.budget, second.store.region = first.store.budget, [Region("")]
    for world in (first, second):
        world.observe()
    cloud = Lost(clock=first.clock)
    provision(replace(first.provisioning(), cloud=cloud))
    cloud.asked.clear()

    outcome = provision(replace(second.provisioning(), cloud=cloud))

    assert cloud.asked == []
    assert [group.pods for group in outcome.plan.unplaced] == [("default/web",)]


def test_while_calls_are_short_nodes_that_one_zone_alone_may_provide_are_bought_last() -> None:
    pinned = pod_manifest("pinned", nodeSelector={ZONE: LOST, CAPACITY_TYPE: SPOT})
    pods = {"pinned": pinned, "free": pod_manifest("free", nodeSelector={CAPACITY_TYPE: ON_DEMAND})}
    world = World(pods)
    world.observe()
    world.store.region, now = [Region("")], world.now
    world.store.budget[0] = CallBudget(
        calls=1, at=now, asked_at={"test": now}, waiting_since={"test": now - LONG}
    )
    world.store.budget[0] = world.store.budget[0].with_scarcity(Scarcity(is_throttled=True), now)
    cloud = Lost(clock=world.clock)

    (name,) = provision(replace(world.provisioning(), cloud=cloud)).launched

    assert world.store.claims[name].nominated == ("default/free",)
    assert len(cloud.asked) == 1


def test_a_pod_that_may_run_elsewhere_gets_its_node_in_another_zone_with_the_first_call() -> None:
    world = World({"web": pod_manifest("web")})
    world.observe()
    cloud = Lost(clock=world.clock)

    (name,) = provision(replace(world.provisioning(), cloud=cloud)).launched

    assert world.store.claims[name].zone != LOST
    assert len(cloud.asked) == 1


def test_many_types_of_several_families_in_one_answer_close_the_zone_until_their_back_off_ends() -> None:
    assert lost_zones(closed(MANY), builders.NOW) == {(SPOT, LOST)}
    assert lost_zones(closed(MANY), builders.NOW + FIRST_BACKOFF) == frozenset()


@pytest.mark.parametrize(
    "kinds",
    [GENERAL, [f"g{number}.xlarge" for number in range(20)], [f"c5.{number}xlarge" for number in range(20)]],
    ids=["few types", "accelerators alone", "one series"],
)
def test_what_may_be_short_by_itself_closes_no_zone(kinds: Sequence[str]) -> None:
    assert lost_zones(closed(kinds), builders.NOW) == frozenset()


@pytest.mark.parametrize("code", ["VcpuLimitExceeded", "UnauthorizedOperation", "Unsupported"])
def test_what_is_no_shortage_of_the_zone_closes_none(code: str) -> None:
    assert lost_zones(closed(MANY, replace(HELD, reason=code)), builders.NOW) == frozenset()


def test_back_offs_of_several_answers_or_from_notices_close_no_zone() -> None:
    later = replace(HELD, until=HELD.until + timedelta(seconds=1))
    assert lost_zones(closed(MANY[::2]) | closed(MANY[1::2], later), builders.NOW) == frozenset()
    assert (
        lost_zones(closed(MANY, replace(HELD, reason=InterruptionCause.SPOT.value)), builders.NOW)
        == frozenset()
    )


def test_an_account_without_the_role_for_spot_has_none_in_any_zone_where_it_was_asked_for() -> None:
    refused = replace(HELD, reason=NO_SPOT_ROLE)
    assert lost_zones(closed(GENERAL[:1], refused), builders.NOW) == {(SPOT, LOST)}
    assert lost_zones(closed(GENERAL[:1], refused), builders.NOW + FIRST_BACKOFF) == frozenset()
