"""The options of the `nodesmith explain` commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nodesmith.errors import Rejected
from nodesmith_cli.commands.options import (
    BucketOption,
    BucketRegionOption,
    ClusterOption,
    ContextOption,
    KeepOption,
    KubeconfigOption,
    ListOutputOption,
    NamespaceOption,
    ReportOutputOption,
    SelectorOption,
    WatchOption,
)

explain_app = typer.Typer(help="Explain what was decided, and why.", no_args_is_help=True)


@explain_app.command("decision")
def explain_decision(
    decision: Annotated[
        str, typer.Argument(metavar="ID", help="Decision id, a unique part of one, or `latest`.")
    ] = "latest",
    cluster: ClusterOption = "",
    bucket: BucketOption = "",
    region: BucketRegionOption = "",
    keep: KeepOption = None,
    file: Annotated[Path | None, typer.Option(help="Decision record to read, compressed or not.")] = None,
    replay: Annotated[
        bool,
        typer.Option("--replay", help="Repeat the decision from the same inputs. Exit with 1 if it differs."),
    ] = False,
    output: ReportOutputOption = "table",
) -> None:
    """Explain one decision: what it launches, at what price, and why.

    The output includes its inputs, and the reason for each pod that was not placed.
    """
    from nodesmith_cli.views.explaining.commands import RecordSource, show

    where = RecordSource(cluster, bucket, region, keep)
    raise typer.Exit(show(decision, where, file=file, output=output, replay=replay))


@explain_app.command("decisions")
def explain_decisions(
    cluster: ClusterOption = "",
    bucket: BucketOption = "",
    region: BucketRegionOption = "",
    keep: KeepOption = None,
    output: ListOutputOption = "table",
    watch: WatchOption = False,
) -> None:
    """List the decisions of a cluster, oldest first."""
    from nodesmith_cli.output.watching import repeated
    from nodesmith_cli.views.explaining.commands import RecordSource, show_all

    where = RecordSource(cluster, bucket, region, keep)
    raise typer.Exit(repeated(lambda: show_all(where, output), watch=watch))


@explain_app.command("pod", short_help="Explain why a pod waits, or where it goes.")
def explain_pod(
    pod: Annotated[
        str, typer.Argument(metavar="[NAMESPACE/]NAME", help="Pod. The namespace defaults to `default`.")
    ],
    namespace: NamespaceOption = "",
    cluster: ClusterOption = "",
    bucket: BucketOption = "",
    region: BucketRegionOption = "",
    keep: KeepOption = None,
    last: Annotated[int, typer.Option(min=1, help="How many decisions to search, newest first.")] = 1000,
    output: ReportOutputOption = "table",
    watch: WatchOption = False,
) -> None:
    """Explain what blocks a pod, or which node it gets, from the newest decision that mentions it.

    The exit status is 1 if no decision mentions the pod and the cluster's newest snapshot does not contain it.
    """
    from datetime import UTC, datetime

    from nodesmith_cli.output.watching import repeated
    from nodesmith_cli.views.explaining.commands import RecordSource, show_pod
    from nodesmith_cli.views.explaining.pod import in_namespace

    where, name = RecordSource(cluster, bucket, region, keep), in_namespace(pod, namespace)
    raise typer.Exit(
        repeated(lambda: show_pod(name, where, last=last, output=output, now=datetime.now(UTC)), watch=watch)
    )


@explain_app.command("nodepool", short_help="Explain a NodePool's choice of instance types.")
def explain_nodepool(
    nodepool: Annotated[str, typer.Argument(metavar="NAME", help="NodePool. Defaults to all.")] = "",
    cluster: ClusterOption = "",
    bucket: BucketOption = "",
    region: BucketRegionOption = "",
    keep: KeepOption = None,
    output: ReportOutputOption = "table",
) -> None:
    """Explain a NodePool's choice of instance types: how many each requirement rules out, and how many are left."""
    from nodesmith_cli.views.explaining.commands import RecordSource, show_nodepools

    raise typer.Exit(show_nodepools(nodepool, RecordSource(cluster, bucket, region, keep), output))


@explain_app.command("node", short_help="Explain why a node stays, or is not gone yet.")
def explain_node(
    node: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Node, NodeClaim or instance id. Defaults to all terminating nodes."
        ),
    ] = "",
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    cluster: ClusterOption = "",
    bucket: BucketOption = "",
    region: BucketRegionOption = "",
    keep: KeepOption = None,
    selector: SelectorOption = "",
    output: ListOutputOption = "table",
    watch: WatchOption = False,
) -> None:
    """Explain why a terminating node is not gone yet: what it waits for, since when, and what that costs.

    For any other node, explain why it stays, and show its NodeClaim, phase, age and price, and the pods that can
    never be evicted.
    With -l, list the nodes that the selector matches, terminating or not.
    By default, this reads the live cluster. With --bucket or --keep, it reads the newest snapshot stored there.
    The exit status is 1 if the node does not exist.
    """
    from nodesmith_cli.access.selecting import chosen_kubeconfig, selection
    from nodesmith_cli.output.watching import repeated
    from nodesmith_cli.views.explaining.commands import RecordSource

    where, wanted = RecordSource(cluster, bucket, region, keep), selection(selector=selector)
    chosen = chosen_kubeconfig(kubeconfig, context)
    where.require(chosen)
    if node and selector:
        raise Rejected(f"{node} and -l {selector} are mutually exclusive: name a node, or select several")
    from nodesmith_cli.views.explaining.nodecommand import show_nodes
    from nodesmith_formats.localsystem.reaching import now_at

    def look() -> int:
        return show_nodes(node, where, wanted, kubeconfig=chosen, output=output, now=now_at(chosen))

    raise typer.Exit(repeated(look, watch=watch))
