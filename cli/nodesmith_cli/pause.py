"""`nodesmith pause` and `nodesmith resume`: stop and resume voluntary disruption in a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from nodesmith.errors import Rejected
from nodesmith_cli.awsclients import aws_client

if TYPE_CHECKING:  # imported only when these commands run
    from nodesmith.ports import Store

TABLE = "nodesmith"
_ClusterOption = Annotated[str, typer.Option(help="Name of the EKS cluster.")]
_RegionOption = Annotated[
    str, typer.Option(help="Region of the cluster. Defaults to the region in your AWS configuration.")
]
_TableOption = Annotated[str, typer.Option(help="DynamoDB table of the ledger.")]


def pause_command(
    cluster: _ClusterOption,
    why: Annotated[str, typer.Option(help="Reason, shown wherever the pause is.")] = "",
    region: _RegionOption = "",
    table: _TableOption = TABLE,
) -> None:
    """Stop voluntary disruption until `nodesmith resume`.

    This pauses consolidation, drift, and replacement ahead of expireAfter and of changes that EC2 announces. Moves that
    have not started to drain are rolled back. Nodes that are deleted, expired or unhealthy, and EC2 interruptions are
    still handled.
    """
    with ledger_of(table, cluster, region) as store:
        typer.echo(pause(store, cluster, why, datetime.now(UTC)))


def resume_command(cluster: _ClusterOption, region: _RegionOption = "", table: _TableOption = TABLE) -> None:
    """Resume voluntary disruption."""
    with ledger_of(table, cluster, region) as store:
        typer.echo(resume(store, cluster, datetime.now(UTC)))


def pause(store: Store, cluster: str, why: str, now: datetime) -> str:
    """Pause disruption, and return a message. A pause in effect keeps its start time. Raises Rejected, Transient."""
    from nodesmith.model.ledger.ledger import Pause

    ledger = store.load()
    if ledger.cluster is None and not ledger.claims:
        raise Rejected(f"cluster {cluster!r}: unknown in this region; check the name and --region")
    since = ledger.paused.since if ledger.paused else now
    store.pause(Pause(since, why or (ledger.paused.why if ledger.paused else "")))
    begun = f"; moves in progress: {len(ledger.moves)}" if ledger.moves else ""
    return f"disruption of cluster {cluster} is paused since {since:%Y-%m-%d %H:%M} UTC{begun}"


def resume(store: Store, cluster: str, now: datetime) -> str:
    """Resume disruption, and return a message that says how long it was paused. Raises Transient."""
    paused = store.load().paused
    if paused is None:
        return f"disruption of cluster {cluster} is not paused"
    store.pause(None)
    return f"disruption of cluster {cluster} is resumed, after {_span((now - paused.since).total_seconds())}"


def _span(seconds: float) -> str:
    minutes = max(0, round(seconds / 60))
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


@contextmanager
def ledger_of(table: str, cluster: str, region: str) -> Iterator[Store]:
    """Yield the ledger of a cluster. Raises Rejected for requests that AWS refuses."""
    from nodesmith.adapters.aws.calls import all_errors
    from nodesmith.adapters.dynamodb.ledger import DynamoStore

    with all_errors(f"DynamoDB table {table!r}"):
        yield DynamoStore(aws_client("dynamodb", region), table, cluster, partial(datetime.now, UTC))
