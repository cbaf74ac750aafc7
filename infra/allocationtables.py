"""AWS Glue tables over the objects of cost allocation, so that Athena can query them in S3."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Aws
from aws_cdk import aws_glue as glue
from constructs import Construct

from infra import names
from nodesmith.model.costs.allocations import (
    ALLOCATION_COLUMNS,
    ALLOCATIONS,
    DAYS,
    HOURS,
    MONTHS,
    MOVE_COLUMNS,
    MOVES,
)

DATABASE = "nodesmith"
FIRST_DAY = "2026-01-01"
"""No object is older."""
TABLES: Mapping[str, tuple[str, tuple[tuple[str, str], ...], bool]] = {
    "allocations_by_hour": (HOURS, ALLOCATION_COLUMNS, True),
    "allocations_by_day": (DAYS, ALLOCATION_COLUMNS, False),
    "allocations_by_month": (MONTHS, ALLOCATION_COLUMNS, False),
    "moves": (MOVES, MOVE_COLUMNS, True),
}
"""Name of a table → the kind of its objects, its columns, and whether a day's objects have a folder of their own."""
_TEXT = "org.apache.hadoop.mapred.TextInputFormat"
_WRITTEN = "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat"
_JSON = "org.openx.data.jsonserde.JsonSerDe"


def allocation_tables(scope: Construct, region: str) -> None:
    """Make the database and its tables. They cost nothing; Athena charges for what a query reads.

    A query names the cluster (`WHERE cluster = '…'`), since partitions are computed from the query and not listed.
    """
    database = glue.CfnDatabase(
        scope,
        "AllocationDatabase",
        catalog_id=Aws.ACCOUNT_ID,
        database_input=glue.CfnDatabase.DatabaseInputProperty(
            name=DATABASE, description="What nodes have cost, and whose pods they ran"
        ),
    )
    for name, (kind, columns, by_day) in TABLES.items():
        table = _table(scope, region, name, kind, columns, by_day=by_day)
        table.add_dependency(database)


def _table(
    scope: Construct,
    region: str,
    name: str,
    kind: str,
    columns: tuple[tuple[str, str], ...],
    *,
    by_day: bool,
) -> glue.CfnTable:
    place = f"s3://{names.bucket_name(region)}/{ALLOCATIONS}/{kind}/"
    keys = ("cluster", "day") if by_day else ("cluster",)
    return glue.CfnTable(
        scope,
        f"Table{kind.title()}",
        catalog_id=Aws.ACCOUNT_ID,
        database_name=DATABASE,
        table_input=glue.CfnTable.TableInputProperty(
            name=name,
            table_type="EXTERNAL_TABLE",
            parameters={
                "classification": "json",
                "compressionType": "gzip",
                "projection.enabled": "true",
                "projection.cluster.type": "injected",
                **({"projection.day.type": "date"} if by_day else {}),
                **({"projection.day.format": "yyyy-MM-dd"} if by_day else {}),
                **({"projection.day.range": f"{FIRST_DAY},NOW"} if by_day else {}),
                "storage.location.template": place + "/".join(f"${{{key}}}" for key in keys) + "/",
            },
            partition_keys=[glue.CfnTable.ColumnProperty(name=key, type="string") for key in keys],
            storage_descriptor=glue.CfnTable.StorageDescriptorProperty(
                location=place,
                input_format=_TEXT,
                output_format=_WRITTEN,
                compressed=True,
                columns=[glue.CfnTable.ColumnProperty(name=column, type=type_) for column, type_ in columns],
                serde_info=glue.CfnTable.SerdeInfoProperty(serialization_library=_JSON),
            ),
        ),
    )
