"""How connect, disconnect and doctor print: tables of what there is and of what was found, for people and programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from nodesmith_cli.connecting.actions import Row, Standing
from nodesmith_cli.connecting.findings import Finding
from nodesmith_cli.printing import printable
from nodesmith_cli.sharing.findings import Severity

_FILE_WIDTH = 200
Line = tuple[Severity | Standing, str, str]
_COLOURS: Mapping[Severity | Standing, str] = {
    Severity.ERROR: "red",
    Severity.WARNING: "yellow",
    Severity.INFO: "dim",
    Standing.PRESENT: "dim",
    Standing.MADE: "green",
    Standing.CHANGED: "yellow",
    Standing.REMOVED: "red",
    Standing.KEPT: "dim",
}


def print_rows(rows: Sequence[Row], findings: Sequence[Finding]) -> None:
    """Print what is there, what will be made or changed, and what is wrong."""
    lines: list[Line] = [(row.standing, row.object, row.detail) for row in rows]
    lines += [(each.severity, each.object, _said(each)) for each in findings]
    _print(lines)


def print_findings(findings: Sequence[Finding]) -> None:
    """Print findings."""
    _print([(each.severity, each.object, _said(each)) for each in findings])


def as_items(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Write findings for JSON."""
    return [asdict(each) for each in findings]


def row_items(rows: Iterable[Row]) -> list[dict[str, str]]:
    """Write rows for JSON."""
    return [{"object": row.object, "standing": str(row.standing), "detail": row.detail} for row in rows]


def print_json(told: object) -> None:
    """Print JSON."""
    print(json.dumps(told, indent=2))


def _said(finding: Finding) -> str:
    return f"{finding.found}\n→ {finding.remedy}" if finding.remedy else finding.found


def _print(lines: Iterable[Line]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for word, thing, detail in lines:
        table.add_row(Text(str(word), style=_COLOURS[word]), Text(printable(thing)), Text(_printable(detail)))
    console = Console()
    if not console.is_terminal:
        console = Console(width=_FILE_WIDTH)
    console.print(table)


def _printable(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))
