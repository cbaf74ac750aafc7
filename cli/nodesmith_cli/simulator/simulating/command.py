"""The implementation of `nodesmith simulate`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.errors import Rejected
from nodesmith_cli.access.awsclients import aws_client
from nodesmith_cli.output.printing import print_data
from nodesmith_cli.output.progress import progress
from nodesmith_cli.output.reporting.delivery import deliver
from nodesmith_cli.output.terminal import console
from nodesmith_cli.planning.manifests import read_manifests
from nodesmith_cli.planning.running import node_settings
from nodesmith_cli.simulator.simulating.auditlog import CLOUDWATCH, cloudwatch_lines, lines_of, read_audit_log
from nodesmith_cli.simulator.simulating.changes import RequestedChanges, changed
from nodesmith_cli.simulator.simulating.kubereplay import read_kubereplay
from nodesmith_cli.simulator.simulating.page import page
from nodesmith_cli.simulator.simulating.recorded import read_recorded
from nodesmith_cli.simulator.simulating.report import BASELINE, CHANGE, as_csv, report
from nodesmith_cli.simulator.simulating.table import show
from nodesmith_cli.simulator.simulating.workloads import Workloads, within
from nodesmith_cli.views.explaining.commands import RecordSource, recorded_catalog
from nodesmith_formats.manifests.places import region_of
from nodesmith_formats.wording import printable
from nodesmith_local.simulation.sides import Outcome, simulate
from nodesmith_local.simulation.trace import Chances, Trace

OK = 0
_SHOWN = 10
_MOST_ERROR = 2000


@dataclass(frozen=True, slots=True)
class SimulateRequest:
    """What to do. `since` is None for all of a file. `only` is the side to simulate, empty for both."""

    source: RecordSource
    since: timedelta | None = None
    audit_logs: tuple[str, ...] = ()
    replay: str = ""
    files: tuple[str, ...] = ()
    region: str = ""
    changes: RequestedChanges = field(default_factory=RequestedChanges)
    nodesmith: str = ""
    arguments: tuple[str, ...] = ()
    """The same command's arguments for another release: without its interpreter and output."""
    seeds: int = 5
    jobs: int = 1
    chances: Chances = field(default_factory=Chances)
    job_runs: timedelta = timedelta(minutes=10)
    only: str = ""


@dataclass(frozen=True, slots=True)
class _Source:
    """A workload and where it is from. `recorded` is what the recording itself shows, if it is nodesmith's own."""

    trace: Trace
    cluster: str
    name: str
    notes: tuple[str, ...] = ()
    recorded: Mapping[str, Any] | None = None


def run(request: SimulateRequest, output: str) -> int:
    """Read the workload, simulate it, print the comparison, and return the exit status.

    Raises Rejected or Transient if the input is unusable.
    """
    side = console(stderr=True)
    source = _source(request, side)
    sides, changes, notes = {BASELINE: source.trace}, list[str](), list(source.notes)
    if not request.changes.is_nothing:
        found = changed(source.trace.inputs, request.changes)
        sides[CHANGE] = replace(source.trace, inputs=found.inputs)
        changes += found.what
        notes += found.notes
    if request.only:
        sides = {name: trace for name, trace in sides.items() if name == request.only}
    with _share_of(side, "simulating") as on_progress:
        runs = simulate(sides, range(request.seeds), request.chances, request.jobs, on_progress)
    recorded = source.recorded
    if request.nodesmith:
        runs[CHANGE], recorded, version = _of_other_release(request, side)
        changes.append(version)
    written = report(
        source.trace,
        runs,
        cluster=source.cluster,
        source=source.name,
        changes=changes,
        notes=notes,
        recorded=recorded,
    )
    for line in written["notes"][:_SHOWN]:
        side.print(printable(line), style="yellow")
    if len(written["notes"]) > _SHOWN:
        side.print(f"and {len(written['notes']) - _SHOWN} more: see -o json", style="yellow")
    _print(written, output)
    return OK


# Sources


def _source(request: SimulateRequest, side: Console) -> _Source:
    if request.audit_logs or request.replay:
        return _from_events(request)
    records, blobs = request.source.records()
    with _share_of(side, "reading decisions") as on_progress:
        source = read_recorded(
            records,
            lambda record: recorded_catalog(record["inputs"]["catalog"]["region"], record, blobs),
            request.since or timedelta(days=7),
            repeat=request.changes.is_nothing and not request.nodesmith,
            on_progress=on_progress,
        )
    recorded = {
        "usd": source.usd,
        "decisions": source.decisions,
        "repeated": source.repeated,
        "differences": list(source.differences),
    }
    where = (
        f"s3://{request.source.bucket}" if request.source.bucket else str(request.source.keep or "local runs")
    )
    return _Source(source.trace, records.cluster, where, source.notes, recorded)


def _from_events(request: SimulateRequest) -> _Source:
    """Read an audit log or a file of kubereplay, in the cluster that the manifests describe."""
    cluster = request.source.cluster
    if request.replay:
        workloads, moments, named = read_kubereplay(request.replay, request.job_runs)
        cluster = cluster or named
    else:
        workloads, moments = _from_audit_logs(request)
    if not moments:
        raise Rejected(f"{workloads.source}: no event that could be simulated{_counts(workloads.omissions)}")
    start, end = within(moments, request.since)
    documents = read_manifests(request.files).documents
    catalog = embedded_catalog(request.region or region_of(document.manifest for document in documents))
    settings = node_settings(os.environ)
    trace, faults = workloads.trace(request.files, catalog, settings, start, end)
    return _Source(trace, cluster, workloads.source, tuple(faults))


def _counts(omissions: Mapping[str, int]) -> str:
    parts = [f"{count:,} × {omission}" for omission, count in sorted(omissions.items()) if count]
    return f" ({'; '.join(parts)})" if parts else ""


def _from_audit_logs(request: SimulateRequest) -> tuple[Workloads, list[datetime]]:
    cut: dict[str, int] = {}
    cluster = request.source.cluster

    def lines() -> Iterator[str]:
        for path in request.audit_logs:
            if path == CLOUDWATCH:
                client = aws_client("logs", request.source.region)
                since = request.since or timedelta(days=7)
                yield from cloudwatch_lines(client, cluster, since, datetime.now(UTC))
            else:
                yield from lines_of(path, cut)

    workloads, moments = read_audit_log(lines(), ", ".join(request.audit_logs), cluster)
    workloads.omissions.update(cut)
    return workloads, moments


# Another release


def _of_other_release(
    request: SimulateRequest, side: Console
) -> tuple[list[Outcome], Mapping[str, Any] | None, str]:
    """Run the same command with another interpreter; return its outcomes, what it says about the recording, and its
    version. Raises Rejected with the last line of its error.
    """
    python = str(Path(request.nodesmith).expanduser())
    only = BASELINE if request.changes.is_nothing else CHANGE
    base = [python, "-m", "nodesmith_cli.main"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    if Path(python) == Path(sys.executable):
        environment = dict(os.environ)
    try:
        version = subprocess.run(  # noqa: S603 - the user names the interpreter
            [*base, "--version"], capture_output=True, text=True, env=environment, check=False, timeout=60
        )
        side.print(f"simulating with nodesmith {version.stdout.strip()}")
        found = subprocess.run(  # noqa: S603
            [*base, "simulate", *request.arguments, "--only", only, "-o", "json"],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Rejected(f"--nodesmith {request.nodesmith}: not a Python with nodesmith: {error}") from None
    try:
        written = json.loads(found.stdout)
        outcomes = written["runs"][only]
    except (ValueError, KeyError, TypeError):
        lines = found.stderr.strip()[-_MOST_ERROR:].splitlines() or ["it printed no report"]
        raise Rejected(
            f"--nodesmith {request.nodesmith}: this release cannot simulate: {printable(lines[-1])}"
        ) from None
    return outcomes, written.get("recorded"), f"nodesmith {version.stdout.strip()}"


# Output


@contextmanager
def _share_of(side: Console, what: str) -> Iterator[Callable[[float], None]]:
    """Show the progress of a step, which is told how much of it is done in all: from 0 to 1."""
    done = 0.0
    with progress(what, total=1.0, to=side) as advance:

        def on_progress(share: float) -> None:
            nonlocal done
            advance(share - done)
            done = share

        yield on_progress


def _print(written: Mapping[str, Any], output: str) -> None:
    match output:
        case "json":
            print_data(written, output, "simulation")
        case "csv":
            sys.stdout.write(as_csv(written))
        case "html":
            deliver(page(written), "simulate")
        case _:
            show(console(), written)


def arguments_of(argv: Sequence[str]) -> tuple[str, ...]:
    """Return a command's arguments without the interpreter and the output, for another release."""
    kept, skip = list[str](), False
    for argument in argv:
        if skip:
            skip = False
        elif argument in ("--nodesmith", "--output", "-o"):
            skip = True
        elif not argument.startswith(("--nodesmith=", "--output=", "-o")):
            kept.append(argument)
    return tuple(kept)
