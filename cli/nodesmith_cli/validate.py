"""The options of `nodesmith validate`. Its code is imported when it runs."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from nodesmith.errors import Rejected


def validate_command(
    files: Annotated[
        list[str] | None,
        typer.Option("--filename", "-f", help="Manifests: a file, a folder, or - for standard input."),
    ] = None,
    more: Annotated[list[str] | None, typer.Argument(metavar="FILE", help="Manifests, like -f.")] = None,
    region: Annotated[
        str, typer.Option(help="AWS region. Defaults to the region of the manifests' zones, or us-east-1.")
    ] = "",
    commitments: Annotated[
        str,
        typer.Option(metavar="FILE", help="Also check a list of Savings Plans and Reserved Instances."),
    ] = "",
    output: Annotated[
        Literal["text", "json"], typer.Option("--output", "-o", help="Output format.")
    ] = "text",
) -> None:
    """Report every error in manifests, with its file and line.

    Objects are checked alone and together: NodePools with their EC2NodeClass, their instance types and each other, pods
    with the NodePools that could host them, and PodDisruptionBudgets with the pods they cover.

    The exit status is 1 if there is an error, and 0 if there are only warnings.
    """
    from nodesmith_cli.validating.command import run

    named = [*(files or []), *(more or [])]
    if not (named or commitments):
        raise Rejected("nothing to read: use -f FILE (- for standard input) or --commitments FILE")
    raise typer.Exit(run(named, region, output, commitments))
