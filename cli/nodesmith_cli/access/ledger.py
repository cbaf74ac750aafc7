"""A cluster's ledger in DynamoDB, with the caller's own credentials, and the pause of disruption that it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from nodesmith.errors import Rejected
from nodesmith_cli.access.awsclients import aws_client

if TYPE_CHECKING:  # imported only when a ledger is read
    from nodesmith.model.ledger.ledger import Ledger
    from nodesmith.ports import Store

TABLE = "nodesmith"


def pause(store: Store, cluster: str, reason: str, now: datetime) -> str:
    """Pause disruption, and return a message. A pause in effect keeps its start time. Raises Rejected, Transient."""
    from nodesmith.model.ledger.ledger import Pause

    ledger = store.load()
    if _is_unknown(ledger):
        raise Rejected(f"cluster {cluster!r}: unknown in this region; check the name and --region")
    held = ledger.paused if ledger.paused and ledger.paused.holds(now) else None
    since = held.since if held else now
    store.pause(Pause(since, reason or (held.reason if held else "")))
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
    if _is_unknown(ledger) and ledger.paused is None and not taken:
        # It may be a cluster that nodesmith has not served yet because Karpenter runs there.
        served = "; nothing else is known of it in this region: check the name and --region"
    store.pause(None)
    if ledger.paused is None or not ledger.paused.holds(now):
        return f"disruption of cluster {cluster} is not paused{served}"
    span = _span((now - ledger.paused.since).total_seconds())
    return f"disruption of cluster {cluster} is resumed, after {span}{served}"


def _is_unknown(ledger: Ledger) -> bool:
    return ledger.cluster is None and not ledger.claims


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
