"""The implementation of `nodesmith rollback`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer
from rich.table import Table

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.functions import Concern
from nodesmith.settings import function_name
from nodesmith_cli.deployment.rollback.functions import Functions
from nodesmith_cli.deployment.rollback.releases import Release, releases, target
from nodesmith_cli.output.printing import print_data
from nodesmith_cli.output.progress import progress
from nodesmith_cli.output.terminal import console

DONE = 0
_LAST = function_name(Concern.DISPATCH)


def rollback(
    functions: Functions, *, to: str, listed: bool, dry_run: bool, is_asked: bool, output: str
) -> int:
    """Roll all functions back to an earlier release, or list releases. Raises Rejected, Transient, typer.Abort."""
    with progress("reading the functions' versions", key="rollback-reading"):
        live = functions.live()
        known_releases = releases((version for name in live for version in functions.versions(name)), live)
    if not live:
        raise Rejected("nodesmith is not deployed in this region: no function has its alias")
    if listed:
        _list(known_releases, live, output)
        return DONE
    chosen = target(known_releases, to, live)
    moves = {name: chosen.versions[name] for name in live if live[name] != chosen.versions[name]}
    if output == "table":
        _announce(chosen, live, moves)
    if moves and not dry_run:
        if is_asked and not typer.confirm("Continue?", err=True):
            raise typer.Abort
        # Switch dispatch last: until then, an interrupted rollback can be recognized and continued.
        with progress("switching functions", total=len(moves)) as advance:
            for name in sorted(moves, key=lambda name: (name == _LAST, name)):
                functions.switch(name, moves[name])
                advance(1)
    if output != "table":
        state = "planned" if dry_run else "switched" if moves else "unchanged"
        print_data({"release": chosen.name, "state": state, "functions": moves}, output, "rollback")
    elif moves and not dry_run:
        print(
            f"{len(moves)} functions now run release {chosen.name}. The next deployment installs its own release."
        )
    return DONE


def _announce(chosen: Release, live: Mapping[str, int], moves: Mapping[str, int]) -> None:
    if not moves:
        print(f"nothing to do: all {len(live)} functions already run release {chosen.name}")
        return
    print(f"rolling back to release {chosen.name} of {format_time(chosen.deployed_at)}:")
    table = Table(box=None, pad_edge=False)
    for heading in ("function", "from version", "to version"):
        table.add_column(heading, no_wrap=True, justify="left" if heading == "function" else "right")
    for name in sorted(moves):
        table.add_row(name, str(live[name]), str(moves[name]))
    console().print(table)


def _list(known_releases: Sequence[Release], live: Mapping[str, int], output: str) -> None:
    if output != "table":
        print_data([_document(release, live) for release in known_releases], output)
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("release", "deployed", "live"):
        table.add_column(heading, no_wrap=True)
    for release in known_releases:
        table.add_row(release.name, format_time(release.deployed_at), _serves(release, live))
    console().print(table)


def _serves(release: Release, live: Mapping[str, int]) -> str:
    if not release.serving:
        return ""
    return "all" if len(release.serving) == len(live) else f"{len(release.serving)} of {len(live)} functions"


def _document(release: Release, live: Mapping[str, int]) -> dict[str, Any]:
    return {
        "release": release.name,
        "deployed": format_time(release.deployed_at),
        "versions": dict(release.versions),
        "serving": sorted(release.serving & live.keys()),
    }
