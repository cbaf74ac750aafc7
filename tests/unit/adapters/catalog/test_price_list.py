from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from nodesmith.adapters.catalog.catalogs import PublishedLimits
from nodesmith.adapters.catalog.pricing import AwsMarket, price_list_region
from nodesmith.errors import Rejected, Transient

NOW = datetime(2026, 8, 1, 12, tzinfo=UTC)
AWS = boto3.Session("testing", "testing", region_name="us-east-1")
NO_LIMITS = PublishedLimits({}, {})


@pytest.fixture
def price_list() -> Iterator[Stubber]:
    with Stubber(AWS.client("pricing")) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


@pytest.fixture
def ec2() -> Iterator[Stubber]:
    with Stubber(AWS.client("ec2")) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


def market(ec2: Stubber, price_list: Stubber | None = None, region: str = "us-east-1") -> AwsMarket:
    return AwsMarket(region, ec2.client, price_list.client if price_list else None, NO_LIMITS)


def product(instance_type: str, *prices: dict[str, str]) -> str:
    dimensions = {str(n): {"unit": "Hrs", "pricePerUnit": price} for n, price in enumerate(prices)}
    return json.dumps(
        {
            "product": {"attributes": {"instanceType": instance_type}},
            "terms": {"OnDemand": {"sku.term": {"priceDimensions": dimensions}}},
        }
    )


def page(*products: str, token: str = "") -> dict[str, Any]:
    return {"PriceList": list(products), **({"NextToken": token} if token else {})}


@pytest.mark.parametrize(
    ("region", "nearest"),
    [
        ("us-east-1", "us-east-1"),
        ("sa-east-1", "us-east-1"),
        ("eu-west-1", "eu-central-1"),
        ("ap-southeast-2", "ap-south-1"),
        ("cn-north-1", "cn-northwest-1"),
        ("us-gov-west-1", None),
        ("eusc-de-east-1", "eusc-de-east-1"),
        ("us-iso-east-1", None),
    ],
)
def test_each_region_uses_the_nearest_price_list_endpoint(region: str, nearest: str | None) -> None:
    assert price_list_region(region) == nearest


def test_on_demand_prices_are_collected_from_all_pages_of_both_kinds(
    ec2: Stubber, price_list: Stubber
) -> None:
    price_list.add_response("get_products", page(product("m5.large", {"USD": "0.0960000000"}), token="2"))
    price_list.add_response("get_products", page(product("c5.large", {"USD": "0"}, {"USD": "0.085"})))
    price_list.add_response("get_products", page(product("m5.metal", {"USD": "4.608"})))
    assert market(ec2, price_list).on_demand_prices() == {
        "m5.large": 0.096,
        "c5.large": 0.085,
        "m5.metal": 4.608,
    }


def test_the_price_list_query_is_for_plain_linux_on_shared_tenancy_in_the_region(
    ec2: Stubber, price_list: Stubber
) -> None:
    wanted = {
        "regionCode": "eu-west-1",
        "serviceCode": "AmazonEC2",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "productFamily": "Compute Instance",
    }
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
    asked = {"ServiceCode": "AmazonEC2", "Filters": filters}
    price_list.add_response("get_products", page(product("m5.large", {"USD": "0.107"})), asked)
    price_list.add_response("get_products", page(), {"ServiceCode": "AmazonEC2", "Filters": ANY})
    assert market(ec2, price_list, "eu-west-1").on_demand_prices() == {"m5.large": 0.107}


def test_windows_is_asked_for_with_its_licence_and_dedicated_hardware_by_its_tenancy(
    ec2: Stubber, price_list: Stubber
) -> None:
    asked: list[dict[str, str]] = []

    class Asked:
        def __eq__(self, filters: object) -> bool:
            assert isinstance(filters, list)
            asked.append({each["Field"]: each["Value"] for each in filters})
            return True

        __hash__ = None  # type: ignore[assignment]

    expected = {"ServiceCode": "AmazonEC2", "Filters": Asked()}
    for price in ("0.24", "5.1", "0.25", "5.1"):
        price_list.add_response("get_products", page(product("m5.large", {"USD": price})), expected)
    found = market(ec2, price_list)
    assert set(found.prices_of("windows", ["us-east-1-bos-1"])) == {"us-east-1-bos-1"}
    assert set(found.prices_of("dedicated-windows", ["us-east-1"])) == {"us-east-1"}
    keys = ("regionCode", "operatingSystem", "licenseModel", "tenancy", "productFamily")
    reported = [tuple(each[key] for key in keys) for each in asked]
    included = "No License required"
    metal = "Compute Instance (bare metal)"
    assert list(dict.fromkeys(reported)) == [
        ("us-east-1-bos-1", "Windows", included, "Shared", "Compute Instance"),
        ("us-east-1-bos-1", "Windows", included, "Dedicated", metal),
        ("us-east-1", "Windows", included, "Dedicated", "Compute Instance"),
        ("us-east-1", "Windows", included, "Dedicated", metal),
    ]


def test_a_place_without_prices_is_left_out(ec2: Stubber, price_list: Stubber) -> None:
    price_list.add_response("get_products", page())
    price_list.add_response("get_products", page())
    assert market(ec2, price_list).prices_of("dedicated", ["us-east-1-bos-1"]) == {}


def test_spot_prices_of_windows_are_asked_for_by_their_product_description(ec2: Stubber) -> None:
    asked = {"ProductDescriptions": ["Windows", "Windows (Amazon VPC)"], "StartTime": NOW}
    rows = [spot("m5.large", "us-east-1a", "0.14", 11)]
    ec2.add_response("describe_spot_price_history", {"SpotPriceHistory": rows}, asked)
    assert market(ec2).spot_prices(NOW, windows=True) == {("m5.large", "us-east-1a"): 0.14}


def test_prices_in_china_are_in_cny(ec2: Stubber, price_list: Stubber) -> None:
    price_list.add_response("get_products", page(product("m5.large", {"CNY": "1.013", "USD": "0.1"})))
    price_list.add_response("get_products", page())
    assert market(ec2, price_list, "cn-north-1").on_demand_prices() == {"m5.large": 1.013}


def test_a_product_without_a_price_is_skipped(ec2: Stubber, price_list: Stubber) -> None:
    price_list.add_response(
        "get_products", page(product("m5.large", {"USD": "0"}), product("c5.large", {"USD": "1"}))
    )
    price_list.add_response("get_products", page())
    assert market(ec2, price_list).on_demand_prices() == {"c5.large": 1.0}


def test_an_empty_price_list_is_an_error(ec2: Stubber, price_list: Stubber) -> None:
    price_list.add_response("get_products", page())
    price_list.add_response("get_products", page())
    with pytest.raises(Transient, match="no on-demand prices for us-east-1"):
        market(ec2, price_list).on_demand_prices()


def test_an_isolated_vpc_does_not_call_the_price_list(ec2: Stubber) -> None:
    assert market(ec2).on_demand_prices() == {}


def spot(name: str, zone: str, price: str, hour: int) -> dict[str, Any]:
    reported = datetime(2026, 8, 1, hour, tzinfo=UTC)
    return {"InstanceType": name, "AvailabilityZone": zone, "SpotPrice": price, "Timestamp": reported}


def test_the_latest_spot_price_of_each_zone_counts_in_any_page_order(ec2: Stubber) -> None:
    asked = {"ProductDescriptions": ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"], "StartTime": NOW}
    rows = [spot("m5.large", "us-east-1a", "0.05", 11), spot("m5.large", "us-east-1b", "0.03", 9)]
    ec2.add_response("describe_spot_price_history", {"SpotPriceHistory": rows, "NextToken": "2"}, asked)
    late = [spot("m5.large", "us-east-1a", "0.04", 8), spot("m5.large", "us-east-1b", "0.02", 10)]
    ec2.add_response("describe_spot_price_history", {"SpotPriceHistory": late}, {**asked, "NextToken": "2"})
    assert market(ec2).spot_prices(NOW) == {
        ("m5.large", "us-east-1a"): 0.05,
        ("m5.large", "us-east-1b"): 0.02,
    }


def test_a_throttled_call_is_transient_and_a_forbidden_one_is_rejected(ec2: Stubber) -> None:
    ec2.add_client_error("describe_instance_types", "RequestLimitExceeded", http_status_code=503)
    with pytest.raises(Transient, match="RequestLimitExceeded"):
        market(ec2).facts()
    ec2.add_client_error("describe_availability_zones", "UnauthorizedOperation", http_status_code=403)
    with pytest.raises(Rejected, match="UnauthorizedOperation"):
        market(ec2).zones()
    ec2.add_client_error("describe_instance_type_offerings", "InternalError", http_status_code=500)
    with pytest.raises(Transient, match="InternalError"):
        market(ec2).offered()


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ("MemoryInfo", "InstanceType/m9z.large: EC2 did not return MemoryInfo"),
        ("Ipv4AddressesPerInterface", "InstanceType/m9z.large: EC2 did not return Ipv4AddressesPerInterface"),
    ],
)
def test_a_type_description_that_lacks_a_required_fact_is_rejected_with_its_name(
    ec2: Stubber, lost: str, said: str
) -> None:
    described: dict[str, Any] = {
        "InstanceType": "m9z.large",
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
        "SupportedVirtualizationTypes": ["hvm"],
        "SupportedUsageClasses": ["on-demand"],
        "VCpuInfo": {"DefaultVCpus": 2},
        "MemoryInfo": {"SizeInMiB": 8192},
        "NetworkInfo": {"MaximumNetworkInterfaces": 3, "Ipv4AddressesPerInterface": 10},
    }
    (described if lost in described else described["NetworkInfo"]).pop(lost)
    ec2.add_response("describe_instance_types", {"InstanceTypes": [described]})
    with pytest.raises(Rejected, match=said):
        market(ec2).facts()


@pytest.mark.parametrize("broken", ["{", "[]", product("m5.large", {"USD": "free"})])
def test_an_unreadable_price_list_is_rejected(ec2: Stubber, price_list: Stubber, broken: str) -> None:
    price_list.add_response("get_products", page(product("c5.large", {"USD": "0.085"}), broken))
    with pytest.raises(Rejected, match=r"GetProducts: .* cannot be read"):
        market(ec2, price_list).on_demand_prices()
