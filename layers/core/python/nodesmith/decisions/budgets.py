"""How many more of a NodePool's nodes may be disrupted now.

Rules are Karpenter's: of all budgets that are active and name the reason the least counts; a percentage is rounded up,
and is one of the initialized nodes whose instances are not being terminated; nodes that end or are not Ready are
already disrupted, whatever the cause; one whose schedule cannot be read allows none. Ours are the clock that a schedule
goes by, the number of nodes in an hour, that all of it can be paused, that of a node that is being replaced and its
replacement one counts for a share, and that a node ends until its Node is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta, tzinfo

from nodesmith.decisions.due import first_after
from nodesmith.model.apimachinery.cron import is_schedule, last_hit, parse_cron
from nodesmith.model.apimachinery.taints import DISRUPTED
from nodesmith.model.karpenter.budgets import Budget
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.ledger.moves import Reason
from nodesmith.model.ledger.pauses import RATE_WINDOW
from nodesmith.model.snapshot import Snapshot

_MOST_WINDOWS = 50
"""How many windows of a schedule, each of which begins before the last one ends, are followed to their end."""


def remaining(
    pool: NodePool,
    reason: str,
    ledger: Ledger,
    going: Collection[NodeClaim],
    snapshot: Snapshot,
    now: datetime,
    *,
    budgets_only: bool = False,
) -> int | None:
    """Return how many more nodes of a NodePool may go, beside those that are `going` or that moves take; None for all.

    None at all while disruption is paused, or something that was to limit it cannot be read. With `budgets_only`,
    neither counts, nor how many have gone within the hour.
    """
    if not budgets_only and (ledger.paused is not None or pool.disruption.fault):
        return 0
    mine = [c for c in ledger.claims if c.nodepool == pool.name and c.phase is not Phase.GIVEN_UP]
    counted = [c for c in mine if _is_initialized(c) and not c.is_instance_terminating]
    sources, bought = ledger.sources, ledger.replacements
    going = [*going, *(c for c in mine if c.name in sources)]
    marked = {c.name for c in going} | _deleted(snapshot)
    disrupted = [c for c in mine if _is_disrupted(c, snapshot.node_of(c), marked)]
    doubled = [c for c in counted if c.name in bought or c.cause == Reason.DRIFTED]
    at_once = allowed(pool.disruption.budgets, reason, len(counted) - len(doubled), len(disrupted), now)
    most = pool.disruption.most_an_hour
    if budgets_only or most is None:
        return at_once
    left = max(0, most - len(departed(pool.name, ledger, going, now)))
    return left if at_once is None else min(at_once, left)


def _is_disrupted(claim: NodeClaim, node: Node | None, marked: Collection[str]) -> bool:
    """Return whether whoever counts Nodes sees this one end or not serve; one that never joined is nobody's loss.

    A Node that is held by other controllers' finalizers ends for as long as it is there.
    """
    if not _is_initialized(claim):
        return claim.is_ending and (claim.registered_at is not None or node is not None)
    if claim.is_ending or claim.name in marked or node is None or not node.is_ready:
        return True
    return node.deleting or any(taint.identity == DISRUPTED.identity for taint in node.taints)


def _is_initialized(claim: NodeClaim) -> bool:
    return claim.phase is Phase.INITIALIZED or claim.initialized_at is not None


def _deleted(snapshot: Snapshot) -> frozenset[str]:
    """Name the NodeClaims that somebody has deleted, whether their end has been begun or not."""
    objects = (manifest.get("metadata") or {} for manifest in snapshot.nodeclaims)
    return frozenset(str(each.get("name")) for each in objects if each.get("deletionTimestamp"))


def opens_at(pool: NodePool, ledger: Ledger, now: datetime) -> datetime | None:
    """Return the first moment at which time alone lets more of a NodePool's nodes go; None where only events can."""
    ends = (holds_until(budget, now) for budget in pool.disruption.budgets)
    return first_after(now, (*ends, rate_allows_from(pool, ledger, now)))


def rate_allows_from(pool: NodePool, ledger: Ledger, now: datetime) -> datetime | None:
    """Return when a NodePool that has used up its disruptions of an hour may have another; None where it has not."""
    most, since = pool.disruption.most_an_hour, now - RATE_WINDOW
    begun = [c.terminating_at for c in ledger.claims if c.nodepool == pool.name]
    begun += [d.at for d in ledger.departures if d.nodepool == pool.name]
    recent = sorted(at for at in begun if at is not None and at > since)
    return recent[-most] + RATE_WINDOW if most and len(recent) >= most else None


def departed(nodepool: str, ledger: Ledger, going: Iterable[NodeClaim], now: datetime) -> frozenset[str]:
    """Name the NodeClaims whose end began within the last hour, whatever for, and those that are about to."""
    since = now - RATE_WINDOW
    mine = [c for c in ledger.claims if c.nodepool == nodepool]
    ending = (c.name for c in mine if c.terminating_at is not None and c.terminating_at > since)
    gone = (d.claim for d in ledger.departures if d.nodepool == nodepool and d.at > since)
    next_ones = (c.name for c in going if c.nodepool == nodepool and not c.is_ending)
    return frozenset((*ending, *gone, *next_ones))


def allowed(budgets: Iterable[Budget], reason: str, nodes: int, disrupted: int, now: datetime) -> int | None:
    """Return how many more of `nodes` may go for a reason; None where no budget says anything, so all of them."""
    limits = [
        _count(budget, nodes)
        for budget in budgets
        if (budget.reasons is None or reason in budget.reasons) and is_active(budget, now)
    ]
    return max(0, min(limits) - disrupted) if limits else None


def is_active(budget: Budget, now: datetime) -> bool:
    """Return whether a budget holds now: always, or for its duration from each moment of its schedule on.

    One whose schedule cannot be read holds always.
    """
    if budget.schedule is None or budget.duration_seconds is None or not is_schedule(budget.schedule):
        return True
    since = now - timedelta(seconds=budget.duration_seconds)
    return last_hit(parse_cron(budget.schedule), since, now, _zone(budget.timezone)) is not None


def holds_until(budget: Budget, now: datetime) -> datetime | None:
    """Return when a budget that holds by its schedule holds no longer; None for one that holds always, or not now.

    None also where one window follows the other for longer than `_MOST_WINDOWS` of them.
    """
    if budget.schedule is None or budget.duration_seconds is None or not is_schedule(budget.schedule):
        return None
    schedule, zone = parse_cron(budget.schedule), _zone(budget.timezone)
    duration = timedelta(seconds=budget.duration_seconds)
    hit = last_hit(schedule, now - duration, now, zone)
    for _ in range(_MOST_WINDOWS):
        if hit is None:
            return None
        later = last_hit(schedule, hit, hit + duration, zone)
        if later is None:
            return hit + duration
        hit = later
    return None


def _zone(name: str) -> tzinfo:
    if not name:
        return UTC
    from zoneinfo import ZoneInfo  # few name one, and every cold start would wait for it

    return ZoneInfo(name)


def _count(budget: Budget, nodes: int) -> int:
    text = budget.nodes
    if budget.schedule is not None and not is_schedule(budget.schedule):
        return 0
    if text.endswith("%"):
        return -(-int(text[:-1]) * nodes // 100)
    return int(text)
