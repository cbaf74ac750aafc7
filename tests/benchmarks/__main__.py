"""Measure everything, write build/benchmarks.json, print a table; exit 1 when a goal is missed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks import coldstart, crashes, hotpath, snapshots
from tests.benchmarks.figures import Figure

WRITTEN = Path("build") / "benchmarks.json"
PARTS: tuple[Callable[[], list[Figure]], ...] = (
    hotpath.figures,
    coldstart.figures,
    crashes.figures,
    snapshots.figures,
)


def main() -> int:
    """Run all benchmarks; give the exit status."""
    console = Console()
    measured: list[Figure] = []
    for part in PARTS:
        with console.status(f"measuring {part.__module__.rpartition('.')[2]} …"):
            measured += part()
    WRITTEN.parent.mkdir(exist_ok=True)
    WRITTEN.write_text(json.dumps([figure.to_item() for figure in measured], indent=2) + "\n")
    console.print(_table(measured))
    console.print(f"written to {WRITTEN}")
    return 0 if all(figure.holds for figure in measured) else 1


def _table(measured: list[Figure]) -> Table:
    table = Table("figure", "value", "goal", "holds", "note")
    for item in (figure.to_item() for figure in measured):
        holds = "[green]yes[/]" if item["holds"] else "[red]NO[/]"
        table.add_row(
            str(item["name"]), f"{item['value']} {item['unit']}", str(item["goal"]), holds, str(item["note"])
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
