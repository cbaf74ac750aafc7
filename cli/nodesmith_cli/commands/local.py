"""The options of `nodesmith local`, `nodesmith chaos` and `nodesmith demo`. Their code is imported when they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from nodesmith.errors import Rejected
from nodesmith_cli.access.preconditions import (
    has_page_server,
    require_clusters,
    require_files,
    require_region,
    require_simulator,
    require_speed,
)
from nodesmith_cli.commands.options import (
    DataOutputOption,
    FilesArgument,
    FilesOption,
    KeepOption,
    NoCapacityOption,
    PageOutputOption,
    RegionOption,
    ReportOutputOption,
    SpeedOption,
    WatchOption,
    seconds_of,
)

chaos_app = typer.Typer(help="Let services of `local up` fail, and watch recovery.", no_args_is_help=True)
local_app = typer.Typer(help="Run the whole system locally, without AWS or a cluster.", no_args_is_help=True)

_LocalKubeconfigOption = Annotated[
    Path | None, typer.Option(help="Kubeconfig of `local up`. [default: ~/.kube/nodesmith-local]")
]


@contextmanager
def _simulator() -> Iterator[None]:
    """Import and run the simulator in the block. Raises Rejected if its libraries are not installed."""
    require_simulator()
    from nodesmith_local.functions.sharedclients import models_are_shared

    with models_are_shared():  # moto's import, too, reads AWS's models again and again
        yield


def demo_command(
    speed: SpeedOption = 12, keep: KeepOption = None, output: PageOutputOption = "table"
) -> None:
    """Watch 20 pending pods land on the cheapest nodes."""
    require_speed(speed)
    with _simulator():
        from nodesmith_cli.simulator.localcommands.commands import demo

        raise typer.Exit(demo(speed=speed, keep=keep, output=output))


@local_app.command("run")
def local_run(
    files: FilesOption = None,
    more: FilesArgument = None,
    region: RegionOption = "",
    longest: Annotated[
        str,
        typer.Option("--for", help="Give up after this much cluster time without progress."),
    ] = "5m",
    speed: SpeedOption = 10,
    no_capacity: NoCapacityOption = None,
    output: ReportOutputOption = "table",
    keep: KeepOption = None,
    bare: Annotated[
        bool, typer.Option("--bare", help="Apply the files only, without a default NodePool.")
    ] = False,
) -> None:
    """Apply manifests, run until nothing changes, and report.

    The exit status is 1 if pods stay pending or the run was given up, and 2 if the input is unusable.
    """
    named = [*(files or []), *(more or [])]
    require_files(named, "run")
    patience_seconds = seconds_of("--for", longest)
    require_speed(speed)
    require_region(region)
    with _simulator():
        from nodesmith_cli.simulator.localcommands.commands import run

        raise typer.Exit(
            run(
                named,
                region=region,
                patience_seconds=patience_seconds,
                speed=speed,
                no_capacity=no_capacity or [],
                output=output,
                keep=keep,
                bare=bare,
            )
        )


@local_app.command("up", short_help="Run a cluster for kubectl until Ctrl-C.")
def local_up(
    files: Annotated[
        list[str] | None, typer.Option("--filename", "-f", help="Manifests to start with.")
    ] = None,
    region: RegionOption = "",
    control_plane: Annotated[
        Literal["embedded", "real"],
        typer.Option(help="In-memory API server with simulated controllers, or real Kubernetes with kwok."),
    ] = "embedded",
    speed: SpeedOption = 1,
    no_capacity: NoCapacityOption = None,
    port: Annotated[
        int,
        typer.Option(help="Port of the first API server. Others use the next ports. 0 chooses free ports."),
    ] = 0,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Kubeconfig to write. [default: ~/.kube/nodesmith-local]")
    ] = None,
    keep: KeepOption = None,
    bare: Annotated[
        bool, typer.Option("--bare", help="Do not apply a default NodePool and EC2NodeClass.")
    ] = False,
    clusters: Annotated[
        int,
        typer.Option(
            help="Number of clusters, up to 5. One set of functions serves all; each gets the manifests."
        ),
    ] = 1,
    page: Annotated[
        bool, typer.Option("--ui/--no-ui", help="Serve the page of `nodesmith ui` for the first cluster.")
    ] = True,
) -> None:
    """Run one or more clusters until Ctrl-C. Use kubectl with them, and watch nodes join, also in a browser."""
    if files:
        require_files(files, "start with")
    require_speed(speed, control_plane)
    require_clusters(clusters, port)
    require_region(region)
    with _simulator():
        from nodesmith_cli.simulator.localcommands.upcommand import up

        raise typer.Exit(
            up(
                files or [],
                region=region,
                speed=speed,
                no_capacity=no_capacity or [],
                port=port,
                kubeconfig=kubeconfig,
                keep=keep,
                bare=bare,
                control_plane=control_plane,
                clusters=clusters,
                page=page and has_page_server(),
            )
        )


def _kinds(incomplete: str) -> list[str]:
    from nodesmith_local.chaos.faults import FAULTS

    return [kind.value for kind in FAULTS if kind.startswith(incomplete)]


def _services(incomplete: str) -> list[str]:
    from nodesmith_local.chaos.faults import FAULTS, FaultKind

    *before, last = incomplete.split(",")
    return [
        ",".join([*before, service.value])
        for service in FAULTS[FaultKind.SLOW].services
        if service.startswith(last) and service not in before
    ]


def _functions(incomplete: str) -> list[str]:
    from nodesmith_local.chaos.faults import CALLERS

    *before, last = incomplete.split(",")
    return [
        ",".join([*before, caller]) for caller in CALLERS if caller.startswith(last) and caller not in before
    ]


def _names(lists: list[str] | None) -> list[str]:
    """Return the names in options that may be repeated and hold several names."""
    return [name.strip() for text in lists or () for name in text.split(",") if name.strip()]


@chaos_app.command("list", short_help="List the faults.")
def chaos_list(output: DataOutputOption = "table") -> None:
    """List the faults: what each does, the services that it can hit, and where its effect shows."""
    from nodesmith_cli.simulator.localcommands.chaoscommand import list_faults

    raise typer.Exit(list_faults(output))


@chaos_app.command("start", short_help="Start a fault.")
def chaos_start(
    fault: Annotated[
        str,
        typer.Argument(metavar="FAULT", help="A fault of `nodesmith chaos list`.", autocompletion=_kinds),
    ],
    service: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Services that fail, separated by commas. Defaults to all.",
            autocompletion=_services,
        ),
    ] = None,
    function: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Functions that are affected, separated by commas, or `forwarder`. Defaults to all.",
            autocompletion=_functions,
        ),
    ] = None,
    lasting: Annotated[
        str, typer.Option("--for", help="How long it lasts, in the cluster's time, up to 1h.")
    ] = "30s",
    share: Annotated[
        float | None,
        typer.Option(help="Share of calls that fail. [default: 1, and 0.67 for throttled]"),
    ] = None,
    kubeconfig: _LocalKubeconfigOption = None,
    output: DataOutputOption = "table",
) -> None:
    """Let services fail for the functions of a running `local up`. The fault ends by itself.

    Only calls by functions and by the forwarder fail. Your kubectl and other commands are not affected.
    """
    seconds = seconds_of("--for", lasting)
    from nodesmith_cli.simulator.localcommands.chaoscommand import start

    raise typer.Exit(start(fault, _names(service), _names(function), seconds, share, kubeconfig, output))


@chaos_app.command("status", short_help="Show the faults that were started.")
def chaos_status(
    kubeconfig: _LocalKubeconfigOption = None, output: DataOutputOption = "table", watch: WatchOption = False
) -> None:
    """Show the faults that were started: seconds left, calls hit so far, and how long recovery took.

    The system has recovered when no pod waits for a node and no node is on its way or being replaced.
    """
    from nodesmith_cli.output.watching import repeated
    from nodesmith_cli.simulator.localcommands.chaoscommand import status

    raise typer.Exit(repeated(lambda: status(kubeconfig, output), watch=watch))


@chaos_app.command("stop", short_help="End faults before their time.")
def chaos_stop(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of a fault, as `nodesmith chaos status` shows it.")
    ] = "",
    everything: Annotated[bool, typer.Option("--all", help="End all faults.")] = False,
    kubeconfig: _LocalKubeconfigOption = None,
    output: DataOutputOption = "table",
) -> None:
    """End a fault, or all faults, before their time."""
    if bool(name) == everything:
        raise Rejected("name one fault, as `nodesmith chaos status` shows it, or use --all")
    from nodesmith_cli.simulator.localcommands.chaoscommand import stop

    raise typer.Exit(stop(name, kubeconfig, output))


@local_app.command("shift", short_help="Start or end a zonal shift of `local up`.")
def local_shift(
    zone: Annotated[str, typer.Argument(metavar="ZONE", help="Name or id of a zone.")],
    lasting: Annotated[
        str, typer.Option("--for", help="How long the shift lasts, in the cluster's time, up to 72h.")
    ] = "30m",
    end: Annotated[bool, typer.Option("--end", help="End the shift away from the zone.")] = False,
    kubeconfig: _LocalKubeconfigOption = None,
    context: Annotated[str, typer.Option(help="Shift only the cluster of this context.")] = "",
) -> None:
    """Shift the clusters of a running `local up` away from a zone, as Application Recovery Controller does."""
    require_simulator()
    from nodesmith_cli.simulator.localcommands.shiftcommand import shift

    raise typer.Exit(shift(zone, lasting=lasting, end=end, kubeconfig=kubeconfig, context=context))


@local_app.command("interrupt", short_help="Interrupt a spot node of `local up`.")
def local_interrupt(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Node name, NodeClaim name or instance id.")],
    within: Annotated[
        str,
        typer.Option(
            "--in", help="Time until EC2 interrupts it. The warning comes at most two minutes ahead."
        ),
    ] = "2m",
    kubeconfig: _LocalKubeconfigOption = None,
    context: Annotated[str, typer.Option(help="Search only the cluster of this context.")] = "",
) -> None:
    """Send a spot interruption warning to a running `local up`, and then interrupt the node."""
    require_simulator()
    from nodesmith_cli.simulator.localcommands.interruptcommand import interrupt

    raise typer.Exit(interrupt(node, within=within, kubeconfig=kubeconfig, context=context))
