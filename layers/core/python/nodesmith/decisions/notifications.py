"""Which notifications the current state calls for.

They follow from the ledger, the snapshot and the last decision alone, so a run that crashes after an effect leaves
nothing to catch up on: the next run finds the same notification, with the same id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from nodesmith.decisions.budgets import opens_at, remaining
from nodesmith.decisions.scheduling.offerings.options import Usage
from nodesmith.model.ec2.notices import Fate
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool, parsed_nodepools
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.ledger.moves import Reason
from nodesmith.model.notifications import (
    BudgetBlocked,
    InterruptionServed,
    NodeLaunched,
    Notification,
    PodUnplaced,
    SpendingAbove,
)
from nodesmith.model.policies import MICRO, MONTHLY, USD_PER_HOUR, USD_PER_MONTH
from nodesmith.model.snapshot import Snapshot

LATELY = timedelta(hours=1)
"""How long a launch or an interruption is worth a notification: for so long, sending it is retried."""
UNPLACED_AFTER = timedelta(minutes=5)
BLOCKED_AFTER = timedelta(hours=1)
_FATES = frozenset(Fate)
_UNITS = {USD_PER_HOUR: ("USD an hour", MICRO), USD_PER_MONTH: ("USD a month", MONTHLY)}
_PERCENTS = (100, 80)


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A pod (namespace/name) that the last decision bought nothing for: the one reason, and what would help."""

    pod: str
    reason: str
    remedy: str = ""


def of_claims(claims: Iterable[NodeClaim], cluster: str, now: datetime) -> Iterator[Notification]:
    """Yield the launches and interruptions of the last hour, interruptions first."""
    launches: list[Notification] = []
    for claim in claims:
        if claim.is_ending and claim.cause in _FATES and _is_lately(claim.terminating_at, now):
            yield _interruption(claim, cluster, claim.terminating_at or now)
        if claim.instance_id and claim.phase is not Phase.GIVEN_UP and _is_lately(claim.launched_at, now):
            launches.append(_launch(claim, cluster, claim.launched_at or now))
    yield from launches


def _is_lately(at: datetime | None, now: datetime) -> bool:
    return at is not None and now - at <= LATELY


def _launch(claim: NodeClaim, cluster: str, at: datetime) -> Notification:
    detail = NodeLaunched(
        node_claim=claim.name,
        node_pool=claim.nodepool,
        instance_id=claim.instance_id,
        instance_type=claim.instance_type,
        zone=claim.zone,
        capacity_type=claim.capacity_type,
        price_hourly_usd=claim.price_hourly_usd,
        pod_count=len(claim.nominated),
        pods=claim.nominated,
        decision=claim.decision,
    )
    return Notification(cluster, at, claim.name, detail)


def _interruption(claim: NodeClaim, cluster: str, at: datetime) -> Notification:
    detail = InterruptionServed(
        node_claim=claim.name,
        node_pool=claim.nodepool,
        node=claim.node_name,
        instance_id=claim.instance_id,
        instance_type=claim.instance_type,
        zone=claim.zone,
        capacity_type=claim.capacity_type,
        cause=claim.cause,
        replaced_by=claim.replaced_by,
        deadline=claim.deadline,
    )
    return Notification(cluster, at, claim.name, detail)


def is_anyone_waiting(snapshot: Snapshot, now: datetime) -> bool:
    """Return whether a pod has waited for so long that it would be worth a notification if nothing was bought."""
    return any(
        not pod.node and not pod.deleting and now - pod.created_at >= UNPLACED_AFTER for pod in snapshot.pods
    )


def of_unplaced(unplaced: Iterable[Unplaced], snapshot: Snapshot, now: datetime) -> Iterator[Notification]:
    """Yield the pods that have waited for five minutes and that the last decision bought nothing for."""
    waiting = {
        pod.key: pod.created_at
        for pod in snapshot.pods
        if not pod.node and not pod.deleting and now - pod.created_at >= UNPLACED_AFTER
    }
    for each in unplaced:
        since = waiting.get(each.pod)
        if since is None:
            continue
        namespace, _, name = each.pod.partition("/")
        detail = PodUnplaced(namespace, name, since, each.reason, each.remedy)
        # A pod of the same name that comes later, such as a StatefulSet's, is another one.
        yield Notification(
            snapshot.cluster, since + UNPLACED_AFTER, f"{each.pod} {since.isoformat()}", detail
        )


def of_budgets(ledger: Ledger, snapshot: Snapshot, now: datetime) -> Iterator[Notification]:
    """Yield, once a day, the NodePools whose budgets have kept drifted nodes for an hour.

    A NodePool with a node that ends or is replaced is not blocked: its budgets are in use.
    """
    moving = ledger.sources
    for name, pool in sorted(parsed_nodepools(snapshot.nodepools).items()):
        mine = [claim for claim in ledger.claims if claim.nodepool == name]
        if any(claim.is_ending or claim.name in moving for claim in mine):
            continue
        drifted = [claim for claim in mine if claim.drift and _since(claim) is not None]
        since = min((at for claim in drifted if (at := _since(claim)) is not None), default=None)
        if since is None or now - since < BLOCKED_AFTER:
            continue
        if remaining(pool, Reason.DRIFTED, ledger, (), snapshot, now) == 0:
            yield _blocked(pool, drifted, since, ledger, snapshot.cluster, now)


def _since(claim: NodeClaim) -> datetime | None:
    return claim.drifted_at if claim.phase is Phase.INITIALIZED else None


def _blocked(
    pool: NodePool, drifted: Sequence[NodeClaim], since: datetime, ledger: Ledger, cluster: str, now: datetime
) -> Notification:
    detail = BudgetBlocked(
        node_pool=pool.name,
        reason=Reason.DRIFTED.value,
        since=since,
        node_count=len(drifted),
        node_claims=tuple(sorted(claim.name for claim in drifted)),
        opens_at=opens_at(pool, ledger, now),
    )
    return Notification(cluster, now, f"{pool.name} {now:%Y-%m-%d}", detail)


def of_spending(usages: Iterable[Usage], cluster: str, now: datetime) -> Iterator[Notification]:
    """Yield the limits in dollars of which 80 or 100 % is used: each threshold once a day, or once a month."""
    for usage in usages:
        for name, (unit, dollar) in _UNITS.items():
            limit, used = usage.quota.limits.get(name), usage.used.of(name)
            if usage.quota.fault or limit is None:
                continue
            passed = (percent for percent in _PERCENTS if used * 100 >= limit * percent)
            percent = next(passed, 0)
            if not percent:
                continue
            period = f"{now:%Y-%m-%d}" if name == USD_PER_HOUR else f"{now:%Y-%m}"
            detail = SpendingAbove(
                usage.quota.owner, unit, percent, round(used / dollar, 4), round(limit / dollar, 4)
            )
            yield Notification(cluster, now, f"{usage.quota.owner} {unit} {percent} {period}", detail)
