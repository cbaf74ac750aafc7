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
    """Resume voluntary disruption, and serve the cluster again if nodesmith stood by for Karpenter."""
    with ledger_of(table, cluster, region) as store:
        typer.echo(resume(store, cluster, datetime.now(UTC)))


def pause(store: Store, cluster: str, why: str, now: datetime) -> str:
    """Pause disruption, and return a message. A pause in effect keeps its start time. Raises Rejected, Transient."""
    from nodesmith.model.ledger.ledger import Pause

    ledger = store.load()
    if ledger.cluster is None and not ledger.claims:
        raise Rejected(f"cluster {cluster!r}: unknown in this region; check the name and --region")
    held = ledger.paused if ledger.paused and ledger.paused.holds(now) else None
    since = held.since if held else now
    store.pause(Pause(since, why or (held.why if held else "")))
    begun = f"; moves in progress: {len(ledger.moves)}" if ledger.moves else ""
    return f"disruption of cluster {cluster} is paused since {since:%Y-%m-%d %H:%M} UTC{begun}"


def resume(store: Store, cluster: str, now: datetime) -> str:
    """Resume disruption, and return a message that says how long it was paused. Raises Transient.

    Signs that Karpenter runs, if they are from before `now`, no longer keep nodesmith from serving the cluster. Neither
    does a release to Karpenter.
    """
    from nodesmith.model.ledger.ledger import Handover

    ledger = store.load()
    store.hand_over(Handover(now))
    taken = ledger.handover is not None and ledger.handover.to_karpenter
    served = "; nodesmith serves it again" if taken else ""
    store.pause(None)
    if ledger.paused is None or not ledger.paused.holds(now):
        return f"disruption of cluster {cluster} is not paused{served}"
    span = _span((now - ledger.paused.since).total_seconds())
    return f"disruption of cluster {cluster} is resumed, after {span}{served}"


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
