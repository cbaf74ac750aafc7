"""The zonal shifts of clusters, read from Application Recovery Controller."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import boto3
import pytest

from nodesmith.adapters.aws.eks import RegionShifts
from nodesmith.adapters.cloud import AwsCloud
from nodesmith.errors import Rejected
from nodesmith.model.ec2.zonalshifts import AUTOSHIFT, ZonalShift
from nodesmith.settings import Settings
from tests.aws.account import REGION, SETTINGS, Account, account
from tests.awscalls.acting import Role, acting
from tests.fakes.cloud import CLUSTER

NAME = CLUSTER.name


@pytest.fixture
def here() -> Iterator[Account]:
    with account() as made:
        yield made


def zone_id(name: str) -> str:
    zones = boto3.client("ec2", region_name=REGION).describe_availability_zones()["AvailabilityZones"]
    return str(next(zone["ZoneId"] for zone in zones if zone["ZoneName"] == name))


def cloud(now: Any, settings: Settings = SETTINGS) -> AwsCloud:
    client = acting(
        lambda service: boto3.client(service, region_name=REGION), Role("readiness", NAME, REGION)
    )
    return AwsCloud(client, settings, lambda: now)


def test_a_shift_is_read_with_the_zones_name_and_its_end(here: Account) -> None:
    shifts, now = here.strict.shifts, here.strict.visibility.now()
    shifts.register(NAME, REGION)
    assert cloud(now).zonal_shifts(now) == ()
    id_ = zone_id("us-east-1b")
    shifts.start(NAME, id_, timedelta(hours=2))
    (found,) = cloud(now).zonal_shifts(now) or ()
    assert (found.zone, found.zone_id, found.kind) == ("us-east-1b", id_, "zonal shift")
    assert abs(found.until - now - timedelta(hours=2)) < timedelta(seconds=30)


def test_an_autoshift_without_a_stated_end_holds_for_an_hour_after_it_is_read(here: Account) -> None:
    shifts, now = here.strict.shifts, here.strict.visibility.now()
    shifts.register(NAME, REGION)
    id_ = zone_id("us-east-1a")
    shifts.start_autoshift(NAME, id_)
    expected = ZonalShift("us-east-1a", id_, now + timedelta(hours=1), AUTOSHIFT)
    assert cloud(now).zonal_shifts(now) == (expected,)
    shifts.end(NAME, id_)
    assert cloud(now).zonal_shifts(now) == ()


def test_a_cluster_that_is_not_registered_has_no_shift(here: Account) -> None:
    now = here.strict.visibility.now()
    assert cloud(now).zonal_shifts(now) == ()


def test_a_denied_call_and_an_isolated_vpc_leave_the_shifts_unknown(here: Account) -> None:
    now = here.strict.visibility.now()
    isolated = Settings(cluster_name=NAME, region=REGION, isolated_vpc=True)
    assert cloud(now, isolated).zonal_shifts(now) is None
    here.strict.shifts.refuses = "AccessDeniedException"
    assert cloud(now).zonal_shifts(now) is None


def test_one_call_finds_all_clusters_of_the_region_with_a_shift(here: Account) -> None:
    shifts = here.strict.shifts
    for name in (NAME, "quiet"):
        shifts.register(name, REGION)
    shifts.start_autoshift(NAME, "use1-az1")
    client = acting(lambda service: boto3.client(service, region_name=REGION), Role("routing", "", REGION))
    region = RegionShifts(lambda: client("arc-zonal-shift"))
    assert region.clusters() == {NAME}
    shifts.refuses = "AccessDeniedException"
    with pytest.raises(Rejected, match="ListManagedResources"):
        region.clusters()
