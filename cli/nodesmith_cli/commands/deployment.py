"""The options of `nodesmith image push` and `nodesmith rollback`. Their code is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nodesmith_cli.commands.options import DataOutputOption, ProfileOption, YesOption

image_app = typer.Typer(help="Build and push the forwarder image, without Docker.", no_args_is_help=True)


@image_app.callback()
def image() -> None:
    """Build and push the forwarder image, without Docker."""


@image_app.command("push", short_help="Build and push the forwarder image.")
def image_push(
    repository: Annotated[
        str,
        typer.Argument(
            metavar="REPOSITORY", help="Registry and repository. The tag defaults to nodesmith's version."
        ),
    ],
    base: Annotated[
        str,
        typer.Option(
            metavar="IMAGE", help="Mirror of the pinned base image, or another base with a tag or digest."
        ),
    ] = "",
    platform: Annotated[
        list[str] | None,
        typer.Option(metavar="OS/ARCH", help="linux/amd64 or linux/arm64. Defaults to both."),
    ] = None,
    username: Annotated[
        str, typer.Option(help="User name for the registry. Requires --password-stdin.")
    ] = "",
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input.")
    ] = False,
    insecure: Annotated[bool, typer.Option("--insecure", help="Use http for the registry.")] = False,
    wheels: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder to take wheels from, instead of pip's index."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Build the image, and print what would be pushed.")
    ] = False,
    output: DataOutputOption = "table",
) -> None:
    """Build the forwarder image for amd64 and arm64, and push it. The last line is its reference by digest.

    For Amazon ECR, this uses your AWS credentials, and creates the repository if it does not exist. For other
    registries, it uses Docker's logins and credential helpers. The exit status is 1 for an error that may be
    transient, and 2 for invalid input.
    """
    from nodesmith_cli.deployment.image.command import Login, push

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


def rollback_command(
    to: Annotated[
        str, typer.Option(metavar="RELEASE", help="Release to return to. Defaults to the previous one.")
    ] = "",
    list_releases: Annotated[
        bool, typer.Option("--list", help="List the releases, newest first, and change nothing.")
    ] = False,
    region: Annotated[
        str, typer.Option(help="AWS region. Defaults to the region in your AWS configuration.")
    ] = "",
    profile: ProfileOption = "",
    yes: YesOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be switched, and change nothing.")
    ] = False,
    output: DataOutputOption = "table",
) -> None:
    """Roll all functions of a region back to the previous release, within seconds and without a deployment.

    The alias of each function is switched to the version that it had in that release. Roles, queues and all other
    resources of the stack stay as they are. You can interrupt this command and run it again. The next deployment
    installs its own release.
    """
    from nodesmith.errors import Rejected
    from nodesmith_cli.access.awssession import AwsSession
    from nodesmith_cli.deployment.rollback.command import rollback
    from nodesmith_cli.deployment.rollback.functions import Functions

    if output == "json" and not (yes or dry_run or list_releases):
        raise Rejected("--output json does not prompt: add --yes, --dry-run or --list")
    session = AwsSession(region, profile)
    code = rollback(
        Functions(session.client),
        to=to,
        listed=list_releases,
        dry_run=dry_run,
        is_asked=not yes,
        output=output,
    )
    raise typer.Exit(code)
