"""The health of NodePools: whether their nodes have joined the cluster, and whether nodes were bought in vain.

If a NodePool's nodes do not join (a broken image, user data, network, role), the NodePool and the failed offering
within it are in back-off, longer each time. Other NodePools are not affected. Each claim counts once, however often it
is seen.

Two breakers per NodePool bound what is bought in vain, whatever the cause (ADR 59). `launches` trips when nodes do not
register, do not initialize or serve no pod. `moves` trips when nodes are bought and soon replaced again and again, and
then stops only what nodesmith itself removes, so that pods get nodes all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from nodesmith.decisions.scheduling.workloads import Workloads
from nodesmith.model.commands import Command, Forget, GiveUp, Prepare, Register
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.karpenter.nodeclaims import (
    IN_VAIN,
    UNANSWERED,
    USED,
    WITHDRAWN,
    NodeClaim,
    Phase,
)
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.kubernetes.provisioningrequests import ROLLED_BACK
from nodesmith.model.ledger.breakers import (
    CLOSED,
    FREE_ATTEMPTS,
    IN_VAIN_WINDOW,
    MOST_IN_VAIN,
    Breaker,
    PurchaseFailure,
    Wasted,
)
from nodesmith.model.ledger.learned import (
    REMEMBERED_NODES,
    Ending,
    RegistrationHealth,
    basis_of,
    next_backoff,
    with_changed_basis,
)
from nodesmith.model.ledger.ledger import Departure, Ledger, counts_as_attempt
from nodesmith.model.snapshot import Snapshot

FIRST_WAIT = timedelta(minutes=5)
_KEPT = timedelta(days=1)
LATE = timedelta(minutes=30)
"""How long after its registration a node that is not initialized counts as bought in vain."""
_LATELY = timedelta(hours=1)
JUDGED = timedelta(minutes=5)
"""How long after its initialization a node that no pod has come to counts as bought in vain, if it is still there."""
MOST_USES = 100
"""How many claims one run marks at most: each takes a write, and none is urgent."""
MOST_RESETS = 6
"""How many resets within a day are obeyed, so that a controller that changes a NodePool all the time stops nothing."""
_KEPT_SPECS = 8
_EXTERNAL_CAUSES = frozenset(
    {
        "InsufficientCapacity",
        "InstanceInterrupted",
        "LaunchTemplateNotFound",
        *UNANSWERED,
        ROLLED_BACK,
    }
)
"""Reasons for the end of a claim that do not count against its NodePool."""


def registrations(
    commands: Iterable[Command], ledger: Ledger, pools: Mapping[str, NodePool], now: datetime
) -> dict[str, RegistrationHealth]:
    """Return the registration health of NodePools after these commands, by name; unchanged ones are left out."""
    health_by_pool = {
        name: _renewed(ledger.health.get(name), _basis(pool, ledger), now) for name, pool in pools.items()
    }
    for command in commands:
        registered = _ending(command)
        claim = command.claim
        if registered is not None and not claim.is_by_hand and claim.nodepool in health_by_pool:
            health_by_pool[claim.nodepool] = _noted(health_by_pool[claim.nodepool], claim, registered, now)
    purchases = _purchases(ledger, now)
    health_by_pool = {
        name: _judged(_reset(health, pools[name], ledger, mine, now), mine, now)
        for name, health in health_by_pool.items()
        for mine in [purchases.get(name, [])]
    }
    return {
        name: health
        for name, health in health_by_pool.items()
        if health != ledger.health.get(name, RegistrationHealth(health.basis))
    }


def _basis(pool: NodePool, ledger: Ledger) -> str:
    return basis_of(pool, ledger.nodeclasses.get(pool.nodeclass.name))


def _renewed(health: RegistrationHealth | None, basis: str, now: datetime) -> RegistrationHealth:
    """Return `health`, or a fresh start if the NodePool or its EC2NodeClass has changed since."""
    if health is None:
        return RegistrationHealth(basis)
    return health if health.basis == basis else with_changed_basis(health, basis, now)


def _ending(command: Command) -> bool | None:
    """Return True if a claim's node joins with this command, False if it never will, None if neither applies."""
    claim = command.claim
    match command:
        case Register() | Prepare():
            return True
        case GiveUp() if claim.was_not_needed:
            return None
        case GiveUp() if claim.registered_at is None and claim.reason not in _EXTERNAL_CAUSES:
            return False
        case Forget() if claim.launched_at is None and claim.reason not in _EXTERNAL_CAUSES:
            return False  # the launch failed
        case _:
            return None


def _noted(
    health: RegistrationHealth, claim: NodeClaim, registered: bool, now: datetime
) -> RegistrationHealth:
    """Return `health` with the outcome of one claim added."""
    older = health.since is not None and claim.created_at < health.since
    if older or any(ending.claim == claim.name for ending in health.endings):
        return health
    after = replace(health, endings=(*health.endings, Ending(claim.name, registered))[-REMEMBERED_NODES:])
    return _joined(health, after, claim) if registered else _failed(after, claim, now)


def _joined(before: RegistrationHealth, after: RegistrationHealth, claim: NodeClaim) -> RegistrationHealth:
    key = _offering(claim)
    if not before.failures and len(before.endings) == REMEMBERED_NODES and key not in before.offerings:
        return before  # one more node that joined is not worth a write
    offerings = {offering: backoff for offering, backoff in before.offerings.items() if offering != key}
    return replace(after, backoff=None, offerings=offerings)


def _failed(after: RegistrationHealth, claim: NodeClaim, now: datetime) -> RegistrationHealth:
    offerings = {key: held for key, held in after.offerings.items() if now - held.until < _KEPT}
    if claim.instance_type:
        key = _offering(claim)
        offerings[key] = next_backoff(offerings.get(key), claim.reason, now, FIRST_WAIT)
    backoff = after.backoff
    if after.is_unhealthy:
        backoff = next_backoff(backoff, claim.reason, now, FIRST_WAIT)
    return replace(after, reason=claim.reason, message=claim.message, backoff=backoff, offerings=offerings)


def _offering(claim: NodeClaim) -> OfferingKey:
    return OfferingKey(claim.capacity_type, claim.instance_type, claim.zone)


@dataclass(frozen=True, slots=True)
class _Purchase:
    """One node that was bought, and what became of it: `failure` if it was in vain, None if not or not yet known."""

    claim: str
    at: datetime
    failure: PurchaseFailure | None
    is_used: bool
    removals_before: int


_IN_VAIN = {IN_VAIN: PurchaseFailure.UNUSED, WITHDRAWN: PurchaseFailure.WITHDRAWN}


def _purchases(ledger: Ledger, now: datetime) -> dict[str, list[_Purchase]]:
    """Return the purchases by NodePool, from claims and departures."""
    by_pool: dict[str, list[_Purchase]] = {}
    for claim in ledger.claims:
        if not claim.is_by_hand:
            serves = not claim.nominated and claim.initialized_at is not None
            failure, is_used = _in_vain(claim, now), claim.use == USED or serves
            purchase = _Purchase(claim.name, claim.bought_at, failure, is_used, claim.removals_before)
            by_pool.setdefault(claim.nodepool, []).append(purchase)
    for departure in ledger.departures:
        if departure.bought_at is not None:
            failure, is_used = (
                _IN_VAIN.get(departure.use) if _is_early(departure) else None,
                departure.use == USED,
            )
            purchase = _Purchase(
                departure.claim, departure.bought_at, failure, is_used, departure.removals_before
            )
            by_pool.setdefault(departure.nodepool, []).append(purchase)
    return by_pool


def _in_vain(claim: NodeClaim, now: datetime) -> PurchaseFailure | None:
    """Return how a claim came to nothing, None if it did not or that is not known."""
    if claim.phase is Phase.GIVEN_UP:
        is_blamed = claim.instance_id and claim.reason not in _EXTERNAL_CAUSES and not claim.was_not_needed
        return PurchaseFailure.NOT_REGISTERED if is_blamed else None
    if claim.phase is Phase.REGISTERED and now - claim.phase_since >= LATE:
        return PurchaseFailure.NOT_INITIALIZED
    return _IN_VAIN.get(claim.use) if counts_as_attempt(claim) and _is_early(claim) else None


def _is_early(purchase: NodeClaim | Departure) -> bool:
    """Return whether it is not a late attempt for a workload, which has a back-off of its own and stops nobody else."""
    return max(purchase.attempts.values(), default=1) <= FREE_ATTEMPTS


def _reset(
    health: RegistrationHealth, pool: NodePool, ledger: Ledger, purchases: Iterable[_Purchase], now: datetime
) -> RegistrationHealth:
    """Return the health with new breakers if the user has asked for that, or has changed the NodePool since.

    Going back to a spec that was tried resets nothing: two controllers that change it in turn would keep buying.
    """
    status = ledger.nodeclasses.get(pool.nodeclass.name)
    spec = f"{pool.spec} {status.hash}" if status else pool.spec
    is_asked = pool.options.reset_launches not in ("", health.reset)
    is_watched = health.launches != CLOSED or health.moves != CLOSED
    is_new = is_watched and bool(health.specs) and spec not in health.specs
    if not is_watched and not any(purchase.removals_before or purchase.failure for purchase in purchases):
        after = replace(health, specs=())
    else:
        specs = health.specs if spec in health.specs else (*health.specs, spec)
        after = replace(health, specs=specs[-_KEPT_SPECS:])
    lately = [at for at in health.resets if now - at < IN_VAIN_WINDOW]
    if not (is_asked or is_new) or len(lately) >= MOST_RESETS:
        return after
    reset = pool.options.reset_launches or health.reset
    return replace(after, launches=CLOSED, moves=CLOSED, reset=reset, resets=(*lately, now))


def _judged(health: RegistrationHealth, purchases: Iterable[_Purchase], now: datetime) -> RegistrationHealth:
    """Return the health with its breakers as these purchases leave them."""
    since = max(now - IN_VAIN_WINDOW, health.reset_at or now - IN_VAIN_WINDOW)
    purchases = [purchase for purchase in purchases if purchase.at >= since]
    in_vain = [(purchase, purchase.failure) for purchase in purchases if purchase.failure is not None]
    looped = [
        (purchase, PurchaseFailure.MOVED_AGAIN)
        for purchase in purchases
        if purchase.removals_before >= MOST_IN_VAIN
    ]
    used_at = [purchase.at for purchase in purchases if purchase.is_used]
    launches = _of_launches(health.launches.noted(_wasted(in_vain), since), used_at, now)
    moves = _of_moves(health.moves.noted(_wasted(looped), since), now)
    return replace(health, launches=launches, moves=moves)


def _wasted(purchases: Iterable[tuple[_Purchase, PurchaseFailure]]) -> list[Wasted]:
    """Return purchases by the time of their decision."""
    by_time: dict[datetime, list[tuple[str, PurchaseFailure]]] = {}
    for purchase, failure in purchases:
        by_time.setdefault(purchase.at, []).append((purchase.claim, failure))
    return [Wasted(at, len(mine), min(mine)[1], min(mine)[0]) for at, mine in sorted(by_time.items())]


def _of_launches(breaker: Breaker, used: Sequence[datetime], now: datetime) -> Breaker:
    """Return a breaker after a look at it: tripped, tripped again, or closed because nodes are used."""
    lately = sum(now - at < _LATELY for at in used)
    is_outnumbered = lately >= max(1, sum(purchase.nodes for purchase in breaker.wasted))
    if not breaker.is_tripped:
        if breaker.is_due and not is_outnumbered:
            return breaker.tripped(now)
        recent = tuple(purchase for purchase in breaker.wasted if now - purchase.at < _LATELY)
        return replace(breaker, wasted=recent) if lately >= max(1, sum(e.nodes for e in recent)) else breaker
    until = breaker.until or now
    if is_outnumbered or any(at >= until for at in used):
        return CLOSED
    return breaker.tripped(now) if now >= until and _failed_again(breaker) else breaker


def _of_moves(breaker: Breaker, now: datetime) -> Breaker:
    """Return a breaker after a look at it. A day without a loop closes it."""
    if breaker.holds(now):
        return breaker
    if not breaker.wasted:
        return CLOSED
    return breaker.tripped(now) if not breaker.is_tripped or _failed_again(breaker) else breaker


def _failed_again(breaker: Breaker) -> bool:
    """Return whether a purchase after its last wait was in vain as well."""
    attempts = (purchase for purchase in breaker.wasted if purchase.failure is not PurchaseFailure.WITHDRAWN)
    return any(breaker.until is not None and purchase.at >= breaker.until for purchase in attempts)


def uses(ledger: Ledger, snapshot: Snapshot, now: datetime, names: Workloads) -> dict[str, str]:
    """Return the new value of `use` by NodeClaim, for at most `MOST_USES` claims of the last day."""
    ready = {Phase.INITIALIZED, Phase.TERMINATING, Phase.DRAINED}
    due = [
        c for c in ledger.claims if c.nominated and c.use != USED and c.phase in ready and c.initialized_at
    ]
    if not due:
        return {}
    hosts = {pod.node for pod in snapshot.pods if pod.node and pod.shape.moves}
    keys = {pod.key for pod in snapshot.pods if not pod.node}
    waiting = keys | {names.of(pod) for pod in snapshot.pods if not pod.node}
    use_by_claim: dict[str, str] = {}
    for claim in due:
        node = snapshot.node_of(claim)
        if node is None or claim.initialized_at is None:
            continue
        last_event = node.last_pod_event_at
        if node.name in hosts or (last_event is not None and last_event >= claim.bought_at):
            use_by_claim[claim.name] = USED
        elif claim.is_ending or now - claim.initialized_at >= JUDGED:
            use_by_claim[claim.name] = (
                WITHDRAWN if waiting.isdisjoint((*claim.nominated, *claim.attempts)) else IN_VAIN
            )
    changed = (c.name for c in due if use_by_claim.get(c.name, c.use) != c.use)
    return {name: use_by_claim[name] for name in islice(changed, MOST_USES)}
