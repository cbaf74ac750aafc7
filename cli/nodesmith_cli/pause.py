"""`nodesmith pause` and `nodesmith resume`: whether nodes of a cluster may be disrupted that could as well go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from nodesmith.errors import Rejected
from nodesmith_cli.awsclients import aws_client

if TYPE_CHECKING:  # imported when these commands run, not with all others
    from nodesmith.ports import Store

TABLE = "nodesmith"
_ClusterOption = Annotated[str, typer.Option(help="The EKS cluster.")]
_RegionOption = Annotated[str, typer.Option(help="Its region; else that of your AWS settings.")]
_TableOption = Annotated[str, typer.Option(help="The DynamoDB table of the ledger.")]


def pause_command(
    cluster: _ClusterOption,
    why: Annotated[str, typer.Option(help="Shown to whoever wonders.")] = "",
    region: _RegionOption = "",
    table: _TableOption = TABLE,
) -> None:
    """Let no node be disrupted that could as well go on, until `resume`.

    Consolidation, drift, replacement ahead of expireAfter and of changes that EC2 announces wait; moves under way that
    have not begun to drain are undone. What cannot wait goes on: nodes that are deleted, past expireAfter or sick, and
    what EC2 takes.
    """
    with _ledger(table, cluster, region) as store:
        typer.echo(pause(store, cluster, why, datetime.now(UTC)))


def resume_command(cluster: _ClusterOption, region: _RegionOption = "", table: _TableOption = TABLE) -> None:
    """Let disruption go on after `pause`."""
    with _ledger(table, cluster, region) as store:
        typer.echo(resume(store, cluster, datetime.now(UTC)))


def pause(store: Store, cluster: str, why: str, now: datetime) -> str:
    """Pause disruption, and say so; one that is paused already keeps its time. Raises Rejected, Transient."""
    from nodesmith.model.ledger.pauses import Pause

    ledger = store.load()
    if ledger.cluster is None and not ledger.claims:
        raise Rejected(f"cluster {cluster!r}: nothing is known of it in this region; is the name right?")
    since = ledger.paused.since if ledger.paused else now
    store.pause(Pause(since, why or (ledger.paused.why if ledger.paused else "")))
    begun = f"; moves under way: {len(ledger.moves)}" if ledger.moves else ""
    return f"disruption of cluster {cluster} is paused since {since:%Y-%m-%d %H:%M} UTC{begun}"


def resume(store: Store, cluster: str, now: datetime) -> str:
    """Let disruption go on, and say for how long it was paused. Raises Transient."""
    paused = store.load().paused
    if paused is None:
        return f"disruption of cluster {cluster} is not paused"
    store.pause(None)
    return f"disruption of cluster {cluster} goes on, after {_span((now - paused.since).total_seconds())}"


def _span(seconds: float) -> str:
    minutes = max(0, round(seconds / 60))
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


@contextmanager
def _ledger(table: str, cluster: str, region: str) -> Iterator[Store]:
    """Yield the ledger of a cluster; what AWS refuses is Rejected."""
    from nodesmith.adapters.aws.errors import all_errors
    from nodesmith.adapters.dynamodb.ledger import DynamoStore

    with all_errors(f"DynamoDB table {table!r}"):
        yield DynamoStore(aws_client("dynamodb", region), table, cluster, partial(datetime.now, UTC))
