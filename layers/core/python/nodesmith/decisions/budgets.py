"""How many more of a NodePool's nodes may be disrupted now, and whether its schedule lets it have nodes at all.

The following rules are Karpenter's. Among all budgets that are active and name the reason, the lowest counts. A
percentage is rounded up, and refers to the initialized nodes whose instances are not being terminated. Nodes that are
terminating or not Ready count as disrupted, whatever the cause. A budget whose schedule cannot be parsed allows none.

The following rules are nodesmith's. A schedule may have a time zone. The number of nodes in an hour can be limited. All
disruption can be paused, and pauses while too many of the cluster's nodes are not Ready: the rule and the figures are
Cluster Autoscaler's. A node and its replacement count as one node for a percentage. A node counts as terminating
until its Node is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta, tzinfo

from nodesmith.model.apimachinery.labels import DISRUPTED, PREPARING
from nodesmith.model.apimachinery.times import (
    LONGEST_GAP,
    first_after,
    is_schedule,
    last_hit,
    next_hit,
    parse_cron,
)
from nodesmith.model.karpenter.disruption import SCHEDULE, Budget, Window
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.ledger.ledger import RATE_WINDOW, Ledger, Pause
from nodesmith.model.ledger.moves import Reason
from nodesmith.model.snapshot import Snapshot

_MOST_WINDOWS = 50
"""The most overlapping windows of a schedule that are followed to find their common end."""


MOST_UNREADY, MOST_UNREADY_PERCENT = 3, 45
"""Disruption pauses while more nodes than both are not Ready."""
_STARTING = timedelta(minutes=15)
"""For how long a new Node that is not Ready yet does not count."""
_AT_FIRST = timedelta(minutes=2)
"""A Node that lost its readiness this long after its creation, or later, is no longer starting."""


_YOUNG = timedelta(days=1)


def loop_obstacle(claim: NodeClaim, ledger: Ledger, now: datetime) -> str:
    """Return why a node may not be replaced, since its NodePool's nodes are bought and replaced in a loop; or empty.

    Older nodes are not part of a loop.
    """
    health = ledger.health.get(claim.nodepool)
    holds = health is not None and health.moves.holds(now) and now - claim.bought_at < _YOUNG
    return health.moves.message(now) if health is not None and holds else ""


def paused(ledger: Ledger, snapshot: Snapshot, now: datetime) -> Pause | None:
    """Return the pause of voluntary disruption, by a user or because of unready nodes; None if there is none."""
    if ledger.handover is not None and ledger.handover.to_karpenter:
        return Pause(ledger.handover.at, "the cluster is being handed over to Karpenter")
    if ledger.paused is not None and ledger.paused.holds(now):
        return ledger.paused
    # Instances that are prepared for later serve no pods, and are not Ready while they stop.
    nodes = [node for node in snapshot.nodes if PREPARING not in node.labels]
    since = sorted(filter(None, (_unready_since(node, now) for node in nodes)))
    total = len(nodes)
    enough = max(MOST_UNREADY, total * MOST_UNREADY_PERCENT // 100) + 1
    if len(since) < enough:
        return None
    # The message has no count of unready nodes: it must stay the same while the pause lasts.
    message = f"more than {MOST_UNREADY_PERCENT} % of the cluster's {total} nodes are not Ready"
    return Pause(since[enough - 1], message)


def _unready_since(node: Node, now: datetime) -> datetime | None:
    """Return since when a Node that neither starts nor ends has not been Ready, None if it is Ready."""
    ready = node.conditions.get("Ready")
    if ready is None or ready.status == "True" or node.deleting:
        return None
    since = ready.since or node.created_at
    is_starting = now - node.created_at < _STARTING and since - node.created_at < _AT_FIRST
    is_closed = any(taint.identity == DISRUPTED.identity for taint in node.taints)
    return None if is_starting or is_closed else since


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
    """Return how many more nodes of a NodePool may be disrupted, None if there is no limit.

    Nodes that are `going`, and sources of moves, count as disrupted already. The result is 0 while disruption is
    paused, or if a limit in the NodePool cannot be parsed. With `budgets_only`, only the budgets count: neither those
    two nor the limit per hour.
    """
    if not budgets_only and (pool.disruption.fault or paused(ledger, snapshot, now) is not None):
        return 0
    nodes, disrupted = _counts(pool, ledger, going, snapshot)
    at_once = allowed(pool.disruption.budgets, reason, nodes, disrupted, now)
    most = pool.disruption.most_an_hour
    if budgets_only or most is None:
        return at_once
    left = max(0, most - len(departed(pool.name, ledger, going, now)))
    return left if at_once is None else min(at_once, left)


def strictest(
    pool: NodePool,
    reason: str,
    ledger: Ledger,
    going: Collection[NodeClaim],
    snapshot: Snapshot,
    now: datetime,
) -> str:
    """Return the budget of a NodePool that allows fewest disruptions for a reason now, in a sentence; empty if none is.

    The sentence stays the same while the budget and the number of nodes do.
    """
    nodes, _ = _counts(pool, ledger, going, snapshot)
    active = [
        (_count(budget, nodes), number, budget)
        for number, budget in enumerate(pool.disruption.budgets)
        if _limits(budget, reason, now)
    ]
    if not active:
        return ""
    most, number, budget = min(active, key=lambda row: row[:2])
    parts = [f"nodes {budget.nodes}"]
    parts += [f"reasons {', '.join(sorted(budget.reasons))}"] if budget.reasons is not None else []
    until = holds_until(budget, now)
    parts += [f"until {until:%Y-%m-%d %H:%M} UTC"] if until is not None else []
    named = f"spec.disruption.budgets[{number}] ({'; '.join(parts)})"
    if not most:
        return f"{named} allows none"
    return f"{named} allows {most} of {nodes} at a time, and as many are being disrupted or not Ready"


def _counts(
    pool: NodePool, ledger: Ledger, going: Collection[NodeClaim], snapshot: Snapshot
) -> tuple[int, int]:
    """Return how many nodes of a NodePool count for its budgets, and how many of them are disrupted."""
    mine = [c for c in ledger.claims if c.nodepool == pool.name and c.phase is not Phase.GIVEN_UP]
    counted = [c for c in mine if _is_initialized(c) and not c.is_instance_terminating]
    sources = ledger.sources
    going = [*going, *(c for c in mine if c.name in sources)]
    marked = {c.name for c in going} | _deleted(snapshot)
    disrupted = [c for c in mine if _is_disrupted(c, snapshot.node_of(c), marked)]
    return len(counted) - _doubled(counted, ledger), len(disrupted)


def _doubled(counted: Collection[NodeClaim], ledger: Ledger) -> int:
    """Return how many of these nodes exist only because they replace others that still exist.

    What a move has bought is known. For other terminations, such as expiration, provisioning buys when they have begun.
    """
    ending = [claim for claim in counted if claim.is_ending]
    replacements = ledger.replacements | {name for claim in ending for name in claim.replaced_by}
    alone = [claim for claim in ending if not claim.replaced_by and claim.cause != Reason.EMPTY]
    drifted = sum(claim.cause == Reason.DRIFTED for claim in alone)
    starts = [claim.terminating_at for claim in alone if claim.cause != Reason.DRIFTED]
    since = min((at for at in starts if at is not None), default=None)
    later = [c for c in counted if since is not None and c.bought_at >= since and c.name not in replacements]
    return sum(c.name in replacements for c in counted) + drifted + min(len(starts), len(later))


def _is_disrupted(claim: NodeClaim, node: Node | None, marked: Collection[str]) -> bool:
    """Return whether a claim's node counts as disrupted: terminating or not Ready. One that never joined does not.

    A Node that other controllers' finalizers hold counts as terminating for as long as it exists.
    """
    if not _is_initialized(claim):
        return claim.is_ending and (claim.registered_at is not None or node is not None)
    if claim.is_ending or claim.name in marked or node is None or not node.is_ready:
        return True
    return node.deleting or any(taint.identity == DISRUPTED.identity for taint in node.taints)


def _is_initialized(claim: NodeClaim) -> bool:
    return claim.phase is Phase.INITIALIZED or claim.initialized_at is not None


def _deleted(snapshot: Snapshot) -> frozenset[str]:
    """Return the names of the NodeClaim objects that have been deleted, even if their termination has not begun."""
    objects = (manifest.get("metadata") or {} for manifest in snapshot.nodeclaims)
    return frozenset(str(manifest.get("name")) for manifest in objects if manifest.get("deletionTimestamp"))


def opens_at(pool: NodePool, ledger: Ledger, now: datetime) -> datetime | None:
    """Return the first moment at which time alone allows more disruptions in a NodePool, None if only events do."""
    ends = (holds_until(budget, now) for budget in pool.disruption.budgets)
    return first_after(now, (*ends, rate_allows_from(pool, ledger, now)))


def allows_from(
    pool: NodePool, reason: str, ledger: Ledger, snapshot: Snapshot, now: datetime
) -> datetime | None:
    """Return when time alone allows a disruption for a reason, None if only a change does.

    None also if that takes more than `_MOST_WINDOWS` beginnings and ends of windows.
    """
    pause_ends = ledger.paused.until if ledger.paused is not None else None
    at = now
    for _ in range(_MOST_WINDOWS):
        boundary = next_boundary(pool.disruption.budgets, at)
        later = first_after(at, (boundary, rate_allows_from(pool, ledger, at), pause_ends))
        if later is None or remaining(pool, reason, ledger, (), snapshot, later) != 0:
            return later
        at = later
    return None


def rate_allows_from(pool: NodePool, ledger: Ledger, now: datetime) -> datetime | None:
    """Return when a NodePool that has reached its limit per hour may have another disruption, None if it has not."""
    hourly_limit, since = pool.disruption.most_an_hour, now - RATE_WINDOW
    starts = [c.terminating_at for c in ledger.claims if c.nodepool == pool.name]
    starts += [d.at for d in ledger.departures if d.nodepool == pool.name]
    recent = sorted(at for at in starts if at is not None and at > since)
    return recent[-hourly_limit] + RATE_WINDOW if hourly_limit and len(recent) >= hourly_limit else None


def departed(nodepool: str, ledger: Ledger, going: Iterable[NodeClaim], now: datetime) -> frozenset[str]:
    """Return the names of the NodeClaims whose termination began within the last hour, for any cause.

    Those in `going`, whose termination begins now, are included.
    """
    since = now - RATE_WINDOW
    mine = [c for c in ledger.claims if c.nodepool == nodepool]
    ending = (c.name for c in mine if c.terminating_at is not None and c.terminating_at > since)
    departed_claims = (d.claim for d in ledger.departures if d.nodepool == nodepool and d.at > since)
    next_ones = (c.name for c in going if c.nodepool == nodepool and not c.is_ending)
    return frozenset((*ending, *departed_claims, *next_ones))


def allowed(budgets: Iterable[Budget], reason: str, nodes: int, disrupted: int, now: datetime) -> int | None:
    """Return how many more of `nodes` may be disrupted for a reason, None if no budget limits them."""
    limits = [_count(budget, nodes) for budget in budgets if _limits(budget, reason, now)]
    return max(0, min(limits) - disrupted) if limits else None


def _limits(budget: Budget, reason: str, now: datetime) -> bool:
    return (budget.reasons is None or reason in budget.reasons) and is_active(budget, now)


def is_open(pool: NodePool, now: datetime) -> bool:
    """Return whether a NodePool has nodes now by its schedule."""
    return pool.windows is None or any(is_active(window, now) for window in pool.windows)


def opens_from(pool: NodePool, now: datetime) -> datetime | None:
    """Return when the next window of a NodePool's schedule begins, None if it has no schedule."""
    return first_after(now, (_begins(window, now) for window in pool.windows or ()))


def next_turn(pools: Iterable[NodePool], now: datetime) -> datetime | None:
    """Return the first moment at which a NodePool may open or close by its schedule, None if there is none."""
    return next_boundary((window for pool in pools for window in pool.windows or ()), now)


def next_boundary(windows: Iterable[Budget | Window], now: datetime) -> datetime | None:
    """Return when the next window of these begins or ends, None without one. A budget without a schedule has none."""
    return first_after(now, (moment(window, now) for window in windows for moment in (holds_until, _begins)))


def _begins(window: Budget | Window, now: datetime) -> datetime | None:
    if window.schedule is None or not is_schedule(window.schedule):
        return None
    return next_hit(parse_cron(window.schedule), now, _zone(window.timezone))


def closed_obstacle(pool: NodePool, now: datetime) -> str:
    """Return why a NodePool buys nothing because of its schedule, and until when; empty if it is open."""
    if is_open(pool, now):
        return ""
    opening = opens_from(pool, now)
    until = f"until {opening:%a %Y-%m-%d %H:%M} UTC" if opening is not None else "for years"
    return f"its schedule ({SCHEDULE}) is closed {until}"


def is_active(budget: Budget | Window, now: datetime) -> bool:
    """Return whether a budget is active now: always, or for its duration after each moment of its schedule.

    A budget whose schedule cannot be parsed is always active.
    """
    if budget.schedule is None or budget.duration_seconds is None or not is_schedule(budget.schedule):
        return True
    since = now - timedelta(seconds=budget.duration_seconds)
    return last_hit(parse_cron(budget.schedule), since, now, _zone(budget.timezone)) is not None


def holds_until(budget: Budget | Window, now: datetime) -> datetime | None:
    """Return when a budget that is active by its schedule ends, None if it is always active or not active now.

    None also if more than `_MOST_WINDOWS` windows follow each other without a gap, or each is as long as any gap.
    """
    if budget.schedule is None or budget.duration_seconds is None or not is_schedule(budget.schedule):
        return None
    schedule, zone = parse_cron(budget.schedule), _zone(budget.timezone)
    duration = timedelta(seconds=budget.duration_seconds)
    if duration >= LONGEST_GAP:
        return None
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
    from zoneinfo import ZoneInfo  # few budgets name a zone, and the import would slow down every cold start

    return ZoneInfo(name)


def _count(budget: Budget, nodes: int) -> int:
    text = budget.nodes
    if budget.schedule is not None and not is_schedule(budget.schedule):
        return 0
    if text.endswith("%"):
        return -(-int(text[:-1]) * nodes // 100)
    return int(text)
