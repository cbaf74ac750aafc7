"""The options of `nodesmith migrate`. Its code is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from nodesmith_cli.preconditions import require_kubeconfig


def migrate_command(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="Name of the EKS cluster.")],
    group: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Convert these groups only.")
    ] = None,
    region: Annotated[
        str, typer.Option(help="Region of the cluster. Defaults to the region in your AWS configuration.")
    ] = "",
    profile: Annotated[str, typer.Option(help="Profile in your AWS configuration.")] = "",
    kubeconfig: Annotated[
        str | None,
        typer.Option(
            "--kubeconfig",
            metavar="[CONTEXT]",
            help="Also plan the cluster's pods: a context, a kubeconfig file, or no value for the current context.",
        ),
    ] = None,
    one_per_group: Annotated[
        bool,
        typer.Option("--one-per-group", help="Write a NodePool for each group, also for identical ones."),
    ] = False,
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Write the manifests to a file, or one file per NodePool to a folder."
        ),
    ] = None,
    output: Annotated[
        Literal["yaml", "table", "json"],
        typer.Option(
            "--output", "-o", help="yaml: the manifests. table: what changes. json: a report of every field."
        ),
    ] = "yaml",
) -> None:
    """Convert a cluster's node groups and Auto Scaling groups to NodePools and EC2NodeClasses.

    This reads EKS, EC2 and EC2 Auto Scaling, and changes nothing. Groups with identical nodes become one NodePool.
    Fields that change or have no equal are listed, on standard error beside the manifests. With --kubeconfig, the pods
    on the groups' nodes are planned on the new NodePools, and those that fit none are listed.

    The exit status is 0 if every group was converted and every pod finds a place, 1 if not, and 2 if the cluster cannot
    be read.
    """
    if kubeconfig is not None:
        require_kubeconfig(kubeconfig)
    from nodesmith_cli.connecting.clients import AwsSession
    from nodesmith_cli.migrating.command import Wanted, run

    session = AwsSession(region, profile)
    wanted = Wanted(cluster, tuple(group or ()), kubeconfig, one_per_group, write)
    raise typer.Exit(run(wanted, session.client, session.region, output))
