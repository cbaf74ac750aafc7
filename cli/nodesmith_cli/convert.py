"""The options of `nodesmith convert`. Its code is imported when it runs."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from nodesmith_cli.preconditions import require_files


def convert_command(
    files: Annotated[
        list[str],
        typer.Option("--filename", "-f", help="Manifests: a file, a folder, or - for standard input."),
    ],
    more: Annotated[list[str] | None, typer.Argument(metavar="FILE", help="Manifests, like -f.")] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Print every change and its risk to standard error.")
    ] = False,
    role: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="IAM role for objects that name neither a role nor an instance profile."
        ),
    ] = "",
    instance_profile: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Instance profile for the same objects, like aws.defaultInstanceProfile."
        ),
    ] = "",
    kubernetes_version: Annotated[
        str, typer.Option(metavar="1.32", help="Version of the cluster. AL2 is kept before 1.33.")
    ] = "",
    output: Annotated[
        Literal["yaml", "json"], typer.Option("--output", "-o", help="Output format.")
    ] = "yaml",
) -> None:
    """Convert Karpenter manifests of any version (Provisioner, AWSNodeTemplate, v1beta1) to the current version.

    Objects are printed to standard output with their YAML comments, and unchanged objects byte for byte. Findings are
    printed to standard error. The output works with both Karpenter and nodesmith.

    The exit status is 0 if everything was converted, 1 if something needs your decision, and 2 if input is unreadable.
    """
    named = (*files, *(more or ()))
    require_files(named, "convert")
    from nodesmith.model.conversion.nodeclasses import Surroundings
    from nodesmith_cli.converting.command import Wanted, run

    around = Surroundings(kubernetes_version, role, instance_profile, for_files=True)
    raise typer.Exit(run(Wanted(named, around, report), output))
