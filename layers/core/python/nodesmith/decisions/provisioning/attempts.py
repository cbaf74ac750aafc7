"""Attempts: nodes that were bought for pods that did not run there, and the wait before the next purchase.

A snapshot does not show what keeps such pods off their nodes: a scheduler plugin, a DaemonSet pod that is larger than
expected, or a controller that preempts the pods or ends the node. Each claim therefore records the number of the
attempt for each workload (pods of one controller with equal scheduling constraints, since an evicted pod is replaced by
another one), and this module judges the purchases themselves. The first two attempts follow each other at once. After
that comes a back-off, and then one node at a time is bought for one pod, until a pod of the workload has stayed for a
minute.

A claim also records how many nodes in a row nodesmith has removed from under the same pods soon after buying them, and
later whether its node was used. The breakers of NodePools rest on both (`decisions.lifecycle.registrations`).

Instances that EC2 takes back, and claims that never became nodes, do not count: they have back-offs of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto
from operator import itemgetter

from nodesmith.decisions.provisioning.plan import BACK_OFF, Repetition, RepetitionOf
from nodesmith.decisions.scheduling.existing import by_age
from nodesmith.decisions.scheduling.workloads import Workloads, controller
from nodesmith.decisions.termination.waiting import EXPIRED
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.karpenter.nodeclaims import WITHDRAWN, NodeClaim
from nodesmith.model.kubernetes.pods import Pod, Reason
from nodesmith.model.ledger.breakers import FREE_ATTEMPTS, LONGEST_WAIT, MOST_IN_VAIN, wait_after
from nodesmith.model.ledger.ledger import Departure, Ledger, counts_as_attempt
from nodesmith.model.ledger.moves import Reason as MoveReason
from nodesmith.model.snapshot import Snapshot

STAYED = timedelta(minutes=1)
"""How long after its node's initialization a pod must be there to count as running."""
REMEMBERED = timedelta(hours=50)
"""Older purchases have no effect on the next one."""
_GRACE = timedelta(minutes=5)
_RETURNED, _RETURNED_TO_EMPTY = timedelta(minutes=5), timedelta(minutes=1)
"""How long after its node began to end a pod without a node counts as one that lost it, or lacks an empty node."""
_SOON: Mapping[str, timedelta] = {
    MoveReason.UNDERUTILIZED: timedelta(hours=1),
    MoveReason.UNBALANCED: timedelta(hours=1),
    MoveReason.DRIFTED: timedelta(hours=3),
    MoveReason.EMPTY: timedelta(minutes=10),
    EXPIRED: timedelta(minutes=20),
}
"""Cause of an end that nodesmith chose → the age of a node up to which that was soon after its purchase."""
_FIX = (
    "find out what keeps its pods off new nodes (`kubectl get events`); pods of a new ReplicaSet, or with another spec,"
    " get nodes at once, and so do all once the NodePool or its annotation nodesmith.dev/reset-launches is changed"
)


@dataclass(frozen=True, slots=True)
class AttemptHistory:
    """The attempts for a workload: how many in a row have `failed`, and `until` when nothing is bought for it.

    `trial` is the NodeClaim, if any, that tests whether the pods run now. `known_at` is when a pod on its Node will
    have stayed.
    """

    failed: int = 0
    until: datetime | None = None
    trial: str = ""
    known_at: datetime | None = None

    @property
    def due(self) -> datetime | None:
        """When time alone ends the wait, None if only an event does, above all one about the trial's Node."""
        return self.known_at if self.trial else self.until

    @property
    def is_on_trial(self) -> bool:
        """Whether so many attempts have failed that at most one node is bought, for one pod."""
        return self.failed >= FREE_ATTEMPTS

    def waits(self, now: datetime) -> bool:
        """Return whether nothing is bought for the workload's pods now."""
        return self.is_on_trial and (bool(self.trial) or (self.until is not None and now < self.until))


@dataclass(frozen=True, slots=True)
class _Purchase:
    """A node that was bought for a workload; `ready_at` is None until it is ready.

    `withdrawn` is True if no pod waited for it then, so that it says little about pods that come later.
    """

    claim: str
    at: datetime
    attempt: int
    ready_at: datetime | None
    served: bool
    withdrawn: bool = False

    @property
    def is_trial(self) -> bool:
        """Whether it was made for one pod, to test whether such pods run now."""
        return self.attempt > FREE_ATTEMPTS


class Verdict(Enum):
    """The result of a purchase: pods ran, or none did although they waited, or it is not known yet."""

    RAN = auto()
    FAILED = auto()
    OPEN = auto()


def histories(
    pods: Iterable[Pod],
    expecting: Iterable[tuple[str, Pod]],
    ledger: Ledger,
    snapshot: Snapshot,
    now: datetime,
    names: Workloads,
) -> dict[str, AttemptHistory]:
    """Return the attempt histories of the workloads of `pods`, by name, if nodes were bought for them before.

    `pods` have no node. `expecting` are names of NodeClaims with pods that may still run there.
    """
    is_known = any(claim.attempts for claim in ledger.claims)
    if not is_known and not any(departure.attempts for departure in ledger.departures):
        return {}
    oldest: dict[str, datetime] = {}
    for pod in pods:
        workload = names.of(pod)
        oldest[workload] = min(pod.created_at, oldest.get(workload, pod.created_at))
    purchases: dict[str, list[_Purchase]] = {}
    for workload, purchase in _purchases(ledger, oldest, now - REMEMBERED):
        purchases.setdefault(workload, []).append(purchase)
    if not purchases:
        return {}
    claims = {purchase.claim for mine in purchases.values() for purchase in mine}
    hosted = {(claim.name, names.controller_of(pod)) for claim, pod in _pods_on(claims, ledger, snapshot)}
    expected = {(claim, names.controller_of(pod)) for claim, pod in expecting if claim in claims}
    by_workload: dict[str, AttemptHistory] = {}
    for workload, mine in sorted(purchases.items()):
        owner = controller(workload)
        judged = [
            (
                _judge(
                    purchase,
                    oldest[workload],
                    (purchase.claim, owner) in hosted,
                    (purchase.claim, owner) in expected,
                    now,
                ),
                purchase,
            )
            for purchase in mine
        ]
        by_workload[workload] = _history(judged)
    return by_workload


def _purchases(
    ledger: Ledger, workloads: Collection[str], since: datetime
) -> Iterator[tuple[str, _Purchase]]:
    resets = {name: at for name, health in ledger.health.items() if (at := health.reset_at) is not None}
    purchases: list[tuple[NodeClaim | Departure, str, datetime | None, datetime | None]]
    purchases = [(c, c.name, c.bought_at, c.terminating_at) for c in ledger.claims if counts_as_attempt(c)]
    purchases += [
        (departure, departure.claim, departure.bought_at, departure.at) for departure in ledger.departures
    ]
    for record, name, at, ended_at in purchases:
        if at is None or at < max(since, resets.get(record.nodepool, since)):
            continue
        ready_at, withdrawn = record.initialized_at or ended_at, record.use == WITHDRAWN
        for workload, attempt in record.attempts.items():
            if workload in workloads:
                served = workload in record.served
                yield workload, _Purchase(name, at, attempt, ready_at, served, withdrawn)


def _pods_on(names: Collection[str], ledger: Ledger, snapshot: Snapshot) -> Iterator[tuple[NodeClaim, Pod]]:
    """Yield the pods on the Nodes of the named claims, except those that are terminating."""
    pairs = ((claim, snapshot.node_of(claim)) for claim in ledger.claims if claim.name in names)
    nodes = {node.name: claim for claim, node in pairs if node is not None}
    for pod in snapshot.pods if nodes else ():
        if pod.node in nodes and not pod.deleting:
            yield nodes[pod.node], pod


def _judge(purchase: _Purchase, oldest: datetime, hosts: bool, is_expecting: bool, now: datetime) -> Verdict:
    """Judge a purchase. `oldest` is the creation time of the workload's oldest pod without a node."""
    if purchase.served:
        return Verdict.RAN
    if purchase.ready_at is None or is_expecting:
        return Verdict.OPEN
    if hosts:
        return Verdict.RAN if now - purchase.ready_at >= STAYED else Verdict.OPEN
    # Pods that were created after the node was ready and the back-off had ended do not count against the purchase.
    wait = min(wait_after(purchase.attempt), _GRACE if purchase.withdrawn else LONGEST_WAIT)
    waited_until = max(purchase.ready_at, purchase.at + wait) + STAYED
    return Verdict.FAILED if oldest <= waited_until else Verdict.RAN


def _history(judged: Sequence[tuple[Verdict, _Purchase]]) -> AttemptHistory:
    """Summarize the purchases that were made after the last one on which pods ran."""
    ran = max((purchase.at for verdict, purchase in judged if verdict is Verdict.RAN), default=None)
    later = [(verdict, purchase) for verdict, purchase in judged if ran is None or purchase.at > ran]
    failed = [purchase for verdict, purchase in later if verdict is Verdict.FAILED]
    open_trials = [purchase for verdict, purchase in later if verdict is Verdict.OPEN and purchase.is_trial]
    trial = max(open_trials, key=lambda purchase: (purchase.at, purchase.claim), default=None)
    ready_at = trial.ready_at if trial is not None else None
    return AttemptHistory(
        failed=max((0, *(purchase.attempt - (verdict is Verdict.OPEN) for verdict, purchase in later))),
        until=max((purchase.at + wait_after(purchase.attempt) for purchase in failed), default=None),
        trial=trial.claim if trial is not None else "",
        known_at=ready_at + STAYED if ready_at is not None else None,
    )


def stayed(ledger: Ledger, snapshot: Snapshot, now: datetime, names: Workloads) -> dict[str, tuple[str, ...]]:
    """Return the new value of `served` by NodeClaim: the workloads whose pods have stayed after repeated attempts.

    First attempts are left out, since no wait follows them.
    """
    due = {
        claim.name: claim
        for claim in ledger.claims
        if claim.initialized_at is not None
        and not claim.is_ending
        and now - claim.initialized_at >= STAYED
        and any(attempt > 1 and owner not in claim.served for owner, attempt in claim.attempts.items())
    }
    served_by_claim: dict[str, set[str]] = {}
    for claim, pod in _pods_on(due, ledger, snapshot):
        owner = names.controller_of(pod)
        mine = {name for name, attempt in claim.attempts.items() if attempt > 1 and controller(name) == owner}
        served_by_claim.setdefault(claim.name, set(claim.served)).update(mine)
    return {
        name: tuple(sorted(served))
        for name, served in sorted(served_by_claim.items())
        if len(served) > len(due[name].served)
    }


def removed_soon(bought_at: datetime, at: datetime, cause: str, again: int) -> bool:
    """Return whether nodesmith chose to end a node soon after it was bought, or again while it is known to loop."""
    within = _SOON.get(cause)
    if within is None:
        return False
    return at - bought_at <= (REMEMBERED if again >= MOST_IN_VAIN else within)


def _returned(cause: str) -> timedelta:
    return _RETURNED_TO_EMPTY if cause == MoveReason.EMPTY else _RETURNED


@dataclass(frozen=True, slots=True)
class _Removed:
    """How many nodes in a row nodesmith has removed from under pods, by the node and by the workload."""

    by_node: Mapping[str, int]
    by_workload: Mapping[str, int]

    @classmethod
    def of(cls, ledger: Ledger, now: datetime) -> _Removed:
        """Return what ends or is about to, and what has ended a moment ago."""
        by_node: dict[str, int] = {}
        rows: list[tuple[int, Mapping[str, int]]] = []
        moving = {name: str(m.reason) for m in ledger.moves if not m.is_over for name in m.sources}
        for claim in ledger.claims:
            at = claim.terminating_at or now
            cause = claim.cause if claim.is_ending else moving.get(claim.name, "")
            if removed_soon(claim.bought_at, at, cause, claim.removals_before):
                by_node[claim.node_name] = claim.removals_before + 1
                if now - at <= _returned(cause):
                    rows.append((claim.removals_before + 1, claim.attempts))
        for departure in ledger.departures:
            is_new = departure.bought_at is not None and now - departure.at <= _returned(departure.cause)
            if is_new and removed_soon(
                departure.bought_at or now, departure.at, departure.cause, departure.removals_before
            ):
                rows.append((departure.removals_before + 1, departure.attempts))
        by_workload = {
            workload: row for row, attempts in sorted(rows, key=itemgetter(0)) for workload in attempts
        }
        return cls(by_node, by_workload)

    def under(self, pods: Iterable[Pod], names: Workloads) -> int:
        """Return the longest such row for any of these pods."""
        rows = (self.by_node.get(p.node, 0) if p.node else self.by_workload.get(names.of(p), 0) for p in pods)
        return max(rows, default=0)


@dataclass(frozen=True, slots=True)
class Repeating:
    """The history of workloads that nodes were bought for before, by workload name: see `Workloads`."""

    histories: Mapping[str, AttemptHistory]
    names: Workloads
    now: datetime
    ledger: Ledger = field(default_factory=Ledger)

    def split(self, pods: Iterable[Pod]) -> tuple[list[Pod], list[tuple[Pod, Reason]]]:
        """Split pods into those that may be bought for and those that wait, each with the reason."""
        chosen: list[Pod] = []
        held: list[tuple[Pod, Reason]] = []
        tried: set[str] = set()
        pods = list(pods)
        if not any(history.is_on_trial for history in self.histories.values()):
            return pods, held
        for pod in by_age(pods):
            workload = self.names.of(pod)
            history = self.histories.get(workload, AttemptHistory())
            if pod.node or not history.is_on_trial:
                chosen.append(pod)
            elif history.waits(self.now) or workload in tried:
                held.append((pod, _reason(pod, history, self.now)))
            else:
                tried.add(workload)
                chosen.append(pod)
        return chosen, held

    def due(self, held: Iterable[tuple[Pod, Reason]]) -> datetime | None:
        """Return when the first of the waiting pods may be tried again; None if no time is known."""
        waiting = {self.names.of(pod) for pod, _ in held}
        dues = (self.histories.get(workload, AttemptHistory()).due for workload in waiting)
        return min((due for due in dues if due is not None and due > self.now), default=None)

    def repetition_of(self) -> RepetitionOf:
        """Return a function that returns the repetition of the pods of a node."""
        removed = _Removed.of(self.ledger, self.now)

        def of(pods: Iterable[Pod]) -> Repetition:
            mine = list(pods)
            moved = {self.names.of(pod): 0 for pod in mine if pod.node}
            return Repetition(FrozenMap({**moved, **self.attempts_of(mine)}), removed.under(mine, self.names))

        return of

    def attempts_of(self, pods: Iterable[Pod]) -> FrozenMap[int]:
        """Return the attempt number of each workload of `pods`, without pods that still have a node."""
        known, workloads = self.histories, {self.names.of(pod) for pod in pods if not pod.node}
        return FrozenMap({w: known[w].failed + 1 if w in known else 1 for w in sorted(workloads)})


def _reason(pod: Pod, history: AttemptHistory, now: datetime) -> Reason:
    workload = pod.shape.owner or "the pod"
    text = f"nodes were bought {history.failed} times for {workload}, and none of its pods stayed on one for a minute"
    if history.trial:
        text += f"; it is tried with one node, NodeClaim {history.trial}"
    elif history.waits(now):
        text += f"; tried again after {history.until:%H:%M:%S} UTC"
    else:
        text += "; it is tried with one pod first"
    return Reason(text, blocking=BACK_OFF, fix=_FIX)
