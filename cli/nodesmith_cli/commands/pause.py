"""`nodesmith pause` and `nodesmith resume`: stop and resume voluntary disruption in a cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from nodesmith_cli.access.ledger import TABLE, ledger_of, pause, resume
from nodesmith_cli.commands.options import ClusterRegionOption

_ClusterOption = Annotated[str, typer.Option(help="Name of the EKS cluster.")]
_TableOption = Annotated[str, typer.Option(help="DynamoDB table of the ledger.")]


def pause_command(
    cluster: _ClusterOption,
    reason: Annotated[str, typer.Option(help="Reason, shown wherever the pause is.")] = "",
    region: ClusterRegionOption = "",
    table: _TableOption = TABLE,
) -> None:
    """Stop voluntary disruption until `nodesmith resume`.

    This pauses consolidation, drift, and replacement ahead of expireAfter and of changes that EC2 announces. Moves that
    have not started to drain are rolled back. Nodes that are deleted, expired or unhealthy, and EC2 interruptions are
    still handled.
    """
    with ledger_of(table, cluster, region) as store:
        typer.echo(pause(store, cluster, reason, datetime.now(UTC)))


def resume_command(
    cluster: _ClusterOption, region: ClusterRegionOption = "", table: _TableOption = TABLE
) -> None:
    """Resume voluntary disruption, and serve the cluster again if nodesmith stood by for Karpenter."""
    with ledger_of(table, cluster, region) as store:
        typer.echo(resume(store, cluster, datetime.now(UTC)))
