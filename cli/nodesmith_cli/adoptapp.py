"""The options of `nodesmith adopt` and `nodesmith release`. Their code is imported when they run."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from nodesmith_cli.connectapp import Cluster, Context, Dry, Kubeconfig, Profile, Region, Yes, around
from nodesmith_cli.options import StepsOutputOption, seconds_of


def adopt_command(
    cluster: Cluster,
    region: Region = "",
    profile: Profile = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    pause: Annotated[
        str, typer.Option(help="How long disruption stays paused afterwards; 0m not to pause it.")
    ] = "1h",
    scale_down_karpenter: Annotated[
        bool,
        typer.Option("--scale-down-karpenter", help="Scale Karpenter's Deployment to zero first."),
    ] = False,
    timeout: Annotated[
        str, typer.Option(help="How long to wait for nodesmith's snapshot to show all NodeClaims.")
    ] = "10m",
    yes: Yes = False,
    dry_run: Dry = False,
    output: StepsOutputOption = "table",
) -> None:
    """Adopt Karpenter's NodeClaims and their instances, while everything runs: no pod is evicted, no node drifts.

    Karpenter must not run. A NodeClaim that cannot be adopted is reported and skipped. You can interrupt this command
    and run it again. The exit status is 1 if anything is left, or if Karpenter comes back meanwhile.
    """
    patience = timedelta(seconds=seconds_of("--timeout", timeout))
    span = timedelta(seconds=seconds_of("--pause", pause))
    from nodesmith_cli.adopting.command import How, adopt_cluster

    how = How(output, dry_run, not yes, patience, span, scale_down_karpenter)
    raise typer.Exit(adopt_cluster(cluster, around(region, profile, kubeconfig, context), how))


def release_command(
    cluster: Cluster,
    region: Region = "",
    profile: Profile = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    timeout: Annotated[
        str, typer.Option(help="How long to wait for launches, ends and moves in progress.")
    ] = "30m",
    yes: Yes = False,
    dry_run: Dry = False,
    output: StepsOutputOption = "table",
) -> None:
    """Release all NodeClaims and instances to Karpenter: no pod is evicted, no node drifts.

    Afterwards nodesmith stands by: it launches, ends and writes nothing until `nodesmith adopt` or `nodesmith resume`.
    You can interrupt this command and run it again. The exit status is 1 if something is left.
    """
    patience = timedelta(seconds=seconds_of("--timeout", timeout))
    from nodesmith_cli.adopting.command import How, release_cluster

    how = How(output, dry_run, not yes, patience)
    raise typer.Exit(release_cluster(cluster, around(region, profile, kubeconfig, context), how))
