"""Costs as CSV, as Parquet, and as OpenCost's allocation API returns them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.costs.allocations import ALLOCATION_COLUMNS, NANO, Allocation, Kind, write_rows
from nodesmith_cli.costs.showback.grouping import Group
from nodesmith_formats.wording import spreadsheet_text

Row = Mapping[str, Any]
ROW_COLUMNS = (("cluster", "string"), *ALLOCATION_COLUMNS)
GROUP_COLUMNS = (
    ("cluster", "string"),
    ("name", "string"),
    *((name, "bigint") for name in ("nano_usd", "committed_nano_usd", "cpu_nano_usd", "memory_nano_usd")),
    *((name, "bigint") for name in ("gpu_nano_usd", "daemonset_nano_usd")),
    ("estimated", "boolean"),
)
_SQL_TYPES = {
    "string": "VARCHAR",
    "bigint": "BIGINT",
    "boolean": "BOOLEAN",
    "map<string,string>": "MAP(VARCHAR, VARCHAR)",
}
_MIB, _HOUR_SECONDS = 2**20, 3600


def all_rows(cluster: str, rows: Iterable[Allocation]) -> list[Row]:
    """Return every row with its cluster."""
    return [{"cluster": cluster, **row.to_row()} for row in rows]


def group_rows(cluster: str, groups: Iterable[Group]) -> list[Row]:
    """Return the sums of groups with their cluster."""
    return [{"cluster": cluster, **group.to_item()} for group in groups]


def to_csv(rows: Iterable[Row], columns: Sequence[tuple[str, str]]) -> str:
    """Return rows as CSV with a header. A text that a spreadsheet would run as a formula begins with an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text)  # the default line ends make it quote carriage returns, too
    writer.writerow([name for name, _ in columns])
    for row in rows:
        writer.writerow([_cell(row[name]) for name, _ in columns])
    return text.getvalue()


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return spreadsheet_text(
        value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
    )


def to_parquet(rows: Iterable[Row], columns: Sequence[tuple[str, str]]) -> bytes:
    """Return rows as Parquet. Raises Rejected without the extra `parquet`."""
    try:
        import duckdb
    except ImportError:
        raise Rejected(
            "-o parquet: needs DuckDB, which is not installed: pipx inject nodesmith 'nodesmith[parquet]'"
        ) from None
    types = {name: _SQL_TYPES[type_] for name, type_ in columns}
    with TemporaryDirectory() as folder:
        source, target = Path(folder) / "rows.jsonl.gz", Path(folder) / "rows.parquet"
        source.write_bytes(write_rows(rows))
        with duckdb.connect() as database:
            relation = database.read_json(str(source), columns=types, format="newline_delimited")
            relation.write_parquet(str(target), compression="zstd")
        return target.read_bytes()


def to_opencost(cluster: str, groups: Iterable[Group]) -> dict[str, Any]:
    """Return groups as OpenCost's `/allocation` does for one window, by name."""
    return {"code": 200, "data": [{group.name: _opencost(cluster, group) for group in groups}]}


def _opencost(cluster: str, group: Group) -> dict[str, Any]:
    start = min(row.window_start for row in group.rows)
    end = max(row.window_end for row in group.rows)
    hours = max(1.0, (end - start).total_seconds()) / _HOUR_SECONDS
    cores = group.sum("cpu_milli_seconds") / 1000 / _HOUR_SECONDS
    memory = group.sum("memory_mib_seconds") * _MIB / _HOUR_SECONDS
    gpus = group.sum("gpu_seconds") / _HOUR_SECONDS
    whole = group.sum("nano_usd")
    parts = {name: group.sum(f"{name}_nano_usd") for name in ("cpu", "memory", "gpu")}
    window = {"start": format_time(start), "end": format_time(end)}
    idle = {row.owner.kind for row in group.rows} <= {Kind.IDLE}
    return {
        "name": group.name,
        "properties": {"cluster": cluster, **_common(group)},
        "window": window,
        **window,
        "minutes": hours * 60,
        "cpuCores": cores / hours,
        "cpuCoreRequestAverage": 0.0 if idle else cores / hours,
        "cpuCoreHours": cores,
        "cpuCost": parts["cpu"] / NANO,
        "gpuCount": gpus / hours,
        "gpuHours": gpus,
        "gpuCost": parts["gpu"] / NANO,
        "ramBytes": memory / hours,
        "ramByteRequestAverage": 0.0 if idle else memory / hours,
        "ramByteHours": memory,
        "ramCost": parts["memory"] / NANO,
        "pvCost": (whole - sum(parts.values())) / NANO,
        "networkCost": 0.0,
        "loadBalancerCost": 0.0,
        "sharedCost": 0.0,
        "externalCost": 0.0,
        "totalCost": whole / NANO,
    }


def _common(group: Group) -> dict[str, Any]:
    """Return the properties that all rows of a group share, under OpenCost's names."""
    first, properties = group.rows[0], dict[str, Any]()
    values: Mapping[str, Callable[[Allocation], str]] = {
        "node": lambda row: row.node,
        "providerID": lambda row: row.instance_id,
        "namespace": lambda row: row.owner.namespace,
        "controller": lambda row: row.owner.workload.partition("/")[2],
        "controllerKind": lambda row: row.owner.workload.partition("/")[0].lower(),
    }
    for name, value_of in values.items():
        value = value_of(first)
        if value and all(value_of(row) == value for row in group.rows):
            properties[name] = value
    labels = first.owner.labels
    shared = {k: v for k, v in labels.items() if all(row.owner.labels.get(k) == v for row in group.rows)}
    return {**properties, "labels": dict(sorted(shared.items()))} if shared else properties
