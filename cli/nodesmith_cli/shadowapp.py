"""The options of `nodesmith shadow`. Its code is imported when it runs."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from nodesmith.errors import Rejected
from nodesmith_cli.options import ContextOption, KubeconfigOption
from nodesmith_cli.selecting import chosen_kubeconfig


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
    region: Annotated[
        str, typer.Option(help="Region of the cluster. Defaults to the region in your AWS configuration.")
    ] = "",
    output: Annotated[
        Literal["table", "json", "csv", "html"], typer.Option("--output", "-o", help="Output format.")
    ] = "table",
) -> None:
    """Show what an observed cluster costs, and what it would have cost on nodesmith's nodes, day by day.

    A cluster is observed after `nodesmith connect CLUSTER --observe`. Nothing is written.
    """
    from nodesmith_cli.awsclients import aws_client
    from nodesmith_cli.shadowing.command import kept, tell
    from nodesmith_formats.decisions.records import Bucket

    kubeconfig = chosen_kubeconfig(kubeconfig, context)
    found = bucket or _bucket_of(region)
    shadow = kept(Bucket(aws_client("s3", region), found).get, cluster)
    raise typer.Exit(tell(shadow, days, output, kubeconfig, is_audited=audit))


def _bucket_of(region: str) -> str:
    """Return the bucket of the region's stack. Raises Rejected if it is not deployed."""
    from nodesmith_cli.connecting.awsreading import AwsReading
    from nodesmith_cli.connecting.clients import AwsSession

    session = AwsSession(region, "")
    stack = AwsReading(session.client, session.region).stack()
    if stack is None or not stack.bucket:
        raise Rejected(
            f"stack nodesmith-{session.region} is not deployed in this account: use --bucket or --region"
        )
    return stack.bucket
