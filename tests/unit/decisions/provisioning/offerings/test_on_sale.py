"""What NodePools may buy and at which prices: calculated, stored in an object, and exported to Prometheus."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nodesmith.controllers.region.commitments import AGAIN_AFTER, OnSaleKeeper
from nodesmith.decisions.provisioning import Inputs
from nodesmith.decisions.provisioning.nodepools.onsale import on_sale
from nodesmith.errors import Rejected
from nodesmith.keys import on_sale_key
from nodesmith.model.ec2.catalog import InstanceFacts
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.ledger.learned import Backoff
from nodesmith.model.metrics.objects import (
    MOST_OFFERINGS,
    OfferingOnSale,
    TypeOnSale,
    read_on_sale,
    write_on_sale,
)
from nodesmith.ports import NONE_THERE, Version
from nodesmith_forwarder.metrics.offerings import AVAILABLE, OfferingMetrics
from tests.builders import (
    CLUSTER,
    NOW,
    ZONES,
    catalog,
    expression,
    inputs,
    ledger,
    nodeclass_status,
    nodepool_manifest,
    pods,
    shape,
    snapshot,
)
from tests.fakes.blobs import FakeBlobs
from tests.unit.model.karpenterseries import KARPENTERS

ON_DEMAND = expression("karpenter.sh/capacity-type", "In", "on-demand")
KEY = on_sale_key(CLUSTER)


def sizes(*names: str) -> dict[str, Any]:
    return expression("node.kubernetes.io/instance-type", "In", *names)


def market(*nodepools: dict[str, Any], **known: Any) -> Inputs:
    pools = nodepools or (nodepool_manifest(requirements=[sizes("m5.large"), ON_DEMAND]),)
    return inputs(snapshot=snapshot(nodepools=pools), ledger=ledger(**known), catalog=catalog())


def test_prices_are_those_of_the_nodepools_tenancy_whatever_pods_ask_for() -> None:
    key = "karpenter.k8s.aws/instance-tenancy"
    asking = pods(shape(nodeSelector={key: "dedicated"}), 1)
    every_price: list[set[float]] = []
    for more in ([], [expression(key, "In", "dedicated")]):
        pool = nodepool_manifest(requirements=[sizes("m5.large"), ON_DEMAND, *more])
        seen = snapshot(nodepools=(pool,), pods=asking)
        reported = on_sale(inputs(snapshot=seen, ledger=ledger(), catalog=catalog()))
        every_price.append({round(each.price_hourly_usd, 4) for each in reported["m5.large"].offerings})
    assert every_price == [{0.096}, {0.1056}]


def test_a_type_has_its_resources_and_an_offering_for_each_zone_with_a_subnet() -> None:
    reported = on_sale(market(nodeclasses={"default": nodeclass_status(zones=ZONES[:2])}))
    facts = catalog().facts["m5.large"]
    assert isinstance(facts, InstanceFacts)
    prices = {
        o.zone: o.price_hourly_usd for o in catalog().offerings["m5.large"] if o.capacity_type == "on-demand"
    }
    assert reported == {
        "m5.large": TypeOnSale(
            facts.vcpus,
            facts.memory_mib * 2**20,
            tuple(OfferingOnSale("on-demand", zone, prices[zone], is_available=True) for zone in ZONES[:2]),
        )
    }


def test_offerings_that_recently_had_no_capacity_are_not_available() -> None:
    short = OfferingKey("on-demand", "m5.large", ZONES[0])
    over = OfferingKey("on-demand", "m5.large", ZONES[1])
    backoffs = {
        short: Backoff(NOW + timedelta(minutes=1), 1, "InsufficientInstanceCapacity"),
        over: Backoff(NOW - timedelta(minutes=1), 1, "InsufficientInstanceCapacity"),
    }
    reported = on_sale(market(unavailable=backoffs))["m5.large"].offerings
    assert {one.zone: one.is_available for one in reported} == {zone: zone != ZONES[0] for zone in ZONES}


def test_each_nodepool_adds_what_it_allows_whether_or_not_it_may_buy_now() -> None:
    first = nodepool_manifest(requirements=[sizes("m5.large"), ON_DEMAND])
    spot = expression("karpenter.sh/capacity-type", "In", "spot")
    second = nodepool_manifest("other", requirements=[sizes("m5.large", "c5.large"), spot])
    refused = {"other": Backoff(NOW + timedelta(minutes=1), 1, "LaunchFailed")}
    reported = on_sale(market(first, second, nodepool_backoffs=refused))
    assert {name: sorted({o.capacity_type for o in kind.offerings}) for name, kind in reported.items()} == {
        "c5.large": ["spot"],
        "m5.large": ["on-demand", "spot"],
    }


def test_a_nodepool_whose_ec2nodeclass_has_not_been_resolved_adds_nothing() -> None:
    assert on_sale(market(nodeclasses={})) == {}


def test_written_data_is_read_back_unchanged() -> None:
    reported = on_sale(market())
    assert read_on_sale(write_on_sale(reported)) == reported


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"format": 2, "types": {}},
        {"format": 1},
        {"format": 1, "types": []},
        {"format": 1, "types": {"m5.large": [2, 1]}},
        {"format": 1, "types": {'m5"} 1\nup': [2, 1, []]}},
        {"format": 1, "types": {"m5.large": [2, 1, [["spot", 'a"b', 0.1, 1]]]}},
        {"format": 1, "types": {"m5.large": [2, 1, [["spot", "a", "0.1", 1]]]}},
        {"format": 1, "types": {"m5.large": [2, 1, [["spot", "a", float("nan"), 1]]]}},
        {"format": 1, "types": {"m5.large": [2, 1, [["spot", "a", 0.1, 1]] * (MOST_OFFERINGS + 1)]}},
    ],
)
def test_invalid_data_is_refused(content: Any) -> None:
    with pytest.raises(Rejected, match="offerings:"):
        read_on_sale(json.dumps(content).encode())


class Bucket(FakeBlobs):
    reads = 0

    def read(self, key: str, known: str = NONE_THERE, largest_bytes: int = 2**26) -> Version:
        self.reads += 1
        return super().read(key, known, largest_bytes)


class Shop:
    """A warm process of provisioning that maintains the object."""

    def __init__(self, bucket: Bucket) -> None:
        self.now = NOW
        self.keeper = OnSaleKeeper(bucket, CLUSTER, self.clock)

    def clock(self) -> datetime:
        return self.now


def test_the_object_is_written_once_until_something_changes() -> None:
    bucket = Bucket()
    shop = Shop(bucket)
    for minute in range(5):
        shop.keeper.keep(replace(market(), now=NOW + timedelta(minutes=minute)))
    assert (bucket.reads, bucket.puts) == (1, [KEY])
    short = {OfferingKey("on-demand", "m5.large", ZONES[0]): Backoff(NOW + timedelta(hours=1), 1, "none")}
    shop.keeper.keep(market(unavailable=short))
    assert bucket.puts == [KEY, KEY]
    assert not read_on_sale(bucket.objects[KEY])["m5.large"].offerings[0].is_available


def test_a_new_process_that_finds_equal_data_writes_nothing() -> None:
    bucket = Bucket()
    Shop(bucket).keeper.keep(market())
    Shop(bucket).keeper.keep(market())
    assert bucket.puts == [KEY]


def test_after_another_process_wrote_first_it_checks_again_later() -> None:
    bucket = Bucket()
    one, other = Shop(bucket), Shop(bucket)
    one.keeper.keep(market())
    pricier = market(nodepool_manifest(requirements=[sizes("m5.xlarge"), ON_DEMAND]))
    other.keeper.keep(pricier)
    third = market(nodepool_manifest(requirements=[sizes("m5.2xlarge"), ON_DEMAND]))
    one.keeper.keep(third)
    assert list(read_on_sale(bucket.objects[KEY])) == ["m5.xlarge"]
    one.now += AGAIN_AFTER
    one.keeper.keep(third)
    assert list(read_on_sale(bucket.objects[KEY])) == ["m5.2xlarge"]


def test_runs_continue_while_s3_is_unavailable() -> None:
    bucket = Bucket()
    shop = Shop(bucket)
    bucket.down = True
    for _ in range(3):
        shop.keeper.keep(market())
    assert bucket.reads == 1
    bucket.down, shop.now = False, shop.now + AGAIN_AFTER
    shop.keeper.keep(market())
    assert bucket.puts == [KEY]


def exposed(metrics: OfferingMetrics) -> list[str]:
    metrics.read()
    return [line for line in metrics.text.decode().splitlines() if not line.startswith("#")]


def test_prometheus_gets_price_and_availability_of_offerings_and_resources_of_types() -> None:
    bucket = Bucket()
    offered = (
        OfferingOnSale("spot", "us-east-1a", 0.0351, True),
        OfferingOnSale("spot", "us-east-1b", 0.04, False),
    )
    bucket.put(KEY, write_on_sale({"m5.large": TypeOnSale(2, 8589934592, offered)}))
    metrics = OfferingMetrics(bucket, CLUSTER)
    prefix, where = "karpenter_cloudprovider_instance_type", 'capacity_type="spot",instance_type="m5.large"'
    assert exposed(metrics) == [
        f'{prefix}_offering_price_estimate{{{where},zone="us-east-1a"}} 0.0351',
        f'{prefix}_offering_price_estimate{{{where},zone="us-east-1b"}} 0.04',
        f'{prefix}_offering_available{{{where},zone="us-east-1a"}} 1.0',
        f'{prefix}_offering_available{{{where},zone="us-east-1b"}} 0.0',
        f'{prefix}_cpu_cores{{instance_type="m5.large"}} 2.0',
        f'{prefix}_memory_bytes{{instance_type="m5.large"}} 8.589934592e+09',
    ]
    assert KARPENTERS[AVAILABLE].labels == {"capacity_type", "instance_type", "zone"}


def test_before_there_is_an_object_the_series_are_named_and_have_no_samples() -> None:
    metrics = OfferingMetrics(Bucket(), CLUSTER)
    assert exposed(metrics) == []
    assert metrics.text.count(b"# TYPE karpenter_cloudprovider_instance_type_") == 4


def test_the_last_valid_data_is_kept_when_an_object_is_damaged() -> None:
    bucket = Bucket()
    bucket.put(KEY, write_on_sale(on_sale(market())))
    metrics = OfferingMetrics(bucket, CLUSTER)
    before = exposed(metrics)
    bucket.put(KEY, b"garbage")
    with pytest.raises(Rejected):
        metrics.read()
    metrics.read()
    assert exposed(metrics) == before != []
