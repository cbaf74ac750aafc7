"""`nodesmith rollback`: what it is given. Its code is imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from nodesmith_cli.options import OutputOption


def rollback_command(
    to: Annotated[
        str, typer.Option(metavar="RELEASE", help="The release to return to; else the one before.")
    ] = "",
    list_releases: Annotated[
        bool, typer.Option("--list", help="List the releases, the newest first, and change nothing.")
    ] = False,
    region: Annotated[str, typer.Option(help="The region; else that of your AWS settings.")] = "",
    profile: Annotated[str, typer.Option(help="The profile of your AWS settings.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be switched, and do nothing.")
    ] = False,
    output: OutputOption = "table",
) -> None:
    """Let all functions of a region serve by the release before, within seconds and without a deployment.

    Each function's alias is switched to the version that it had in that release. Roles, queues and what else the stack
    holds stay as they are. It can be stopped and run again. The next deployment brings its own release.
    """
    from nodesmith.errors import Rejected
    from nodesmith_cli.connecting.clients import AwsSession
    from nodesmith_cli.rollback.command import rollback
    from nodesmith_cli.rollback.functions import Functions

    if output == "json" and not (yes or dry_run or list_releases):
        raise Rejected("--output json asks nothing: give --yes, --dry-run or --list")
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
