"""The options of `nodesmith savings`, `ledger` and `shadow`. Their code is imported when they run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import typer

from nodesmith.errors import Rejected
from nodesmith_cli.access.preconditions import require_kubeconfig, require_region
from nodesmith_cli.access.selecting import chosen_kubeconfig, selection
from nodesmith_cli.commands.options import (
    AllNamespacesOption,
    BucketOption,
    BucketRegionOption,
    ClusterArgument,
    ClusterRegionOption,
    ContextOption,
    KeepOption,
    KubeconfigOption,
    ReportOutputOption,
)


def savings_command(
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    selector: Annotated[
        str,
        typer.Option(
            "--selector",
            "-l",
            metavar="LABELS",
            help="Only nodes that the label selector matches, with their pods, as if there were no others.",
        ),
    ] = "",
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace", "-n", metavar="NAME", help="Not supported: pods of several namespaces share nodes."
        ),
    ] = "",
    all_namespaces: AllNamespacesOption = False,
    region: Annotated[
        str, typer.Option(help="AWS region of the prices. Defaults to the region of the nodes.")
    ] = "",
    spot_prices: Annotated[
        Literal["auto", "aws", "estimate"],
        typer.Option(
            help="Read spot prices from EC2, or estimate them. auto reads them if there are credentials."
        ),
    ] = "auto",
    write_nodepools: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the NodePools that the plan uses, assumed ones included."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="CPU seconds for further moves, and as many for the costs of constraints.")
    ] = 4.0,
    commitments: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Savings Plans and Reserved Instances, whose use costs nothing more: a list, as in cdk.json.",
        ),
    ] = "",
    output: ReportOutputOption = "table",
) -> None:
    """Show what a live cluster costs, what it would cost on nodesmith's nodes, and what the money is spent on.

    This reads the cluster with list requests alone. Any software may manage its nodes: Karpenter, Cluster Autoscaler,
    node groups, EKS Auto Mode or others. It changes nothing, and nothing must be installed. Kinds that you may not
    list are reported, and the report continues without them.

    The exit status is 0 if there is a report, and 2 if the cluster cannot be read or none of its nodes has a price.
    """
    kubeconfig = chosen_kubeconfig(kubeconfig, context)
    chosen = selection(namespace, all_namespaces, selector)
    if namespace:
        raise Rejected(
            f"-n {namespace}: pods of several namespaces share nodes, so one of them has no price of its own; use "
            "`nodesmith ledger --by namespace` for what each has cost, or -l to select nodes"
        )
    require_kubeconfig(kubeconfig)
    require_region(region)
    if not seconds >= 0:
        raise Rejected(f"--seconds {seconds:g}: must be a number that is not negative")
    from nodesmith_cli.costs.savings.running import SavingsRequest, run

    request = SavingsRequest(
        kubeconfig, region, spot_prices, write_nodepools, seconds, commitments, selector, chosen
    )
    raise typer.Exit(run(request, output))


def ledger_command(
    cluster: ClusterArgument,
    view: Annotated[
        Literal["costs", "moves"],
        typer.Argument(
            metavar="VIEW",
            help="costs: what nodes have cost, by owner. moves: what moves promised, and what they have saved.",
        ),
    ] = "costs",
    month: Annotated[str, typer.Option(help="Month in UTC, such as 2026-11. Defaults to this month.")] = "",
    by: Annotated[
        str,
        typer.Option(
            help="namespace, workload, kind, node, nodepool, instance-type, zone, capacity-type, manager, "
            "or one of the labels that the cluster's setting ALLOCATION_LABELS chooses, such as team; label is "
            "all of them. Defaults to namespace; csv and parquet then have every row."
        ),
    ] = "",
    bucket: BucketOption = "",
    region: BucketRegionOption = "",
    keep: KeepOption = None,
    output: Annotated[
        Literal["table", "json", "csv", "parquet", "opencost"],
        typer.Option("--output", "-o", help="Output format. opencost is that of OpenCost's allocation API."),
    ] = "table",
    to: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="Write to a file, or with `--to bucket` to the bucket, next to its rows."
        ),
    ] = "",
) -> None:
    """Show what nodes have cost in a month: by namespace, team, workload or node.

    Each hour of each node is recorded with its price and its pods' owners. What pods do not request is __idle__. The
    exit status is 0 if there is a report, and 2 if there is none. Parts that cannot be read are reported and left out.
    """
    if output == "parquet" and not to:
        raise Rejected("-o parquet: Parquet is binary, so --to must name a file, or be `bucket`")
    from nodesmith_cli.costs.showback.command import ShowbackRequest, run

    request = ShowbackRequest(cluster, month, by, bucket, region, keep if keep is None else Path(keep), to)
    raise typer.Exit(run(request, view, output, datetime.now(UTC)))


def shadow_command(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="Name of the observed cluster.")],
    days: Annotated[int, typer.Option(min=1, max=400, help="How many days to show, the latest ones.")] = 14,
    audit: Annotated[
        bool,
        typer.Option(
            "--audit", help="Read the live cluster, and check that pods could run where the shadow has them."
        ),
    ] = False,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    bucket: Annotated[
        str, typer.Option(help="S3 bucket of the deployment. Defaults to that of the region's stack.")
    ] = "",
    region: ClusterRegionOption = "",
    output: Annotated[
        Literal["table", "json", "csv", "html"], typer.Option("--output", "-o", help="Output format.")
    ] = "table",
) -> None:
    """Show what an observed cluster costs, and what it would have cost on nodesmith's nodes, day by day.

    A cluster is observed after `nodesmith connect CLUSTER --observe`. This changes nothing.
    """
    from nodesmith_cli.access.awsclients import aws_client
    from nodesmith_cli.costs.shadowing.command import print_shadow, stored_shadow
    from nodesmith_formats.decisions.records import Bucket

    kubeconfig = chosen_kubeconfig(kubeconfig, context)
    found = bucket or _bucket_of(region)
    shadow = stored_shadow(Bucket(aws_client("s3", region), found).get, cluster)
    raise typer.Exit(print_shadow(shadow, days, output, kubeconfig, is_audited=audit))


def _bucket_of(region: str) -> str:
    """Return the bucket of the region's stack. Raises Rejected if it is not deployed."""
    from nodesmith_cli.access.awssession import AwsSession
    from nodesmith_cli.connecting.reading.aws import AwsReading

    session = AwsSession(region, "")
    stack = AwsReading(session.client, session.region).stack()
    if stack is None or not stack.bucket:
        raise Rejected(
            f"stack nodesmith-{session.region} is not deployed in this account: use --bucket or --region"
        )
    return stack.bucket
