"""Expiration: nodes that reach the NodePool's `expireAfter` are replaced, ahead of time if budgets allow it.

`expireAfter` is a deadline. Karpenter deletes the node when it has come, whatever runs on it; here that is the last
resort. Before the deadline lies a window, a tenth of the node's life and a day at most. Within it, each node has its
own moment, derived from its claim's name, so that nodes of the same age do not end together. From that moment on the
node ends as soon as its NodePool's budgets allow one more and none of its pods refuses disruption. Until the deadline,
it also stays while room on it is kept for a ProvisioningRequest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from nodesmith.decisions.budgets import (
    closed_obstacle,
    is_open,
    loop_obstacle,
    next_turn,
    opens_at,
    remaining,
)
from nodesmith.decisions.termination.beginning import deadline_of
from nodesmith.decisions.termination.evictions import protected_until, refuses_disruption
from nodesmith.decisions.termination.waiting import CLOSED, EXPIRED, obstacles
from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT
from nodesmith.model.apimachinery.times import duration_seconds, first_after
from nodesmith.model.commands import End
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot

WINDOW_SHARE = 0.1
"""The window before the deadline in which a node may be replaced, as a share of its life."""
LONGEST_WINDOW = timedelta(days=1)
_RESERVED_SHARE = 0.2
"""The share at the end of the window in which no node's moment lies, so that nodes that had to wait still have time."""
_SERVING = frozenset({Phase.LAUNCHED, Phase.REGISTERED, Phase.INITIALIZED})


def expires_at(claim: NodeClaim) -> datetime | None:
    """Return when a claim's node reaches its `expireAfter`, None for never."""
    life = _lifetime(claim.expire_after)
    return None if life is None else claim.created_at + life


def next_deadline(claims: Iterable[NodeClaim], now: datetime) -> datetime | None:
    """Return the first moment after `now` at which a node reaches its `expireAfter`, None if none ever does."""
    ends = (expires_at(claim) for claim in claims if claim.phase in _SERVING)
    return min((end for end in ends if end is not None and end > now), default=None)


def replaceable_from(claim: NodeClaim) -> datetime | None:
    """Return the moment from which a claim's node may be replaced ahead of time, None for never."""
    end = expires_at(claim)
    if end is None:
        return None
    window = min((end - claim.created_at) * WINDOW_SHARE, LONGEST_WINDOW)
    return end - window * (_RESERVED_SHARE + (1 - _RESERVED_SHARE) * _fraction(claim.name))


def next_change(
    ledger: Ledger, snapshot: Snapshot, pools: Mapping[str, NodePool], now: datetime
) -> datetime | None:
    """Return the first moment after `now` at which the result of `expired` may change, None if there is none.

    A node whose moment has come, and that still exists, waits for its NodePool's budgets or for its pods. The same
    moments count for `out_of_schedule`.
    """
    serving = [claim for claim in ledger.claims if claim.phase in _SERVING and claim.expire_after]
    moments = [moment for claim in serving for moment in (replaceable_from(claim), expires_at(claim))]
    moments.append(next_turn((pools[name] for name in _scheduled_pools(ledger, pools)), now))
    closed = {name for name in _scheduled_pools(ledger, pools) if not is_open(pools[name], now)}
    waiting = [claim for claim in serving if _is_past(replaceable_from(claim), now)]
    waiting += [c for c in ledger.claims if c.phase in _SERVING and c.nodepool in closed]
    if waiting:
        names = {claim.nodepool for claim in waiting} & pools.keys()
        moments += [opens_at(pools[name], ledger, now) for name in sorted(names)]
        names = {claim.name for claim in waiting}
        moments += [gang.booked_until for gang in ledger.gangs if not names.isdisjoint(gang.places)]
        nodes = {node.name for claim in waiting for node in snapshot.nodes_of(claim)}
        moments += [protected_until(pod) for name in nodes for pod in snapshot.pods_on(name)]
    return first_after(now, moments)


def _scheduled_pools(ledger: Ledger, pools: Mapping[str, NodePool]) -> list[str]:
    """Return the names of the NodePools with a schedule that have nodes, in order."""
    with_nodes = {claim.nodepool for claim in ledger.claims if claim.phase in _SERVING}
    return sorted(name for name in with_nodes & pools.keys() if pools[name].windows is not None)


def expired(ledger: Ledger, snapshot: Snapshot, pools: Mapping[str, NodePool], now: datetime) -> list[End]:
    """Return the terminations of expired nodes that begin now.

    Nodes past their deadline come first, then the others by NodePool in the order of their moments, except those in
    zones that the cluster is shifted away from. `pools` are the
    valid NodePools by name. A node without one has no budgets, and stays until its deadline.
    """
    old = [claim for claim in ledger.claims if claim.phase in _SERVING and _is_old(claim, now)]
    old = [claim for claim in old if not loop_obstacle(claim, ledger, now)]
    overdue = sorted((c for c in old if _is_past(expires_at(c), now)), key=lambda c: c.name)
    # A move ends its sources.
    settled = {c.name for c in overdue} | ledger.sources | ledger.booked(now)
    away = ledger.shifted(now)
    due = [c for c in old if c.name not in settled and _is_past(replaceable_from(c), now)]
    due = [c for c in due if c.zone not in away]
    chosen: list[NodeClaim] = []
    for pool in sorted({claim.nodepool for claim in due} & pools.keys()):
        candidates = sorted((c for c in due if c.nodepool == pool), key=_moment)
        allowance = remaining(pools[pool], EXPIRED, ledger, overdue, snapshot, now)
        chosen += _willing(candidates, snapshot, allowance, now)
    return [_end(claim, snapshot, "the node has reached its expireAfter", now) for claim in overdue] + [
        _end(claim, snapshot, "the node is replaced ahead of its expireAfter", now) for claim in chosen
    ]


def out_of_schedule(
    ledger: Ledger,
    snapshot: Snapshot,
    pools: Mapping[str, NodePool],
    now: datetime,
    ends: Sequence[End] = (),
) -> list[End]:
    """Return the terminations that begin now because the schedule of a NodePool has closed, besides `ends`.

    They keep to budgets, protections and kept room like those of nodes that are replaced ahead of their expiration.
    Static NodePools have `surplus` nodes instead.
    """
    going = [end.claim for end in ends]
    settled = {c.name for c in going} | ledger.sources | ledger.booked(now)
    away = ledger.shifted(now)
    closing: list[End] = []
    for name, pool in sorted(pools.items()):
        if pool.is_static or is_open(pool, now):
            continue
        mine = [c for c in ledger.claims if c.nodepool == name and c.phase in _SERVING]
        mine = sorted((c for c in mine if c.name not in settled and c.zone not in away), key=lambda c: c.name)
        chosen = _willing(mine, snapshot, remaining(pool, CLOSED, ledger, going, snapshot, now), now)
        message = f"NodePool {name}: {closed_obstacle(pool, now)}"
        closing += [_end(claim, snapshot, message, now, CLOSED) for claim in chosen]
    return closing


def _willing(
    candidates: Iterable[NodeClaim], snapshot: Snapshot, limit: int | None, now: datetime
) -> list[NodeClaim]:
    """Return the candidates that nothing prevents from going, in order, at most `limit` of them."""
    willing: list[NodeClaim] = []
    for claim in candidates:
        if limit is not None and len(willing) >= limit:
            break
        node = snapshot.node_of(claim)
        if claim.phase is not Phase.INITIALIZED or node is None:
            continue
        if _may_go(node, snapshot, now):
            willing.append(claim)
    return willing


def _may_go(node: Node, snapshot: Snapshot, now: datetime) -> bool:
    """Return whether a node is Ready, and neither it nor one of its pods refuses disruption."""
    if not node.is_ready or node.annotations.get(DO_NOT_DISRUPT) == "true":
        return False
    pods = snapshot.pods_on(node.name)
    return not any(refuses_disruption(pod, now) for pod in pods) and not obstacles(node.name, snapshot, now)


def _end(claim: NodeClaim, snapshot: Snapshot, message: str, now: datetime, cause: str = EXPIRED) -> End:
    manifests = snapshot.shown_nodeclaims()
    return End(claim.terminating(cause, message, now, deadline_of(claim, manifests.get(claim.name), now)))


def _is_old(claim: NodeClaim, now: datetime) -> bool:
    """Return whether a node may be in its window or past it: a quick check, since most nodes are not."""
    life = _lifetime(claim.expire_after)
    return life is not None and now - claim.created_at >= life * (1 - WINDOW_SHARE)


@lru_cache(maxsize=256)
def _lifetime(expire_after: str | None) -> timedelta | None:
    seconds = duration_seconds(expire_after)
    return None if seconds is None else timedelta(seconds=seconds)


def _is_past(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and moment <= now


def _moment(claim: NodeClaim) -> tuple[datetime, str]:
    return replaceable_from(claim) or datetime.max.replace(tzinfo=UTC), claim.name


def _fraction(name: str) -> float:
    """Return a number from 0 to 1 that is always the same for a name, and differs between names."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64
