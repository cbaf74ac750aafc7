"""`nodesmith catalog`: what can be bought in a region, with capacity, labels and prices."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from nodesmith.model.apimachinery.labels import CAPACITY_TYPES

PROBLEMS_SHOWN = 20


def catalog_command(
    patterns: Annotated[
        list[str] | None, typer.Argument(metavar="TYPE", help="Only these types: m5.large, 'c7g.*'.")
    ] = None,
    region: Annotated[str, typer.Option(help="The region.")] = "us-east-1",
    source: Annotated[
        str,
        typer.Option(
            metavar="embedded|aws|FILE",
            help="Where from: this package, AWS today, or a file (KWOK's format or this command's JSON).",
        ),
    ] = "embedded",
    arch: Annotated[str, typer.Option(help="Only this architecture: amd64 or arm64.")] = "",
    zone: Annotated[str, typer.Option(help="Only what this zone offers.")] = "",
    capacity_type: Annotated[str, typer.Option(help=f"Only {', '.join(CAPACITY_TYPES)}.")] = "",
    sort: Annotated[Literal["name", "price"], typer.Option(help="By name, or by lowest price.")] = "name",
    output: Annotated[
        Literal["table", "json"], typer.Option("--output", "-o", help="How to print it.")
    ] = "table",
) -> None:
    """List the instance types that can be bought. Prices that are estimates are marked."""
    from nodesmith_cli.catalogview import Wanted, print_json, print_table, read_catalog, select

    wanted = Wanted(tuple(patterns or ()), arch, zone, capacity_type, sort)
    catalog, warnings = read_catalog(source, region)
    for warning in warnings[:PROBLEMS_SHOWN]:
        typer.echo(f"nodesmith: {warning}", err=True)
    if len(warnings) > PROBLEMS_SHOWN:
        typer.echo(f"nodesmith: and {len(warnings) - PROBLEMS_SHOWN} more like these", err=True)
    listed = select(catalog, wanted)
    if output == "json":
        print_json(listed)
    else:
        print_table(catalog, listed)
