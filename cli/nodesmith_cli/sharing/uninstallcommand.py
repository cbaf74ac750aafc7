"""The implementation of `nodesmith uninstall`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Literal

import typer

from nodesmith.adapters.kubernetes.apiserver import ApiServer
from nodesmith.errors import Rejected
from nodesmith_cli.progress import progress
from nodesmith_cli.sharing import parts
from nodesmith_cli.sharing.removal import Outcome, Removal, Settings, refuse_beside_karpenter
from nodesmith_cli.sharing.survey import Survey, take_survey
from nodesmith_formats.wording import counted, printable

DONE, LEFT, STOPPED = 0, 1, 130
Output = Literal["table", "json"]


def uninstall(
    server: ApiServer,
    settings: Settings,
    *,
    output: Output,
    dry_run: bool,
    yes: bool,
    clock: Callable[[], datetime],
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Remove nodesmith from a cluster. Returns 0 if nothing is left, 1 if something is, 130 after Ctrl-C.

    Raises Rejected if a Karpenter controller is running or the user declines, Transient.
    """
    survey = take_survey(server, clock())
    if dry_run:
        return _planned(survey, output)
    refuse_beside_karpenter(survey)
    if not yes:
        _confirmed(survey, output)
    removal = Removal(
        server, settings, clock=clock, sleep=sleep, say=lambda line: typer.echo(printable(line), err=True)
    )
    try:
        with progress("removing nodesmith", expected_seconds=settings.timeout.total_seconds()):
            is_done = removal.run()
    except KeyboardInterrupt:
        typer.echo("nodesmith: interrupted; run the command again to continue", err=True)
        return STOPPED
    _print(removal.outcome, output, is_done=is_done)
    return DONE if is_done else LEFT


def _planned(survey: Survey, output: Output) -> int:
    """Print what would be deleted and what would be kept, and delete nothing."""
    nodes = [f"Node/{node['metadata']['name']}" for node in survey.nodes]
    deleted = [*map(str, [*parts.buyers(survey), *parts.claims(survey), *parts.classes(survey)]), *nodes]
    kept = [asdict(each) for each in parts.others(survey)]
    refused = [f"a Karpenter controller is running: it {reason}" for reason in survey.karpenter]
    if output == "json":
        print(json.dumps({"delete": deleted, "keep": kept, "refused": refused}, indent=2))
        return LEFT if refused else DONE
    for name in deleted:
        print(printable(f"delete  {name}"))
    for each in kept:
        print(printable(f"keep    {each['name']}: {each['why']}"))
    for reason in refused:
        print(printable(f"refused {reason}"))
    print("then the forwarder, RBAC, and the CRDs that are no longer in use")
    return LEFT if refused else DONE


def _confirmed(survey: Survey, output: Output) -> None:
    if output == "json":
        raise Rejected(
            "-o json does not prompt: add --yes to continue, or --dry-run to see what would be deleted"
        )
    numbers = f"{counted(len(survey.nodepools), 'NodePool')} and {counted(len(survey.nodes), 'node')}"
    if not typer.confirm(f"Delete {numbers}, and remove nodesmith from this cluster?"):
        raise Rejected("nothing was deleted")


def _print(outcome: Outcome, output: Output, *, is_done: bool) -> None:
    if output == "json":
        print(json.dumps({"done": is_done, **asdict(outcome)}, indent=2))
        return
    for kept in outcome.kept:
        _say(f"kept {kept.name}: {kept.why}")
    for left in outcome.left:
        _say(f"still exists: {left}")
    if outcome.left:
        _say(
            "nothing else was removed. Run the command again to continue waiting. If nodesmith's functions are gone,"
        )
        _say("use --lift-finalizers to remove these objects, and terminate their instances yourself")
    for instance in outcome.instances:
        _say(f"not terminated: {instance}")
    if is_done:
        _say(
            "nodesmith is removed from the cluster; its stack, launch templates and instance profiles remain"
        )


def _say(line: str) -> None:
    print(printable(line))
