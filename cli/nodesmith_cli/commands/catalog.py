"""`nodesmith catalog`: the instance types of a region with their capacity, labels and prices."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from nodesmith.model.apimachinery.labels import CAPACITY_TYPES
from nodesmith_cli.commands.options import DataOutputOption

PROBLEMS_SHOWN = 20


def catalog_command(
    patterns: Annotated[
        list[str] | None,
        typer.Argument(metavar="TYPE", help="Types to list: m5.large, 'c7g.*'. Defaults to all."),
    ] = None,
    region: Annotated[str, typer.Option(help="AWS region.")] = "us-east-1",
    source: Annotated[
        str,
        typer.Option(
            metavar="embedded|aws|FILE",
            help="Read the built-in catalogue, AWS, or a file (KWOK's format or this command's JSON).",
        ),
    ] = "embedded",
    arch: Annotated[str, typer.Option(help="Architecture to list: amd64 or arm64.")] = "",
    zone: Annotated[str, typer.Option(help="Zone to list.")] = "",
    capacity_type: Annotated[
        str, typer.Option(help=f"Capacity type to list: {', '.join(CAPACITY_TYPES)}.")
    ] = "",
    sort: Annotated[
        Literal["name", "price"], typer.Option(help="Sort order: by name, or by lowest price.")
    ] = "name",
    output: DataOutputOption = "table",
) -> None:
    """List the instance types of a region. A ~ marks an estimated price."""
    from nodesmith_cli.views.catalog import CatalogRequest, print_json, print_table, read_catalog, select

    request = CatalogRequest(tuple(patterns or ()), arch, zone, capacity_type, sort)
    if source == "aws":
        from nodesmith_cli.output.progress import progress

        with progress("reading AWS", key="catalog-reading"):
            catalog, warnings = read_catalog(source, region)
    else:
        catalog, warnings = read_catalog(source, region)
    for warning in warnings[:PROBLEMS_SHOWN]:
        typer.echo(f"nodesmith: {warning}", err=True)
    if len(warnings) > PROBLEMS_SHOWN:
        typer.echo(f"nodesmith: and {len(warnings) - PROBLEMS_SHOWN} more", err=True)
    listed = select(catalog, request)
    match output:
        case "table":
            print_table(catalog, listed)
        case "json":
            print_json(listed)
        case _:
            from nodesmith_cli.output.printing import print_data

            print_data(listed, output)
