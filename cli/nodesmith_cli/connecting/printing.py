"""The output of connect, disconnect and doctor: tables of resources and findings, as text and JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import typer

from nodesmith.errors import NodesmithError, Rejected
from nodesmith_cli.connecting.checks.findings import Finding
from nodesmith_cli.connecting.steps.actions import ResourceState, Row
from nodesmith_cli.output.printing import IS_TEXT
from nodesmith_cli.sharing.findings import Severity
from nodesmith_formats.wording import printable, printable_text

_FILE_WIDTH = 200
_NAMES = re.compile(r"\s\S*[/:]\S*|\s\S*\d\S*")
"""The names of objects in a step, which its remembered duration does not depend on."""
Line = tuple[Severity | ResourceState, str, str]
_COLOURS: Mapping[Severity | ResourceState, str] = {
    Severity.ERROR: "red",
    Severity.WARNING: "yellow",
    Severity.INFO: "dim",
    ResourceState.PRESENT: "dim",
    ResourceState.MADE: "green",
    ResourceState.CHANGED: "yellow",
    ResourceState.REMOVED: "red",
    ResourceState.KEPT: "dim",
}


def print_rows(rows: Sequence[Row], findings: Sequence[Finding], *, is_wide: bool = False) -> None:
    """Print the state of each resource, followed by the findings. A wide table names the check of each."""
    lines: list[Line] = [(row.standing, row.object, row.detail) for row in rows]
    lines += [
        (
            finding.severity,
            f"{finding.object} ({finding.check})" if is_wide else finding.object,
            _said(finding),
        )
        for finding in findings
    ]
    _print(lines)


def as_items(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return findings as JSON data."""
    return [asdict(finding) for finding in findings]


def row_items(rows: Iterable[Row]) -> list[dict[str, str]]:
    """Return rows as JSON data."""
    return [{"object": row.object, "standing": str(row.standing), "detail": row.detail} for row in rows]


def refuse_prompt(output: str) -> None:
    """Raise Rejected if the output is for a program, which cannot answer a question."""
    if output not in IS_TEXT:
        raise Rejected(
            f"-o {output} does not prompt: add --yes to continue, or --dry-run to see what would be done"
        )


@contextmanager
def step(done: str) -> Iterator[None]:
    """Show a spinner for a step, and print a line once it is done or has failed."""
    with working(done):
        try:
            yield
        except NodesmithError:
            say(f"not {done}; the steps before it are done: run the command again to continue")
            raise
    say(done)


@contextmanager
def working(what: str, expected_seconds: float = 0.0) -> Iterator[None]:
    """Show a step on a terminal, with an estimate from its limit or from its last duration."""
    from nodesmith_cli.output.progress import progress

    key = "" if expected_seconds else _NAMES.sub("", what)
    with progress(what, expected_seconds=expected_seconds, key=key):
        yield


def say(line: str) -> None:
    """Print a line of progress to standard error."""
    typer.echo(printable(line), err=True)


def _said(finding: Finding) -> str:
    return f"{finding.found}\n→ {finding.remedy}" if finding.remedy else finding.found


def _print(lines: Iterable[Line]) -> None:
    from rich.table import Table
    from rich.text import Text

    from nodesmith_cli.output.safeconsole import SafeConsole

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for word, thing, detail in lines:
        table.add_row(
            Text(str(word), style=_COLOURS[word]), Text(printable(thing)), Text(printable_text(detail))
        )
    console = SafeConsole()
    if console.is_terminal:
        console.print(table)
        return
    wide = SafeConsole(width=_FILE_WIDTH)
    with wide.capture() as captured:
        wide.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))
