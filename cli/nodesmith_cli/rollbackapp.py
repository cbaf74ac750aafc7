"""The options of `nodesmith rollback`. Its code is imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from nodesmith_cli.options import DataOutputOption


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
    profile: Annotated[str, typer.Option(help="Profile in your AWS configuration.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")] = False,
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
    from nodesmith_cli.connecting.clients import AwsSession
    from nodesmith_cli.rollback.command import rollback
    from nodesmith_cli.rollback.functions import Functions

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
