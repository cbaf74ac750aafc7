from __future__ import annotations

import gzip
import json
from collections import Counter
from datetime import timedelta
from decimal import Decimal

import pytest

from nodesmith.adapters.catalog.catalogs import EMBEDDED, embedded_catalog, embedded_prices, embedded_regions
from nodesmith.errors import Rejected
from nodesmith.model.ec2.catalog import InstanceFacts
from nodesmith.model.ec2.instancetypes import instance_types
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration


def test_us_east_1_sells_over_1300_types_at_its_own_prices() -> None:
    catalog = embedded_catalog()
    offerings = [offering for offered in catalog.offerings.values() for offering in offered]
    assert len(catalog.facts) > 1300
    assert len(catalog.offerings) > 1300
    assert all(o.price_hourly_usd > 0 for o in offerings)
    assert {(o.capacity_type, o.estimated) for o in offerings} == {("on-demand", False), ("spot", True)}


def test_an_m5_large_has_its_list_price_and_an_estimated_spot_price() -> None:
    offered = embedded_catalog().offerings["m5.large"]
    assert {o.price_hourly_usd for o in offered if o.capacity_type == "on-demand"} == {0.096}
    assert {o.price_hourly_usd for o in offered if o.capacity_type == "spot"} == {0.0336}
    assert {o.zone for o in offered} == {f"us-east-1{letter}" for letter in "abcdf"}


def test_every_estimated_spot_price_is_exactly_its_share_of_the_on_demand_price() -> None:
    prices = embedded_prices("us-east-1").hourly
    spot = {
        (name, o.price_hourly_usd)
        for name, offered in embedded_catalog().offerings.items()
        for o in offered
        if o.capacity_type == "spot"
    }
    assert len(spot) > 1300
    assert all(Decimal(str(price)) == Decimal(str(prices[name])) * Decimal("0.35") for name, price in spot)


def test_a_type_without_a_price_is_known_but_not_offered() -> None:
    catalog = embedded_catalog()
    assert "r9g.large" in catalog.facts
    assert "r9g.large" not in catalog.offerings


def test_a_type_that_is_not_sold_as_spot_has_no_spot_offering() -> None:
    catalog = embedded_catalog()
    never_spot = [
        name for name, facts in catalog.facts.items()
        if isinstance(facts, InstanceFacts) and "spot" not in facts.capacity_types and name in catalog.offerings
    ]  # fmt: skip
    assert never_spot
    assert {o.capacity_type for name in never_spot for o in catalog.offerings[name]} == {"on-demand"}


@pytest.mark.parametrize(
    ("region", "currency", "estimated"),
    [("eu-west-1", "USD", True), ("us-gov-west-1", "USD", False), ("cn-north-1", "CNY", False)],
)
def test_another_region_has_its_own_prices_or_estimates(region: str, currency: str, estimated: bool) -> None:
    catalog = embedded_catalog(region)
    on_demand = [o for o in catalog.offerings["m5.large"] if o.capacity_type == "on-demand"]
    assert catalog.currency == currency
    assert {o.estimated for o in on_demand} == {estimated}
    assert all(o.zone.startswith(region) for o in on_demand)
    assert embedded_prices(region).estimated is estimated


def test_every_region_can_be_read_and_has_offerings() -> None:
    regions = embedded_regions()
    assert len(regions) > 30
    assert all(len(embedded_catalog(region).offerings) > 100 for region in regions)


def test_each_zone_id_names_one_zone() -> None:
    zones = {(o.zone, o.zone_id) for offered in embedded_catalog().offerings.values() for o in offered}
    assert max(Counter(zone for zone, _ in zones).values()) == 1
    assert max(Counter(zone_id for _, zone_id in zones).values()) == 1
    assert ("us-east-1a", "use1-az6") in zones


def test_an_unknown_region_is_refused_with_the_closest_name() -> None:
    with pytest.raises(
        Rejected, match="'us-eats-1' is not in the embedded catalogue, did you mean 'us-east-1'"
    ):
        embedded_catalog("us-eats-1")


def test_catalogues_are_equal_by_their_content() -> None:
    assert embedded_catalog("eu-west-1") == embedded_catalog("eu-west-1")
    assert embedded_catalog("eu-west-1") != embedded_catalog("eu-west-2")
    assert embedded_catalog().made_at.utcoffset() == timedelta(0)


def test_the_data_is_small_and_has_no_build_time() -> None:
    data = EMBEDDED.read_bytes()
    assert len(data) < 100_000
    assert data[4:8] == b"\0\0\0\0"
    assert sorted(json.loads(gzip.decompress(data))) == [
        "digest", "elsewhere", "format", "madeAt", "onDemand", "regions", "types", "unlisted",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "device", "count", "hourly"),
    [
        ("g4ad.xlarge", "amd.com/gpu", 1, 0.37853),
        ("g4ad.16xlarge", "amd.com/gpu", 4, 3.468),
        ("dl1.24xlarge", "habana.ai/gaudi", 8, 13.10904),
    ],
)
def test_accelerators_that_moto_no_longer_lists_can_be_bought(
    name: str, device: str, count: int, hourly: float
) -> None:
    catalog = embedded_catalog()
    (one,) = (each for each in instance_types(catalog, NodeConfiguration()) if each.name == name)
    assert one.capacity.of(device) == count
    sold = [o for o in catalog.offerings[name] if o.capacity_type == "on-demand"]
    assert {o.price_hourly_usd for o in sold} == {hourly}
    assert {o.zone for o in sold} <= {f"us-east-1{letter}" for letter in "abcd"}


@pytest.mark.parametrize("region", ["us-west-2", "eu-central-1"])
def test_a_type_that_the_reference_region_does_not_sell_has_the_price_of_another_region(
    region: str,
) -> None:
    catalog = embedded_catalog(region)
    (one,) = (each for each in instance_types(catalog, NodeConfiguration()) if each.name == "dl2q.24xlarge")
    assert one.labels["karpenter.k8s.aws/instance-accelerator-manufacturer"] == "qualcomm"
    on_demand = [o for o in catalog.offerings[one.name] if o.capacity_type == "on-demand"]
    assert {(o.price_hourly_usd, o.estimated) for o in on_demand} == {(11.5952, True)}
    assert "dl2q.24xlarge" not in embedded_catalog("us-east-1").offerings


def test_a_type_without_a_published_price_is_known_but_not_sold() -> None:
    catalog = embedded_catalog("us-east-2")
    assert "trn2.48xlarge" in catalog.facts
    assert "trn2.48xlarge" not in catalog.offerings
