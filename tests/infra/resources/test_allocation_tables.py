"""The tables of cost allocation in AWS Glue, an option."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import App, Environment, Stack, assertions

from infra.allocationtables import TABLES, allocation_tables
from nodesmith.model.costs.allocations import (
    ALLOCATION_COLUMNS,
    DAYS,
    HOURS,
    MOVE_COLUMNS,
    MOVES,
    allocations_key,
    allocations_prefix,
)
from tests.infra.deployment import REGION
from tests.infra.templates import Template, resolve


@pytest.fixture(scope="module")
def tables() -> dict[str, Any]:
    stack = Stack(App(), "tables", env=Environment(region=REGION))
    allocation_tables(stack, REGION)
    found = assertions.Template.from_stack(stack).find_resources("AWS::Glue::Table").values()
    inputs = [resolve(each["Properties"]["TableInput"]) for each in found]
    return {each["Name"]: each for each in inputs}


def test_there_are_no_tables_unless_a_region_wants_them(region: Template) -> None:
    assert not [each for each in region.resources.values() if each["Type"].startswith("AWS::Glue::")]


def test_tables_have_the_columns_of_the_documents(tables: dict[str, Any]) -> None:
    assert tables.keys() == TABLES.keys()
    for name, table in tables.items():
        columns = [(each["Name"], each["Type"]) for each in table["StorageDescriptor"]["Columns"]]
        assert columns == list(MOVE_COLUMNS if name == "moves" else ALLOCATION_COLUMNS)


def test_no_partition_key_is_a_column_too(tables: dict[str, Any]) -> None:
    for table in tables.values():
        columns = {each["Name"] for each in table["StorageDescriptor"]["Columns"]}
        assert not columns & {each["Name"] for each in table["PartitionKeys"]}


@pytest.mark.parametrize(
    ("name", "kind", "window"),
    [
        ("allocations_by_hour", HOURS, "2026-11-26/13"),
        ("allocations_by_day", DAYS, "2026-11-26"),
        ("moves", MOVES, "2026-11-26/13"),
    ],
)
def test_the_place_of_a_partition_is_that_of_its_objects(
    tables: dict[str, Any], name: str, kind: str, window: str
) -> None:
    parameters = tables[name]["Parameters"]
    place = parameters["storage.location.template"].partition("s3://")[2].partition("/")[2]
    place = place.replace("${cluster}", "alpha").replace("${day}", "2026-11-26")
    assert allocations_key(kind, "alpha", window).startswith(place)
    assert ("2026-11-26" in place) == ("projection.day.format" in parameters)
    assert tables[name]["StorageDescriptor"]["Location"].endswith(
        allocations_prefix(kind, "alpha").removesuffix("alpha/")
    )


def test_each_partition_key_is_projected(tables: dict[str, Any]) -> None:
    for table in tables.values():
        for key in table["PartitionKeys"]:
            assert f"projection.{key['Name']}.type" in table["Parameters"]
            assert f"${{{key['Name']}}}" in table["Parameters"]["storage.location.template"]
