"""The options of `nodesmith ledger`. Its code is imported when it runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import typer

from nodesmith.errors import Rejected
from nodesmith_cli.options import BucketOption, BucketRegionOption, KeepOption


def ledger_command(
    cluster: Annotated[str, typer.Argument(help="Name of the EKS cluster.")],
    view: Annotated[
        Literal["costs", "moves"],
        typer.Argument(help="costs by owner, or moves with what they promised and what came of them."),
    ] = "costs",
    month: Annotated[str, typer.Option(help="Month in UTC, such as 2026-11. Defaults to this month.")] = "",
    by: Annotated[
        str,
        typer.Option(
            help="namespace, workload, kind, node, nodepool, instance-type, zone, capacity-type, manager, "
            "or one of the labels that the cluster's setting ALLOCATION_LABELS chooses, such as team; label is "
            "all of them. Defaults to namespace; csv and parquet then have every row."
        ),
    ] = "",
    bucket: BucketOption = "",
    region: BucketRegionOption = "",
    keep: KeepOption = None,
    output: Annotated[
        Literal["table", "json", "csv", "parquet", "opencost"],
        typer.Option("--output", "-o", help="Output format. opencost is that of OpenCost's allocation API."),
    ] = "table",
    to: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="Write to a file, or with `--to bucket` to the bucket, next to its rows."
        ),
    ] = "",
) -> None:
    """Show what nodes have cost in a month, and who bears it: namespaces, teams, workloads, nodes.

    Each hour of each node is booked with its price and its pods' owners. What pods do not request is __idle__. The
    exit status is 0 if there is a report, and 2 if there is none. Parts that cannot be read are reported and left out.
    """
    if output == "parquet" and not to:
        raise Rejected("-o parquet: Parquet is binary, so --to must name a file, or be `bucket`")
    from nodesmith_cli.showback.command import Wanted, run

    wanted = Wanted(cluster, month, by, bucket, region, keep if keep is None else Path(keep), to)
    raise typer.Exit(run(wanted, view, output, datetime.now(UTC)))
