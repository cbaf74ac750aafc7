"""`nodesmith image`: what its command is given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nodesmith_cli.options import OutputOption

image_app = typer.Typer(help="The forwarder's image, without Docker.", no_args_is_help=True)


@image_app.callback()
def image() -> None:
    """The forwarder's image, without Docker."""


@image_app.command("push", short_help="Build the forwarder's image and push it.")
def image_push(
    repository: Annotated[
        str,
        typer.Argument(
            metavar="REPOSITORY", help="With its registry; without a tag nodesmith's version is it."
        ),
    ],
    base: Annotated[
        str,
        typer.Option(metavar="IMAGE", help="A mirror of the pinned base; or, with tag or digest, another."),
    ] = "",
    platform: Annotated[
        list[str] | None, typer.Option(metavar="OS/ARCH", help="linux/amd64 or linux/arm64; else both.")
    ] = None,
    username: Annotated[str, typer.Option(help="For the registry; goes with --password-stdin.")] = "",
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input.")
    ] = False,
    insecure: Annotated[bool, typer.Option("--insecure", help="Speak http with the registry.")] = False,
    wheels: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Take the wheels from here, not from pip's index.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Build, and say what would be pushed.")] = False,
    output: OutputOption = "table",
) -> None:
    """Build the forwarder's image for amd64 and arm64 and push it; its reference by digest is the last line.

    Amazon ECR is logged into with your AWS credentials, and the repository is made where it is missing; other
    registries with Docker's logins and helpers. Exit status 1 where it may work later, 2 where input was bad.
    """
    from nodesmith_cli.image.command import Login, push

    login = Login(username, password_stdin)
    raise typer.Exit(
        push(
            repository,
            base=base,
            platforms=platform,
            login=login,
            insecure=insecure,
            wheels=wheels,
            dry_run=dry_run,
            output=output,
        )
    )
