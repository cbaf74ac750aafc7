"""`nodesmith explain`: what each of its commands is given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nodesmith_cli.options import (
    BucketOption,
    BucketRegionOption,
    ClusterOption,
    KeepOption,
    KubeconfigOption,
    OutputOption,
)

explain_app = typer.Typer(help="What was decided, and why.", no_args_is_help=True)


@explain_app.command("decision")
def explain_decision(
    decision: Annotated[
        str, typer.Argument(metavar="ID", help="Its id, a part of it that is unique, or `latest`.")
    ] = "latest",
    cluster: ClusterOption = "",
    bucket: BucketOption = "",
    region: BucketRegionOption = "",
    keep: KeepOption = None,
    file: Annotated[Path | None, typer.Option(help="A record by itself, compressed or not.")] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Decide again from the same inputs; exit status 1 if it differs.")
    ] = False,
    output: OutputOption = "table",
) -> None:
    """Tell one decision: what it buys, at what price, and why.

    With its inputs, and the reason for each pod that was not placed.
    """
    from nodesmith_cli.explaincommands import Where, show

    where = Where(cluster, bucket, region, keep)
    raise typer.Exit(show(decision, where, file=file, output=output, replay=replay))


@explain_app.command("decisions")
def explain_decisions(
    cluster: ClusterOption = "",
    bucket: BucketOption = "",
    region: BucketRegionOption = "",
    keep: KeepOption = None,
    output: OutputOption = "table",
) -> None:
    """List the decisions of a cluster, oldest first."""
    from nodesmith_cli.explaincommands import Where, show_all

    raise typer.Exit(show_all(Where(cluster, bucket, region, keep), output))


@explain_app.command("pod", short_help="Tell why a pod waits, or which node it gets.")
def explain_pod(
    pod: Annotated[
        str, typer.Argument(metavar="[NAMESPACE/]NAME", help="The pod; without a namespace, in `default`.")
    ],
    cluster: ClusterOption = "",
    bucket: BucketOption = "",
    region: BucketRegionOption = "",
    keep: KeepOption = None,
    last: Annotated[
        int, typer.Option(min=1, help="How many decisions to look through at most, newest first.")
    ] = 1000,
    output: OutputOption = "table",
) -> None:
    """Tell what stands in the way of a pod, or which node it gets, by the newest decision that speaks of it.

    Exit status 1 where none does and the cluster's newest snapshot does not know the pod either.
    """
    from datetime import UTC, datetime

    from nodesmith_cli.explaincommands import Where, show_pod

    where = Where(cluster, bucket, region, keep)
    raise typer.Exit(show_pod(pod, where, last=last, output=output, now=datetime.now(UTC)))


@explain_app.command("nodepool", short_help="Tell what removes its instance types.")
def explain_nodepool(
    nodepool: Annotated[str, typer.Argument(metavar="NAME", help="The NodePool; else all.")] = "",
    cluster: ClusterOption = "",
    bucket: BucketOption = "",
    region: BucketRegionOption = "",
    keep: KeepOption = None,
    output: OutputOption = "table",
) -> None:
    """Tell how a NodePool comes to its instance types: how many each of its requirements removes, what is left."""
    from nodesmith_cli.explaincommands import Where, show_nodepools

    raise typer.Exit(show_nodepools(nodepool, Where(cluster, bucket, region, keep), output))


@explain_app.command("node", short_help="Tell why a node stays, or is not gone yet.")
def explain_node(
    node: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Node, NodeClaim or instance id; else all that are ending."),
    ] = "",
    kubeconfig: KubeconfigOption = "",
    cluster: ClusterOption = "",
    bucket: BucketOption = "",
    region: BucketRegionOption = "",
    keep: KeepOption = None,
    output: OutputOption = "table",
) -> None:
    """Tell why a node is not gone yet: the one thing it waits for, since when, and what it costs an hour.

    Of a node that is not ending: why it stays, its NodeClaim, phase, age and price, and the pods that nobody may ever
    evict.
    The cluster is looked at as it is now; with --bucket or --keep, as its newest snapshot there shows it.
    Exit status 1 where there is no such node.
    """
    from nodesmith_cli.explaincommands import Where

    where = Where(cluster, bucket, region, keep)
    where.require(kubeconfig)
    from nodesmith_cli.explainnodecommand import show_nodes
    from nodesmith_cli.local.reaching import now_at

    raise typer.Exit(show_nodes(node, where, kubeconfig=kubeconfig, output=output, now=now_at(kubeconfig)))
