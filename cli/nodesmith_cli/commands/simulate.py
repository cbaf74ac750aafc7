"""The options of `nodesmith simulate`. Its code is imported when it runs."""

from __future__ import annotations

import os
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

import typer

from nodesmith.errors import Rejected
from nodesmith_cli.access.preconditions import require_files, require_region
from nodesmith_cli.commands.options import BucketOption, KeepOption, seconds_of

_MOST_SEEDS, _MOST_JOBS = 1000, 256
_MOST_INTERRUPTIONS = 100 * 730
"""Once an hour."""
_DAYS = re.compile(r"(?:([0-9]{1,5})d)?(.*)", re.ASCII)
_Files = Annotated[
    list[str] | None,
    typer.Option(
        "--filename",
        "-f",
        help="Manifests of the cluster, with --audit-log or --replay: NodePools at least, and what ran before.",
    ),
]


def simulate_command(
    cluster: Annotated[
        str, typer.Argument(metavar="CLUSTER", help="Cluster name. Defaults to the one that decided last.")
    ] = "",
    since: Annotated[
        str, typer.Option(help="How much to replay, up to the newest event, such as 7d or 12h.")
    ] = "",
    bucket: BucketOption = "",
    region: Annotated[
        str, typer.Option(help="Region of the bucket or log group, and of the prices with a file.")
    ] = "",
    keep: KeepOption = None,
    audit_log: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="EKS audit log instead: JSON lines, .gz, - for standard input, or `cloudwatch`. Repeatable.",
        ),
    ] = None,
    replay: Annotated[str, typer.Option(metavar="FILE", help="replay.json of kubereplay instead.")] = "",
    files: _Files = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--change",
            "-c",
            metavar="FILE",
            help="Manifests to apply: NodePools, EC2NodeClasses, NodeOverlays, CapacityBuffers, CapacityQuotas.",
        ),
    ] = None,
    delete: Annotated[
        list[str] | None, typer.Option(metavar="KIND/NAME", help="Object to delete, such as nodepool/spot.")
    ] = None,
    prices: Annotated[
        str, typer.Option(metavar="FILE", help="Instance types and prices, as for `plan --catalog`.")
    ] = "",
    price_factor: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FACTOR", help="Other prices: spot=1.2, on-demand=0.9 or m5.*=1.1."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A setting of the cluster's registration."),
    ] = None,
    nodesmith: Annotated[
        str,
        typer.Option(
            metavar="PYTHON",
            help="Python interpreter with another release, which simulates the changed side.",
        ),
    ] = "",
    seeds: Annotated[
        int, typer.Option(help="Simulations of each side, each with different random events.")
    ] = 5,
    jobs: Annotated[
        int | None, typer.Option(help="Simulations at once. Defaults to the number of CPUs.")
    ] = None,
    interruptions: Annotated[
        float, typer.Option(help="Percent of spot instances that EC2 interrupts in a month.")
    ] = 5.0,
    search_every: Annotated[str, typer.Option(help="Shortest time between searches for moves.")] = "5m",
    job_duration: Annotated[
        str, typer.Option(help="How long pods of Jobs run, where a file does not say it.")
    ] = "10m",
    only: Annotated[str, typer.Option(hidden=True)] = "",
    output: Annotated[
        Literal["table", "json", "html", "csv"], typer.Option("--output", "-o", help="Output format.")
    ] = "table",
) -> None:
    """Replay what happened in a cluster with other NodePools, prices, settings or another release.

    The workload comes from what nodesmith has recorded, from an EKS audit log, or from kubereplay. The cluster is
    simulated as it was and as changed, with the deployed decisions and the same random events on both sides. The
    report has the differences in dollars, pending seconds and evictions, and their interval over all seeds. Nothing is
    launched.

    With nothing changed, every recorded decision is made again from its recorded inputs.
    """
    span = _since(since)
    _require_source(cluster, bucket, keep, audit_log or (), replay, files or ())
    if audit_log or replay:
        require_region(region)
    if not 1 <= seeds <= _MOST_SEEDS:
        raise Rejected(f"--seeds {seeds}: must be between 1 and {_MOST_SEEDS}")
    if jobs is not None and not 1 <= jobs <= _MOST_JOBS:
        raise Rejected(f"--jobs {jobs}: must be between 1 and {_MOST_JOBS}")
    if not 0 <= interruptions <= _MOST_INTERRUPTIONS:
        raise Rejected(
            f"--interruptions {interruptions:g}: must be between 0 and {_MOST_INTERRUPTIONS} percent"
        )
    from nodesmith_cli.simulator.simulating.changes import RequestedChanges
    from nodesmith_cli.simulator.simulating.command import SimulateRequest, arguments_of, run
    from nodesmith_cli.views.explaining.commands import RecordSource
    from nodesmith_local.simulation.trace import Chances

    requested_changes = RequestedChanges(
        tuple(change or ()), tuple(delete or ()), prices, tuple(price_factor or ()), tuple(policy or ())
    )
    chances = Chances(interruptions / 100, timedelta(seconds=seconds_of("--search-every", search_every)))
    request = SimulateRequest(
        RecordSource(cluster, bucket, region, keep),
        span,
        tuple(audit_log or ()),
        replay,
        tuple(files or ()),
        region,
        requested_changes,
        nodesmith,
        arguments_of(sys.argv[2:]) if nodesmith else (),
        seeds,
        jobs or os.cpu_count() or 1,
        chances,
        timedelta(seconds=seconds_of("--job-duration", job_duration)),
        only,
    )
    raise typer.Exit(run(request, output))


def _since(text: str) -> timedelta | None:
    """Parse --since, which may have days; None if it is not given. Raises Rejected."""
    if not text:
        return None
    match = _DAYS.fullmatch(text)
    days, rest = (match.group(1), match.group(2)) if match else ("", text)
    if not (days or rest):
        rest = text
    try:
        seconds = seconds_of("--since", rest) if rest or not days else 0.0
    except Rejected:
        raise Rejected(f"--since {text!r}: expected a duration such as 7d, 12h or 1d12h") from None
    span = timedelta(days=int(days or 0), seconds=seconds)
    if not span:
        raise Rejected(f"--since {text!r}: must be longer than nothing")
    return span


def _require_source(
    cluster: str,
    bucket: str,
    keep: Path | None,
    audit_logs: list[str] | tuple[()],
    replay: str,
    files: list[str] | tuple[()],
) -> None:
    """Raise Rejected unless the options name one source, with what it needs."""
    named = [
        option
        for option, value in (
            ("--bucket", bucket),
            ("--keep", keep),
            ("--audit-log", audit_logs),
            ("--replay", replay),
        )
        if value
    ]
    if len(named) > 1:
        raise Rejected(f"{' and '.join(named)} are mutually exclusive: one workload is simulated")
    if bucket and not cluster:
        raise Rejected("--bucket requires the name of a cluster: nodesmith simulate CLUSTER --bucket NAME")
    if not (audit_logs or replay):
        if files:
            raise Rejected("-f is for --audit-log and --replay: a recorded cluster has its own manifests")
        return
    if not files:
        raise Rejected(f"{named[0]} requires -f FILE with the cluster's NodePools, which it does not contain")
    require_files(files, "simulate with")
    if "cloudwatch" in audit_logs and not cluster:
        raise Rejected("--audit-log cloudwatch requires the name of the cluster, whose log group is read")
