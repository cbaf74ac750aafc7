"""Savings Plans and Reserved Instances: read from AWS under the catalog function's role, and shared in the table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nodesmith.adapters.aws.commitments import AwsCommitments
from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.adapters.dynamodb.regionitems import DynamoCommitments
from nodesmith.controllers.region.commitments import read_commitments_of
from nodesmith.errors import Conflict, Rejected
from nodesmith.model.costs.commitmentsettings import CommitmentSettings, parse_commitment_settings
from nodesmith.model.ledger.commitments import (
    NO_COMMITMENTS,
    ClusterUsage,
    Commitment,
    CommitmentBook,
    CommitmentKind,
    Commitments,
    book_item,
    read_book,
)
from tests.aws.account import REGION, Account, account, client
from tests.awscalls.acting import Role, acting
from tests.fakes.blobs import FakeBlobs
from tests.fakes.table import FakeTable

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
ENDS = datetime(2027, 6, 30, tzinfo=UTC)
RATES = {"m5.large": 0.06, "m5.xlarge": 0.12, "c5.large": 0.05}


@pytest.fixture
def here() -> Iterator[Account]:
    with account() as made:
        yield made


def reader() -> AwsCommitments:
    return AwsCommitments(REGION, acting(client, Role("catalog", "", REGION)))


def test_savings_plans_are_read_with_their_rates_in_the_region(here: Account) -> None:
    bought = here.strict.commitments
    bought.buy_plan("all", 1.5, RATES, REGION, ENDS)
    bought.buy_plan("m5", 0.5, {"m5.large": 0.055}, REGION, ENDS, family="m5")
    bought.buy_plan("elsewhere", 0.5, {"m5.large": 0.055}, "eu-west-1", ENDS, family="m5")
    compute, family = reader().savings_plans()
    assert (compute.id, compute.kind, compute.amount) == ("all", CommitmentKind.COMPUTE, 1_500_000)
    assert dict(compute.rates) == {"m5.large": 60_000, "m5.xlarge": 120_000, "c5.large": 50_000}
    assert (family.kind, family.scope, family.ends) == (CommitmentKind.EC2_INSTANCE, "m5", ENDS)


def test_a_plan_in_another_currency_is_named(here: Account) -> None:
    here.strict.commitments.buy_plan("p", 1.0, RATES, REGION, ENDS, currency="EUR")
    with pytest.raises(Rejected, match="p: its currency is EUR"):
        reader().savings_plans()


def test_reserved_instances_are_zonal_or_count_in_normalized_units(here: Account) -> None:
    here.strict.commitments.reserve("zonal", "m5.large", 2, ENDS, zone="us-east-1a", hourly_usd=0.06)
    here.strict.commitments.reserve("regional", "m5.xlarge", 3, ENDS)
    zonal, regional = reader().reserved_instances({})
    assert (zonal.kind, zonal.zone, zonal.amount, zonal.hourly_usd) == (
        CommitmentKind.ZONAL,
        "us-east-1a",
        2,
        0.12,
    )
    assert (regional.kind, regional.amount) == (CommitmentKind.REGIONAL, 3 * 8 * 4)


def run_instances(instance_type: str, count: int, cluster: str = "", **fields: Any) -> None:
    tags = [{"Key": "nodesmith.dev/managed-by", "Value": cluster}] if cluster else []
    fields |= {"TagSpecifications": [{"ResourceType": "instance", "Tags": tags}]} if tags else {}
    image = client("ec2").describe_images()["Images"][0]["ImageId"]
    fields |= {"ImageId": image, "InstanceType": instance_type}
    client("ec2").run_instances(MinCount=count, MaxCount=count, **fields)


def test_what_runs_on_demand_is_counted_by_cluster(here: Account) -> None:
    subnet = here.network.subnets["us-east-1a"]
    run_instances("m5.large", 2, SubnetId=subnet)
    run_instances("c5.large", 1, "shop", SubnetId=subnet)
    spot = {"MarketType": "spot"}
    run_instances("m5.large", 1, SubnetId=subnet, InstanceMarketOptions=spot)
    here.strict.visibility.settle()
    assert reader().running() == {
        "": {("m5.large", "us-east-1a"): 2.0},
        "shop": {("c5.large", "us-east-1a"): 1.0},
    }


def read(store: DynamoCommitments, blobs: FakeBlobs, settings: CommitmentSettings) -> tuple[str, ...]:
    found = read_commitments_of(reader(), None, settings, store, blobs, embedded_catalog(REGION), NOW)
    return found.new_faults


def test_without_the_right_the_fault_is_reported_once_and_what_was_known_stays(here: Account) -> None:
    store, blobs, settings = DynamoCommitments(FakeTable(), "table"), FakeBlobs(), CommitmentSettings()
    here.strict.commitments.buy_plan("all", 1.5, RATES, REGION, ENDS)
    assert read(store, blobs, settings) == ()
    here.strict.commitments.refuses = "AccessDeniedException"
    (fault,) = read(store, blobs, settings)
    assert "savingsplans:DescribeSavingsPlans: AccessDeniedException" in fault
    assert read(store, blobs, settings) == ()
    book = store.load().book
    assert ([each.id for each in book.commitments], book.faults) == (["all"], (fault,))
    kept = json.loads(blobs.objects[f"catalog/{REGION}.commitments.json"])
    assert kept == book_item(book)


@pytest.mark.usefixtures("here")
def test_listed_commitments_are_added_and_wrong_ones_told() -> None:
    store, blobs = DynamoCommitments(FakeTable(), "table"), FakeBlobs()
    ends = "2027-06-30T00:00:00Z"
    listed = [
        {"kind": "computeSavingsPlan", "hourly": 2.0, "discount": 0.25, "ends": ends},
        {"kind": "ec2InstanceSavingsPlan", "family": "m55", "hourly": 1, "discount": 0.4, "ends": ends},
        {
            "kind": "regionalReservedInstances",
            "instanceType": "m5.large",
            "count": 4,
            "ends": "2020-01-01T00:00:00Z",
        },
    ]
    faults = read(store, blobs, parse_commitment_settings(json.dumps({"listed": listed})))
    assert "commitment 2: family is 'm55': did you mean 'm5'?" in faults[0]
    assert "commitment 3: ends: it has expired" in faults[1]
    (plan,) = store.load().book.commitments
    assert (plan.amount, plan.of_payer, plan.rates["m5.large"]) == (2_000_000, True, 72_000)


BOOK = CommitmentBook(
    NOW,
    (Commitment("p", CommitmentKind.COMPUTE, 10, ENDS, rates={"m5.large": 5}),),
    {"": {("m5.large", "a"): 1.0}},
)


def test_a_book_survives_the_table() -> None:
    store = DynamoCommitments(FakeTable(), "table")
    assert store.load() is NO_COMMITMENTS
    store.keep(BOOK)
    found = store.load().book
    assert book_item(found) == book_item(BOOK) == book_item(read_book(book_item(BOOK)))
    assert store.load().book is found, "decisions rely on one object for equal books"


def test_of_two_clusters_that_report_at_once_one_loses() -> None:
    table = FakeTable()
    first, second = DynamoCommitments(table, "table"), DynamoCommitments(table, "table")
    first.keep(BOOK)
    seen, also = first.load(), second.load()
    first.report(seen.reporting("first", {("m5.large", "a"): 2.0}, NOW))
    with pytest.raises(Conflict):
        second.report(also.reporting("second", {}, NOW))
    again = second.load()
    assert again.reported == {"first": ClusterUsage(NOW, {("m5.large", "a"): 2.0})}
    second.report(again.reporting("second", {}, NOW))
    assert set(first.load().reported) == {"first", "second"}


def test_a_report_counts_until_the_next_reading_or_for_six_hours() -> None:
    running = {"shop": {("m5.large", "a"): 1.0}}
    found = Commitments(replace(BOOK, running=running)).reporting("shop", {("m5.large", "a"): 3.0}, NOW)
    soon, late = NOW + timedelta(hours=1), NOW + timedelta(hours=7)
    assert found.others("other", soon) == {("m5.large", "a"): 3.0}
    assert found.others("shop", soon) == {}
    assert found.others("other", late) == {("m5.large", "a"): 1.0}
    read_later = replace(found, book=replace(found.book, read_at=soon))
    assert read_later.others("other", soon) == {("m5.large", "a"): 1.0}
