"""`nodesmith validate`: what it is given. Its code is imported when it runs."""

from __future__ import annotations

from typing import Annotated, Literal

import typer


def validate_command(
    files: Annotated[
        list[str], typer.Option("--filename", "-f", help="Manifests: file, folder, or - for standard input.")
    ],
    more: Annotated[list[str] | None, typer.Argument(metavar="FILE", help="More of them.")] = None,
    region: Annotated[
        str, typer.Option(help="The region; else that of the zones in the files, else us-east-1.")
    ] = "",
    output: Annotated[
        Literal["text", "json"], typer.Option("--output", "-o", help="How to print it.")
    ] = "text",
) -> None:
    """Say everything that is wrong with manifests, each at its file and line.

    Objects are looked at alone and together: NodePools with their EC2NodeClass, what they may buy and each other, pods
    with what could host them, PodDisruptionBudgets with the pods they guard.

    Exit status 1 where anything is an error, 0 where there are warnings only.
    """
    from nodesmith_cli.validating.command import run

    raise typer.Exit(run([*files, *(more or [])], region, output))
