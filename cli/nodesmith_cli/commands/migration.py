"""The options of `nodesmith migrate`, `adopt` and `release`. Their code is imported when they run."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

import typer

from nodesmith.errors import Rejected
from nodesmith_cli.access.preconditions import require_kubeconfig
from nodesmith_cli.access.selecting import chosen_kubeconfig
from nodesmith_cli.commands.connect import Context, Dry, Kubeconfig, around
from nodesmith_cli.commands.options import (
    ClusterArgument,
    ClusterRegionOption,
    ContextOption,
    ProfileOption,
    StepsOutputOption,
    YesOption,
    seconds_of,
)
from nodesmith_formats.localsystem.contexts import kubeconfig_file


def migrate_command(
    cluster: ClusterArgument,
    group: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="These groups only; may be repeated.")
    ] = None,
    region: ClusterRegionOption = "",
    profile: ProfileOption = "",
    kubeconfig: Annotated[
        str | None,
        typer.Option(
            "--kubeconfig",
            metavar="[CONTEXT]",
            help="Also plan the cluster's pods: a context, a kubeconfig file, or no value for the current context.",
        ),
    ] = None,
    context: ContextOption = "",
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
    drain: Annotated[bool, typer.Option("--drain", help="Drain the groups, one after another.")] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Make drained groups as large as they were before.")
    ] = False,
    status: Annotated[bool, typer.Option("--status", help="Show how far groups are drained.")] = False,
    max_unavailable: Annotated[
        str,
        typer.Option(metavar="COUNT|PERCENT", help="Drain: how many nodes of a group at a time."),
    ] = "1",
    max_failures: Annotated[
        int, typer.Option(help="Drain: how many nodes may fail before the group is rolled back.")
    ] = 3,
    timeout: Annotated[
        str, typer.Option(help="Drain: how long a node may take. Undo: how long the nodes may take.")
    ] = "15m",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Drain and undo: do not ask.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Drain and undo: show what would be done, and change nothing.")
    ] = False,
    output: Annotated[
        Literal["yaml", "table", "json"],
        typer.Option(
            "--output", "-o", help="yaml: the manifests. table: what changes. json: a report of every field."
        ),
    ] = "yaml",
) -> None:
    """Convert a cluster's node groups and Auto Scaling groups to NodePools and EC2NodeClasses, and drain the groups.

    Without --drain or --undo, this reads EKS, EC2 and EC2 Auto Scaling, and changes nothing. Groups with identical
    nodes become one NodePool. Fields that change or have no equal are listed: with the manifests, on standard error.
    With --kubeconfig, the pods on the groups' nodes are planned on the new NodePools, and those that fit none are
    listed.

    With --drain, nodes are cordoned, their pods are evicted within PodDisruptionBudgets, their instances are
    terminated, and the group's size is lowered. --undo restores the size. You can interrupt both, and run them again.

    The exit status is 0 if nothing is left, 1 if something is, and 2 if the cluster cannot be read.
    """
    if drain + undo + status > 1:
        raise Rejected("--drain, --undo and --status are mutually exclusive")
    file = kubeconfig_file(kubeconfig or "")
    if context:
        kubeconfig = chosen_kubeconfig(kubeconfig or "", context)
    if kubeconfig:
        require_kubeconfig(kubeconfig)
    if drain or undo or status:
        if write is not None or one_per_group:
            raise Rejected(
                "--write and --one-per-group convert groups: run `nodesmith migrate` without --drain"
            )
        from nodesmith_cli.migration.draining.command import Action, DrainOptions, rules_of, run_on_groups

        rules = rules_of(max_unavailable, timedelta(seconds=seconds_of("--timeout", timeout)), max_failures)
        what = Action.DRAIN if drain else Action.UNDO if undo else Action.STATUS
        context = context if file else kubeconfig or ""
        options = DrainOptions("json" if output == "json" else "table", dry_run, not yes, rules)
        reached = around(region, profile, file, context)
        raise typer.Exit(run_on_groups(what, cluster, group or (), reached, options))
    if yes or dry_run:
        raise Rejected(
            "--yes and --dry-run need --drain or --undo: conversion changes nothing and does not ask"
        )
    if kubeconfig is not None:
        require_kubeconfig(kubeconfig)
    from nodesmith_cli.access.awssession import AwsSession
    from nodesmith_cli.migration.nodegroups.command import MigrateRequest, run

    session = AwsSession(region, profile)
    request = MigrateRequest(cluster, tuple(group or ()), kubeconfig, one_per_group, write)
    raise typer.Exit(run(request, session.client, session.region, output))


def adopt_command(
    cluster: ClusterArgument,
    region: ClusterRegionOption = "",
    profile: ProfileOption = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    pause: Annotated[
        str, typer.Option(help="How long disruption stays paused afterwards. 0m does not pause it.")
    ] = "1h",
    scale_down_karpenter: Annotated[
        bool,
        typer.Option("--scale-down-karpenter", help="Scale Karpenter's Deployment to zero first."),
    ] = False,
    timeout: Annotated[
        str, typer.Option(help="How long to wait for nodesmith's snapshot to show all NodeClaims.")
    ] = "10m",
    yes: YesOption = False,
    dry_run: Dry = False,
    output: StepsOutputOption = "table",
) -> None:
    """Adopt Karpenter's NodeClaims and their instances, while everything runs: no pod is evicted, no node drifts.

    Karpenter must not run. A NodeClaim that cannot be adopted is reported and skipped. You can interrupt this command
    and run it again. The exit status is 1 if anything is left, or if Karpenter comes back meanwhile.
    """
    patience = timedelta(seconds=seconds_of("--timeout", timeout))
    span = timedelta(seconds=seconds_of("--pause", pause))
    from nodesmith_cli.migration.adopting.command import AdoptOptions, adopt_cluster

    options = AdoptOptions(output, dry_run, not yes, patience, span, scale_down_karpenter)
    raise typer.Exit(adopt_cluster(cluster, around(region, profile, kubeconfig, context), options))


def release_command(
    cluster: ClusterArgument,
    region: ClusterRegionOption = "",
    profile: ProfileOption = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    timeout: Annotated[
        str, typer.Option(help="How long to wait for launches, ends and moves in progress.")
    ] = "30m",
    yes: YesOption = False,
    dry_run: Dry = False,
    output: StepsOutputOption = "table",
) -> None:
    """Release all NodeClaims and instances to Karpenter: no pod is evicted, no node drifts.

    Afterwards nodesmith stands by: it launches, ends and writes nothing until `nodesmith adopt` or `nodesmith resume`.
    You can interrupt this command and run it again. The exit status is 1 if something is left.
    """
    patience = timedelta(seconds=seconds_of("--timeout", timeout))
    from nodesmith_cli.migration.adopting.command import AdoptOptions, release_cluster

    options = AdoptOptions(output, dry_run, not yes, patience)
    raise typer.Exit(release_cluster(cluster, around(region, profile, kubeconfig, context), options))
