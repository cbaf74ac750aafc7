"""A quota of vCPUs that is used up: smaller nodes are tried, and types that another quota counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from nodesmith.controllers.provisioning import provision
from nodesmith.model.apimachinery.labels import ON_DEMAND, SPOT
from nodesmith.model.ec2.instancetypes import InstanceType, instance_types
from nodesmith.model.ec2.launches import LaunchOutcome, LaunchRequest, NoCapacity, OfferingKey, Shortfall
from nodesmith.model.ledger.learned import FIRST_BACKOFF, Backoff
from nodesmith.model.ledger.shortages import over_quota
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from tests import builders
from tests.fakes.cloud import FakeCloud
from tests.smallworld.world import World, pod_manifest

CODES = {ON_DEMAND: "VcpuLimitExceeded", SPOT: "MaxSpotInstanceCountExceeded"}
HELD = Backoff(builders.NOW + FIRST_BACKOFF, 1, CODES[ON_DEMAND])


def vcpus(instance_type: str) -> int:
    facts = builders.catalog().facts[instance_type]
    return int(getattr(facts, "vcpus", 0))


@dataclass(slots=True)
class Limited(FakeCloud):
    """An EC2 that allows so many vCPUs for each capacity type."""

    allowed: int = 5
    asked: set[str] = field(default_factory=set)
    """The calls; equal requests share one."""

    def launch(self, requests: Sequence[LaunchRequest], *, repeated: bool = False) -> list[LaunchOutcome]:
        found: list[LaunchOutcome] = []
        for request in requests:
            self.asked.add(request.call)
            own = (i for i in self.alive() if i.capacity_type == request.capacity_type)
            left = self.allowed - sum(vcpus(each.instance_type) for each in own)
            fitting = tuple(row for row in request.overrides if vcpus(row.instance_type) <= left)
            if fitting:
                alone = replace(request, overrides=fitting, share=None)
                found += FakeCloud.launch(self, [alone], repeated=repeated)
                continue
            code, pools = CODES[request.capacity_type], sorted(map(request.pool, request.overrides))
            short = tuple(Shortfall(pool, code) for pool in pools)
            found.append(NoCapacity(request.claim, short, quota=True))
        return found


def bought(pods: int, cpu: str, allowed: int) -> tuple[Limited, World]:
    world = World({f"web-{number}": pod_manifest(f"web-{number}", cpu=cpu) for number in range(pods)})
    world.sold = builders.catalog()
    world.observe()
    cloud = Limited(world.cloud.cluster, clock=world.clock, allowed=allowed)
    provision(replace(world.provisioning(), cloud=cloud))
    return cloud, world


def test_pods_get_the_nodes_that_the_quota_of_a_new_account_allows() -> None:
    cloud, _ = bought(4, "1500m", allowed=5)
    nodes = sorted((i.capacity_type, vcpus(i.instance_type)) for i in cloud.alive())
    assert nodes == [(ON_DEMAND, 4), (SPOT, 4)]
    assert len(cloud.asked) <= 8


def test_a_quota_that_allows_no_node_costs_few_calls() -> None:
    cloud, world = bought(4, "1500m", allowed=1)
    assert cloud.alive() == []
    assert len(world.waiting()) == 4
    assert len(cloud.asked) <= 12


@pytest.fixture(scope="module")
def types() -> Sequence[InstanceType]:
    return instance_types(builders.catalog(), NodeConfiguration.of(builders.nodeclass()))


def closed(types: Sequence[InstanceType], *refused: str) -> dict[str, set[str]]:
    """Return the names of closed types by capacity type, after EC2 has refused these types on demand in one zone."""
    short = {OfferingKey(ON_DEMAND, name, builders.ZONES[0]): HELD for name in refused}
    found: dict[str, set[str]] = {ON_DEMAND: set(), SPOT: set()}
    for key in over_quota(short, types, builders.NOW):
        found[key.capacity_type].add(key.instance_type)
    return found


def test_what_has_as_many_vcpus_is_closed_in_all_zones_and_what_has_fewer_is_not(
    types: Sequence[InstanceType],
) -> None:
    short = {OfferingKey(ON_DEMAND, "m5.2xlarge", builders.ZONES[0]): HELD}
    found = over_quota(short, types, builders.NOW)
    assert {key.zone for key in found if key.instance_type == "c5.2xlarge"} >= set(builders.ZONES)
    assert {"r5.4xlarge", "t3.2xlarge"} <= {key.instance_type for key in found}
    assert all(vcpus(key.instance_type) >= 8 for key in found)


def test_the_fewest_vcpus_that_were_refused_count(types: Sequence[InstanceType]) -> None:
    assert "c5.xlarge" in closed(types, "m5.2xlarge", "m5.xlarge")[ON_DEMAND]
    assert "c5.large" not in closed(types, "m5.2xlarge", "m5.xlarge")[ON_DEMAND]


def test_each_group_of_series_and_each_capacity_type_has_a_quota_of_its_own(
    types: Sequence[InstanceType],
) -> None:
    standard, graphics = closed(types, "m5.large"), closed(types, "g5.xlarge")
    assert standard[SPOT] == graphics[SPOT] == set()
    assert not {"g5.xlarge", "p4d.24xlarge", "inf2.xlarge", "x2idn.16xlarge"} & standard[ON_DEMAND]
    assert {"i4i.large", "im4gn.large", "z1d.large", "t4g.large"} <= standard[ON_DEMAND]
    assert {"g6.xlarge", "gr6.4xlarge"} <= graphics[ON_DEMAND]
    assert not {"m5.24xlarge", "p4d.24xlarge"} & graphics[ON_DEMAND]


def test_a_quota_closes_nothing_once_the_back_off_is_over(types: Sequence[InstanceType]) -> None:
    short = {OfferingKey(ON_DEMAND, "m5.large", builders.ZONES[0]): HELD}
    assert over_quota(short, types, HELD.until) == frozenset()
    assert over_quota(short, types, HELD.until - timedelta(seconds=1))
