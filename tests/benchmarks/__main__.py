"""Measure, write build/benchmarks.json, print a table, and exit with 1 if a goal is missed.

`python -m tests.benchmarks packing hotpath` measures only these parts, and `--quick` only their cheap figures. The file
keeps earlier figures of the other parts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from nodesmith_cli.output.progress import progress
from tests.benchmarks import disruption, packing
from tests.benchmarks.aws import allocations, bursts, deployment, hotpath, sessions, snapshots, ticks
from tests.benchmarks.commands import (
    adopt,
    dashboards,
    drain,
    idle,
    replay,
    reports,
    savings,
    scrapes,
    shadow,
    top,
    ui,
    warm,
)
from tests.benchmarks.decisions import (
    buffers,
    colddecisions,
    coldstart,
    commitments,
    gangs,
    large,
    migrate,
    notices,
)
from tests.benchmarks.figures import Figure
from tests.benchmarks.resilience import (
    chaos,
    crashes,
    foreign,
    forged,
    interruptions,
    localchaos,
    overruns,
    quotas,
    retries,
    runaway,
    soak,
    upgrades,
    week,
)
from tests.benchmarks.zones import neighbours, zoneloss

WRITTEN = Path("build") / "benchmarks.json"
PARTS: Mapping[str, Callable[[], list[Figure]]] = {
    "allocations": allocations.figures,
    "hotpath": hotpath.figures,
    "bursts": bursts.figures,
    "buffers": buffers.figures,
    "notices": notices.figures,
    "interruptions": interruptions.figures,
    "neighbours": neighbours.figures,
    "zoneloss": zoneloss.figures,
    "retries": retries.figures,
    "runaway": runaway.figures,
    "coldstart": lambda: [*coldstart.figures(), *colddecisions.figures()],
    "commitments": commitments.figures,
    "sessions": sessions.figures,
    "crashes": crashes.figures,
    "chaos": chaos.figures,
    "localchaos": localchaos.figures,
    "dashboards": dashboards.figures,
    "gangs": gangs.figures,
    "large": large.figures,
    "deployment": deployment.figures,
    "forged": forged.figures,
    "snapshots": snapshots.figures,
    "scrapes": scrapes.figures,
    "ticks": ticks.figures,
    "warm": warm.figures,
    "week": week.figures,
    "soak": soak.figures,
    "upgrades": upgrades.figures,
    "idle": idle.figures,
    "drain": drain.figures,
    "foreign": foreign.figures,
    "adopt": adopt.figures,
    "overruns": overruns.figures,
    "quotas": quotas.figures,
    "savings": savings.figures,
    "replay": replay.figures,
    "migrate": migrate.figures,
    "shadow": shadow.figures,
    "top": top.figures,
    "ui": ui.figures,
    "reports": reports.figures,
    "packing": packing.figures,
    "disruption": disruption.figures,
}
QUICK: Mapping[str, Callable[[], list[Figure]]] = {
    "coldstart": lambda: [*coldstart.figures(), *colddecisions.figures(runs=2)],
    "foreign": partial(foreign.figures, hours=3),
    "large": partial(large.figures, sizes=(500, 1500)),
    "adopt": partial(adopt.figures, seeds=5, stride=10),
    "allocations": partial(allocations.figures, nodes=10, days=3, billed_nodes=50, billed_hours=6),
    "chaos": partial(chaos.figures, pairs=40, sample=25),
    "localchaos": partial(localchaos.figures, number=3),
    "crashes": partial(crashes.figures, firsts=2),
    "forged": partial(forged.figures, random_forgeries=20),
    "quotas": partial(quotas.figures, sample=12),
    "overruns": partial(overruns.figures, clusters=40),
    "packing": partial(packing.figures, quick=True),
    "disruption": partial(disruption.figures, quick=True),
    "savings": partial(savings.figures, clusters=2),
    "shadow": partial(shadow.figures, days=1),
    "runaway": partial(runaway.figures, hours=3, pods=8),
    "replay": partial(replay.figures, nodes=3, days=1, seeds=1),
    "top": partial(top.figures, sizes=(100,)),
    "ui": partial(ui.figures, nodes=500),
    "reports": partial(reports.figures, nodes=50),
    "warm": partial(warm.figures, pods=3, sample=8),
    "week": partial(week.figures, nodes=50, days=1),
    "soak": partial(soak.figures, nodes=20, days=0.25),
    "upgrades": partial(upgrades.figures, days=1),
    "idle": partial(idle.figures, nodes=10, hours=3),
    "neighbours": partial(neighbours.figures, concurrency=(50,)),
    "zoneloss": partial(zoneloss.figures, clusters=10, others=4),
    "interruptions": partial(interruptions.figures, runs=50, storms=1, sample=40),
}


def main() -> int:
    """Run benchmarks, and return the exit status."""
    wanted = _arguments(sys.argv[1:])
    console = Console()
    measured: list[Figure] = []
    for name in wanted.parts or PARTS:
        key = f"benchmark-{name}{'-quick' * wanted.quick}"
        with progress(f"measuring {name}", key=key):
            measured += (QUICK if wanted.quick else {}).get(name, PARTS[name])()
        _write(measured)  # after each part, since some take many minutes
    console.print(_table(measured))
    console.print(f"written to {WRITTEN}")
    return 0 if all(figure.holds for figure in measured) else 1


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"one of {', '.join(PARTS)}; all parts by default"
    )
    parser.add_argument(
        "--quick", action="store_true", help="measure only the cheap figures of parts with expensive ones"
    )
    wanted = parser.parse_args(given)
    unknown = sorted(set(wanted.parts) - PARTS.keys())
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}; parts are {', '.join(PARTS)}")
    return wanted


def _write(measured: Sequence[Figure]) -> None:
    """Replace these figures in the file, and keep all others."""
    known = json.loads(WRITTEN.read_text()) if WRITTEN.exists() else []
    items = {item["name"]: item for item in [*known, *(figure.to_item() for figure in measured)]}
    WRITTEN.parent.mkdir(exist_ok=True)
    WRITTEN.write_text(json.dumps(list(items.values()), indent=2) + "\n")


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
