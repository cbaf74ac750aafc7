"""`nodesmith convert`: what it is given. Its code is imported when it runs."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from nodesmith_cli.preconditions import require_files


def convert_command(
    files: Annotated[
        list[str], typer.Option("--filename", "-f", help="Manifests: file, folder, or - for standard input.")
    ],
    more: Annotated[list[str] | None, typer.Argument(metavar="FILE", help="More of them.")] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Print every change and its risk to standard error.")
    ] = False,
    role: Annotated[
        str,
        typer.Option(metavar="NAME", help="IAM role of nodes whose objects name neither role nor profile."),
    ] = "",
    instance_profile: Annotated[
        str,
        typer.Option(metavar="NAME", help="Instance profile of the same, as aws.defaultInstanceProfile was."),
    ] = "",
    kubernetes_version: Annotated[
        str, typer.Option(metavar="1.32", help="The cluster's; before 1.33, AL2 stays AL2.")
    ] = "",
    output: Annotated[
        Literal["yaml", "json"], typer.Option("--output", "-o", help="How to print the objects.")
    ] = "yaml",
) -> None:
    """Convert manifests of any age (Provisioner, AWSNodeTemplate, v1beta1) to those of today.

    Objects go to standard output, with the comments of YAML, and what needs no change to the letter; findings go to
    standard error. What Karpenter reads today, nodesmith reads as well, and the other way round.

    Exit status 0 where all was converted, 1 where something must be decided by you, 2 where input could not be read.
    """
    named = (*files, *(more or ()))
    require_files(named, "convert")
    from nodesmith.model.conversion.nodetemplates import Surroundings
    from nodesmith_cli.converting.command import Wanted, run

    around = Surroundings(kubernetes_version, role, instance_profile, for_files=True)
    raise typer.Exit(run(Wanted(named, around, report), output))
