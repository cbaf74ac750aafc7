"""The `nodesmith local` commands, each with what it is given. Their code is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from nodesmith_cli.options import KeepOption, NoCapacityOption, OutputOption, RegionOption, SpeedOption
from nodesmith_cli.preconditions import require_clusters, require_files, require_region, require_speed
from nodesmith_cli.spans import seconds_of

local_app = typer.Typer(help="The whole system on this machine: no cloud, no cluster.", no_args_is_help=True)


@local_app.command("run")
def local_run(
    files: Annotated[
        list[str], typer.Option("--filename", "-f", help="Manifests: file, folder, or - for standard input.")
    ],
    more: Annotated[list[str] | None, typer.Argument(metavar="FILE", help="More of them.")] = None,
    region: RegionOption = "",
    longest: Annotated[
        str,
        typer.Option("--for", help="Give up when nothing has happened for this much of the cluster's time."),
    ] = "5m",
    speed: SpeedOption = 10,
    no_capacity: NoCapacityOption = None,
    output: OutputOption = "table",
    keep: KeepOption = None,
    bare: Annotated[bool, typer.Option("--bare", help="Apply the files only, no default NodePool.")] = False,
) -> None:
    """Apply manifests, run until quiet, report. Exit status 1 where pods stay pending, 2 where input was bad."""
    named = [*files, *(more or [])]
    require_files(named, "run")
    patience_seconds = seconds_of("--for", longest)
    require_speed(speed)
    require_region(region)
    from nodesmith_cli.local.sharedclients import models_are_shared

    with models_are_shared():  # moto's import, too, reads AWS's models again and again
        from nodesmith_cli.local.commands import run

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
        list[str] | None, typer.Option("--filename", "-f", help="Manifests to begin with.")
    ] = None,
    region: RegionOption = "",
    control_plane: Annotated[
        Literal["embedded", "real"],
        typer.Option(help="The API server in memory and stand-ins, or Kubernetes' own programs and kwok."),
    ] = "embedded",
    speed: SpeedOption = 1,
    no_capacity: NoCapacityOption = None,
    port: Annotated[
        int,
        typer.Option(help="Port of the first API server, others take the next ones; 0 takes free ones."),
    ] = 0,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Where to write the kubeconfig [default: ~/.kube/nodesmith-local]")
    ] = None,
    keep: KeepOption = None,
    bare: Annotated[bool, typer.Option("--bare", help="Apply no default NodePool and EC2NodeClass.")] = False,
    clusters: Annotated[
        int,
        typer.Option(help="How many clusters, up to 5, one set of functions serves; manifests go to each."),
    ] = 1,
) -> None:
    """Run a cluster, or several, until Ctrl-C: use kubectl on it and watch nodes come."""
    require_speed(speed, control_plane)
    require_clusters(clusters, port)
    require_region(region)
    from nodesmith_cli.local.sharedclients import models_are_shared

    with models_are_shared():  # moto's import, too, reads AWS's models again and again
        from nodesmith_cli.local.upcommand import up

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
            )
        )


@local_app.command("interrupt", short_help="Let EC2 take a spot node of `local up`.")
def local_interrupt(
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="Its name, its NodeClaim's, or its instance id.")
    ],
    within: Annotated[
        str, typer.Option("--in", help="When EC2 takes it: the warning comes two minutes ahead, or later.")
    ] = "2m",
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="What `local up` wrote [default: ~/.kube/nodesmith-local]"),
    ] = None,
    context: Annotated[str, typer.Option(help="Look among the nodes of this context's cluster only.")] = "",
) -> None:
    """Let EC2 announce, to a `local up` that runs, that it takes a spot node; and take it."""
    from nodesmith_cli.local.interruptcommand import interrupt

    raise typer.Exit(interrupt(node, within=within, kubeconfig=kubeconfig, context=context))
