"""A refresh against moto's EC2 (instance types, offerings, zones, spot prices) and a recorded price list."""

from __future__ import annotations

from datetime import UTC, datetime

import boto3
import pytest

from nodesmith.adapters.catalog.catalogs import (
    StoredCatalogs,
    embedded_catalog,
    embedded_prices,
    published_limits,
)
from nodesmith.adapters.catalog.pricing import AwsMarket
from nodesmith.controllers.region.catalog import refresh_catalog
from nodesmith.keys import catalog_key
from nodesmith.model.ec2.instancetypes import instance_types
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from tests.aws.account import strict_aws

REGION = "eu-north-1"
NOW = datetime(2026, 8, 30, tzinfo=UTC)


class MemoryBlobs:
    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.objects.get(key)

    def put(self, key: str, data: bytes) -> None:
        self.objects[key] = data


@pytest.fixture(scope="module")
def refreshed() -> StoredCatalogs:
    catalogs = StoredCatalogs(REGION, MemoryBlobs())
    with strict_aws():
        ec2 = boto3.Session("testing", "testing", region_name=REGION).client("ec2")
        market = AwsMarket(REGION, ec2, None, published_limits())
        report = refresh_catalog(market, catalogs, embedded_prices(REGION), NOW)
        assert report.written
        assert report.learned["zones"] == 3
    return catalogs


def test_ec2s_instance_types_match_the_embedded_catalogue(refreshed: StoredCatalogs) -> None:
    stored, embedded = refreshed.latest(), embedded_catalog(REGION)
    assert set(embedded.facts) <= set(stored.facts)
    assert {name: stored.facts[name] for name in embedded.facts} == embedded.facts


def test_a_stored_catalogue_is_offered_in_ec2s_zones_with_ids(refreshed: StoredCatalogs) -> None:
    offered = refreshed.latest().offerings["m5.large"]
    assert {o.zone for o in offered} == {f"{REGION}{letter}" for letter in "abc"}
    assert all(o.zone_id.startswith("eun1-az") for o in offered)


def test_spot_prices_are_ec2s_and_on_demand_prices_stay_estimates(refreshed: StoredCatalogs) -> None:
    stored = refreshed.latest()
    by_type = {(o.capacity_type, o.estimated) for o in stored.offerings["m5.large"]}
    assert by_type == {("on-demand", True), ("spot", False)}
    assert stored.made_at == NOW


def test_a_stored_catalogue_resolves_like_the_embedded_one(refreshed: StoredCatalogs) -> None:
    stored = {one.name: one for one in instance_types(refreshed.latest(), NodeConfiguration())}
    for one in instance_types(embedded_catalog(REGION), NodeConfiguration()):
        assert stored[one.name].allocatable == one.allocatable
        assert stored[one.name].labels == one.labels


def test_without_a_stored_catalogue_the_embedded_one_is_used() -> None:
    blobs = MemoryBlobs()
    catalogs = StoredCatalogs(REGION, blobs)
    assert catalogs.latest() is embedded_catalog(REGION)
    catalogs.write(embedded_catalog(REGION))
    assert list(blobs.objects) == [catalog_key(REGION)]
    assert catalogs.latest() == embedded_catalog(REGION)
    assert catalogs.latest() is catalogs.latest()
