"""Interruption: which claims must end because of EC2's notices, by when, and which offerings are not bought meanwhile.

If the interruption is certain, the claim's termination begins at once, regardless of budgets; its deadline is the
moment at which EC2 takes the instance. If it is announced for a date, or only likely, it begins within the NodePool's
disruption budgets. While they allow none, every sweep checks a date again until shortly before it. A recommendation
cannot be asked for again.

The costs of interruptions are how long it took until nodes were replaced and empty, and how many pods were killed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from nodesmith.decisions.budgets import remaining
from nodesmith.decisions.termination.evictions import must_go
from nodesmith.decisions.termination.waiting import WARNED
from nodesmith.model.apimachinery.labels import RESERVATION_ID
from nodesmith.model.commands import Advance, DeletePods, Release, TerminateInstances, TerminationCommand
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.ec2.notices import BLOCK_WARNING, WARNING, InterruptionCause, Notice, expiry
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool, Rebalance
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.learned import Backoff, Risk, next_backoff
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot

LAST_CALL = timedelta(minutes=30)
"""How long before the date of a scheduled change the budgets stop counting."""
_JOINED = frozenset({Phase.REGISTERED, Phase.INITIALIZED})
_RUNNING = _JOINED | {Phase.LAUNCHED}
_CLOSED_POOLS = frozenset(
    {
        InterruptionCause.SPOT,
        InterruptionCause.RESERVATION,
        InterruptionCause.EXPIRING,
        InterruptionCause.REBALANCE,
    }
)
"""Notices that concern the capacity pool, not just one machine."""
_WITHDRAWN = frozenset({InterruptionCause.SPOT, InterruptionCause.RESERVATION, InterruptionCause.REBALANCE})
"""Notices that count as interruptions by the capacity pool. A reservation that ends at its date does not."""
_ORDER = {cause: number for number, cause in enumerate(InterruptionCause)}
CAPACITY_BLOCK = "capacity-block"
_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(slots=True)
class Answer:
    """The decision about notices. `changed` are the claims to save.

    `unavailable` must be saved before any of them. `terminating` are the names of all claims whose pods need another
    node now, including those of earlier notices, since a run may have died between its commit and the launch. `to_wake`
    are the concerns that handle instances that are gone. `interrupted` are the capacity pools of claims, by claim name,
    if the pool interrupted them. `put_off_until` is the first moment at which a postponed notice no longer waits for
    budgets. `counts` are reported.
    """

    changed: list[NodeClaim] = field(default_factory=list)
    unavailable: dict[OfferingKey, Backoff] = field(default_factory=dict)
    terminating: list[str] = field(default_factory=list)
    to_wake: set[Concern] = field(default_factory=set)
    interrupted: dict[str, OfferingKey] = field(default_factory=dict)
    put_off_until: datetime | None = None
    counts: Counter[str] = field(default_factory=Counter)


def answer(
    notices: Iterable[Notice],
    ledger: Ledger,
    pools: Mapping[str, NodePool],
    snapshot: Snapshot | None,
    now: datetime,
) -> Answer:
    """Decide about all notices together. Notices for instances of others are only counted.

    `pools` are the valid NodePools by name. They and the snapshot matter for uncertain notices only.
    """
    response, away = Answer(), ledger.shifted(now)
    by_instance = {claim.instance_id: claim for claim in ledger.claims if claim.instance_id}
    for instance, notice in sorted(_most_important(notices).items()):
        claim = by_instance.get(instance)
        if claim is None:
            response.counts["NoticesOfOthers"] += 1
            continue
        if _is_of_its_stop(notice, claim):
            response.counts["NoticesOfStops"] += 1
            continue
        if notice.cause is InterruptionCause.IMPAIRED and claim.zone in away:
            # Most likely the zone is to blame. EC2 is asked again on the next tick.
            response.counts["NoticesPutOff"] += 1
            continue
        response.counts[notice.cause] += 1
        if notice.cause.is_certain:
            _end(response, claim, notice, ledger, now)
        elif claim.phase is Phase.INITIALIZED:
            _end_within_budgets(response, claim, notice, ledger, pools.get(claim.nodepool), snapshot, now)
    return response


def _is_of_its_stop(notice: Notice, claim: NodeClaim) -> bool:
    """Return whether a notice is about a stop that nodesmith has requested itself and already knows.

    Events may be late: one about the stop of an instance that has been started since must not end its node.
    """
    if notice.cause is not InterruptionCause.STOPPED:
        return False
    occurred_at = notice.occurred_at or notice.until
    is_late = claim.started_at is not None and occurred_at is not None and occurred_at < claim.started_at
    return claim.phase is Phase.STOPPED or is_late


def of_instances(notice: Notice, claims: Iterable[NodeClaim]) -> list[Notice]:
    """Return one notice per instance. A notice about a reservation concerns all instances of ours that run in it."""
    if not notice.reservation_id:
        return [notice]
    inside = [
        claim.instance_id
        for claim in claims
        if claim.instance_id and claim.labels.get(RESERVATION_ID) == notice.reservation_id
    ]
    return [replace(notice, instance_id=instance) for instance in inside] or [notice]


def expiries(ledger: Ledger, now: datetime) -> list[Notice]:
    """Return notices for the Capacity Blocks that end soon and have instances of ours, even if EC2 sent no warning.

    When other reservations end, their instances continue to run as on-demand instances.
    """
    ends = _block_ends(ledger, (claim for claim in ledger.claims if claim.instance_id))
    return [expiry(id_, at) for id_, at in sorted(ends.items()) if at - now <= BLOCK_WARNING]


def next_expiry(ledger: Ledger, ending: Collection[str]) -> datetime | None:
    """Return when `expiries` next reports a block in which nodes stay. Nodes of the claims `ending` do not count."""
    staying = (c for c in ledger.claims if c.phase in _RUNNING and c.name not in ending)
    return min((at - BLOCK_WARNING for at in _block_ends(ledger, staying).values()), default=None)


def _block_ends(ledger: Ledger, claims: Iterable[NodeClaim]) -> dict[str, datetime]:
    """Return the end times of the Capacity Blocks that these claims run in, by reservation id."""
    reservations_in_use = {claim.labels.get(RESERVATION_ID) for claim in claims}
    return {
        reservation.id: reservation.ends_at
        for status in ledger.nodeclasses.values()
        for reservation in status.capacity_reservations
        if reservation.kind == CAPACITY_BLOCK
        and reservation.id in reservations_in_use
        and reservation.ends_at is not None
    }


def risks_after(
    interrupted: Mapping[str, OfferingKey], ledger: Ledger, now: datetime
) -> dict[OfferingKey, Risk]:
    """Return the updated risks of the capacity pools that have `interrupted` claims (pool by claim name).

    `ledger` is as it was before the interruptions.
    """
    nodes = Counter(_pool(claim) for claim in ledger.claims if claim.phase in _RUNNING)
    return {
        pool: ledger.risks.get(pool, Risk(0.0, now)).after(min(1.0, count / max(1, nodes[pool])), now)
        for pool, count in sorted(Counter(interrupted.values()).items())
    }


def _pool(claim: NodeClaim) -> OfferingKey:
    return OfferingKey(claim.capacity_type, claim.instance_type, claim.zone)


def _most_important(notices: Iterable[Notice]) -> dict[str, Notice]:
    """Return the most important notice for each instance: the most certain, then the earliest."""
    response: dict[str, Notice] = {}
    for notice in notices:
        earlier = response.get(notice.instance_id)
        if earlier is None or _urgency(notice) < _urgency(earlier):
            response[notice.instance_id] = notice
    return response


def _urgency(notice: Notice) -> tuple[int, datetime]:
    return _ORDER[notice.cause], notice.until or _NEVER


def _end(response: Answer, claim: NodeClaim, notice: Notice, ledger: Ledger, now: datetime) -> None:
    """Begin to end a claim by the time of the notice, which also bounds a termination that has already begun.

    An instance that is gone before it joined is left to lifecycle, which reports the reason and backs off.
    """
    deadline = now if notice.cause.is_over else notice.until
    if notice.cause.is_over and claim.phase not in _JOINED:
        response.to_wake.add(Concern.TERMINATION if claim.is_ending else Concern.LIFECYCLE)
    if claim.phase in (_JOINED if notice.cause.is_over else _RUNNING):
        _begin(response, claim, notice, ledger, now, deadline)
    elif claim.is_ending and not claim.is_instance_terminating:
        if claim.phase is Phase.TERMINATING:
            response.terminating.append(claim.name)
        if deadline is not None and (claim.deadline is None or deadline < claim.deadline):
            _remember(response, claim, notice, ledger, now)
            response.changed.append(replace(claim, deadline=deadline))


def _end_within_budgets(
    response: Answer,
    claim: NodeClaim,
    notice: Notice,
    ledger: Ledger,
    pool: NodePool | None,
    snapshot: Snapshot | None,
    now: datetime,
) -> None:
    ignores = pool is None or pool.options.rebalance is Rebalance.IGNORE
    if notice.cause is InterruptionCause.REBALANCE and (ignores or claim.zone in ledger.shifted(now)):
        return
    is_pressing = notice.until is not None and now >= notice.until - LAST_CALL
    if not is_pressing and (
        snapshot is None or not _is_allowed(response, notice, ledger, pool, snapshot, now)
    ):
        response.counts["NoticesPutOff"] += 1
        if notice.until is not None:
            response.put_off_until = min(notice.until - LAST_CALL, response.put_off_until or _NEVER)
        return
    # After the date has passed there is no reason to hurry.
    deadline = notice.until and max(notice.until, now + LAST_CALL)
    _begin(response, claim, notice, ledger, now, deadline)


def _begin(
    response: Answer,
    claim: NodeClaim,
    notice: Notice,
    ledger: Ledger,
    now: datetime,
    deadline: datetime | None,
) -> None:
    _remember(response, claim, notice, ledger, now)
    response.changed.append(claim.terminating(notice.cause, notice.message, now, deadline))
    response.terminating.append(claim.name)
    if notice.cause in _WITHDRAWN and claim.instance_type:
        response.interrupted[claim.name] = _pool(claim)


def _is_allowed(
    response: Answer,
    notice: Notice,
    ledger: Ledger,
    pool: NodePool | None,
    snapshot: Snapshot,
    now: datetime,
) -> bool:
    """Return whether budgets allow one more node to go. A node without a NodePool has none, and stays for now."""
    if pool is None:
        return False
    names = frozenset(response.terminating)
    allowance = remaining(
        pool, notice.cause, ledger, [c for c in ledger.claims if c.name in names], snapshot, now
    )
    return allowance is None or allowance > 0


def _remember(response: Answer, claim: NodeClaim, notice: Notice, ledger: Ledger, now: datetime) -> None:
    """Back off from the capacity pool, at least until the time of the notice, and longer the more often it interrupts.

    Notices that do not concern the pool change nothing.
    """
    if notice.cause not in _CLOSED_POOLS or not claim.instance_type:
        return
    pool = _pool(claim)
    backoff = response.unavailable.get(pool) or next_backoff(ledger.unavailable.get(pool), notice.cause, now)
    response.unavailable[pool] = replace(backoff, until=max(backoff.until, notice.until or now))


_TWO_MINUTES = frozenset({InterruptionCause.SPOT, InterruptionCause.RESERVATION})
"""Notices that come two minutes before the deadline. For others, the time at which nodesmith read the notice counts."""


@dataclass(frozen=True, slots=True)
class InterruptionCosts:
    """The costs in one look: seconds since the notice, for each node that has just become empty.

    They are counted until its replacements were `launched` and `ready`, if any were bought, and until it was `drained`.
    `killed` is the number of pods that did not get their full grace period although EC2 had given notice.
    """

    launched: tuple[float, ...] = ()
    ready: tuple[float, ...] = ()
    drained: tuple[float, ...] = ()
    killed: int = 0


def interruption_costs(
    commands: Iterable[TerminationCommand], claims: Sequence[NodeClaim], snapshot: Snapshot, now: datetime
) -> InterruptionCosts:
    """Return the costs of interruptions that the commands of one look show."""
    pods = {pod.key: pod for pod in snapshot.pods}
    launched: list[float] = []
    ready: list[float] = []
    drained: list[float] = []
    killed = 0
    for command in commands:
        claim = command.claim
        if claim.cause not in WARNED:
            continue
        match command:
            case DeletePods():
                killed += sum(
                    _is_cut_short(pods.get(eviction.pod), eviction.grace_seconds) for eviction in command.pods
                )
            case Release() if claim.instance_gone_at == now:
                killed += sum(_is_killed_early(pod, now) for pod in snapshot.pods_on(command.node))
            case Advance() | TerminateInstances() if claim.drained_at == now:
                noticed, plan = noticed_at(claim, now), _bought_for(claim, claims)
                drained.append((now - noticed).total_seconds())
                launched += _seconds_to_last(
                    (replacement.started_at or replacement.launched_at for replacement in plan), noticed
                )
                ready += _seconds_to_last((replacement.initialized_at for replacement in plan), noticed)
            case _:
                pass
    return InterruptionCosts(tuple(launched), tuple(ready), tuple(drained), killed)


def noticed_at(claim: NodeClaim, now: datetime) -> datetime:
    """Return when EC2 gave notice of a claim's interruption, as far as is known.

    A past deadline is not used, since it may be the moment at which the instance was gone.
    """
    ending_since = claim.terminating_at or claim.phase_since
    if claim.cause in _TWO_MINUTES and claim.deadline is not None and claim.deadline > now:
        return min(ending_since, claim.deadline - WARNING)
    return ending_since


def displaced(claims: Iterable[NodeClaim], now: datetime) -> datetime | None:
    """Return since when pods may be without a node because EC2 takes theirs, None if it takes none."""
    return min((noticed_at(c, now) for c in claims if c.is_ending and c.cause in WARNED), default=None)


def waiting_since(moment: datetime, pods: Iterable[Pod]) -> int:
    """Return the number of pods without a node that were created at or after `moment`."""
    return sum(
        not pod.node and not pod.deleting and not pod.shape.is_daemon and pod.created_at >= moment
        for pod in pods
    )


def _bought_for(claim: NodeClaim, claims: Iterable[NodeClaim]) -> list[NodeClaim]:
    """Return the claims that the first decision after the notice has bought or started."""
    since = claim.terminating_at or claim.phase_since
    later = sorted((c for c in claims if c.bought_at >= since), key=lambda c: (c.bought_at, c.name))
    return [c for c in later if c.decision == later[0].decision]


def _seconds_to_last(moments: Iterable[datetime | None], since: datetime) -> list[float]:
    """Return the seconds from `since` to the last of `moments`; empty if one is None, or if there are none."""
    all_moments = list(moments)
    reached = [at for at in all_moments if at is not None]
    return [(max(reached) - since).total_seconds()] if reached and len(reached) == len(all_moments) else []


def _is_cut_short(pod: Pod | None, grace_seconds: int | None) -> bool:
    return pod is not None and grace_seconds is not None and grace_seconds < pod.shape.grace_seconds


def _is_killed_early(pod: Pod, now: datetime) -> bool:
    """Return whether a pod's grace period is not over when its instance is gone."""
    return must_go(pod.shape) and pod.deletion_at is not None and pod.deletion_at > now
