"""Attempts: nodes that were bought for pods that did not run there, and the wait before the next purchase.

A snapshot does not show what keeps such pods off their nodes: a scheduler plugin, a DaemonSet pod that is larger than
expected, or a controller that preempts the pods or ends the node. Each claim therefore records the number of the
attempt for each workload (pods of one controller with equal scheduling constraints, since an evicted pod is replaced by
another one), and this module judges the purchases themselves. The first two attempts follow each other at once. After
that comes a back-off, and then one node at a time is bought for one pod, until a pod of the workload has stayed for a
minute.

Instances that EC2 takes back, and claims that never became nodes, do not count: they have back-offs of their own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from json.encoder import encode_basestring_ascii
from typing import Any

from nodesmith.decisions.provisioning.plan import BACK_OFF, PlannedNode
from nodesmith.decisions.scheduling.existing import by_age
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.ec2.capacity import ATTACHABLE
from nodesmith.model.karpenter.nodeclaims import NodeClaim, write_requirements
from nodesmith.model.kubernetes.devices import DEVICES
from nodesmith.model.kubernetes.pods import Pod, Reason, Shape
from nodesmith.model.ledger.ledger import Ledger, counts_as_attempt
from nodesmith.model.snapshot import Snapshot

FREE_ATTEMPTS = 2
"""How often nodes are bought for the same pods without a wait."""
FIRST_WAIT, LONGEST_WAIT = timedelta(minutes=2), timedelta(hours=1)
"""The wait between the second and third purchase, a minute of which a node needs to be ready; it doubles each time."""
STAYED = timedelta(minutes=1)
"""How long after its node's initialization a pod must be there to count as running."""
REMEMBERED = timedelta(hours=3)
"""Older purchases have no effect on the next one."""
_FIX = (
    "find out what keeps its pods off new nodes (`kubectl get events`); pods of a new ReplicaSet, or with another spec,"
    " get nodes at once"
)
_DIGITS = 8
_JSON = json.JSONEncoder(sort_keys=True)


def wait_after(attempt: int) -> timedelta:
    """Return how long after the purchase of a failed attempt the next one may follow."""
    if attempt < FREE_ATTEMPTS:
        return timedelta()
    doubled: int = 2 ** min(attempt - FREE_ATTEMPTS, 10)
    return min(LONGEST_WAIT, FIRST_WAIT * doubled)


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
    """A node that was bought for a workload; `ready_at` is None until it is ready."""

    claim: str
    at: datetime
    attempt: int
    ready_at: datetime | None
    served: bool

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
    if not is_known and not any(gone.attempts for gone in ledger.departures):
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
    found: dict[str, AttemptHistory] = {}
    for workload, mine in sorted(purchases.items()):
        who = controller(workload)
        judged = [
            (
                _judge(
                    each, oldest[workload], (each.claim, who) in hosted, (each.claim, who) in expected, now
                ),
                each,
            )
            for each in mine
        ]
        found[workload] = _history(judged)
    return found


def _purchases(
    ledger: Ledger, workloads: Collection[str], since: datetime
) -> Iterator[tuple[str, _Purchase]]:
    for claim in ledger.claims:
        if claim.bought_at < since or not counts_as_attempt(claim):
            continue
        for workload, attempt in claim.attempts.items():
            if workload in workloads:
                ready_at, served = claim.initialized_at or claim.terminating_at, workload in claim.served
                yield workload, _Purchase(claim.name, claim.bought_at, attempt, ready_at, served)
    for gone in ledger.departures:
        if gone.bought_at is None or gone.bought_at < since:
            continue
        for workload, attempt in gone.attempts.items():
            if workload in workloads:
                ready_at, served = gone.initialized_at or gone.at, workload in gone.served
                yield workload, _Purchase(gone.claim, gone.bought_at, attempt, ready_at, served)


def _pods_on(names: Collection[str], ledger: Ledger, snapshot: Snapshot) -> Iterator[tuple[NodeClaim, Pod]]:
    """Yield the pods on the Nodes of the named claims, except those that are terminating."""
    found = ((claim, snapshot.node_of(claim)) for claim in ledger.claims if claim.name in names)
    nodes = {node.name: claim for claim, node in found if node is not None}
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
    waited_until = max(purchase.ready_at, purchase.at + wait_after(purchase.attempt)) + STAYED
    return Verdict.FAILED if oldest <= waited_until else Verdict.RAN


def _history(judged: Sequence[tuple[Verdict, _Purchase]]) -> AttemptHistory:
    """Summarize the purchases that were made after the last one on which pods ran."""
    ran = [each.at for verdict, each in judged if verdict is Verdict.RAN]
    later = [(verdict, each) for verdict, each in judged if not ran or each.at > max(ran)]
    failed = [each for verdict, each in later if verdict is Verdict.FAILED]
    open_trials = [each for verdict, each in later if verdict is Verdict.OPEN and each.is_trial]
    trial = max(open_trials, key=lambda each: (each.at, each.claim), default=None)
    ready_at = trial.ready_at if trial is not None else None
    return AttemptHistory(
        failed=max((each.attempt - (verdict is Verdict.OPEN) for verdict, each in later), default=0),
        until=max((each.at + wait_after(each.attempt) for each in failed), default=None),
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
        and any(attempt > 1 and who not in claim.served for who, attempt in claim.attempts.items())
    }
    found: dict[str, set[str]] = {}
    for claim, pod in _pods_on(due, ledger, snapshot):
        who = names.controller_of(pod)
        mine = {name for name, attempt in claim.attempts.items() if attempt > 1 and controller(name) == who}
        found.setdefault(claim.name, set(claim.served)).update(mine)
    return {
        name: tuple(sorted(served))
        for name, served in sorted(found.items())
        if len(served) > len(due[name].served)
    }


@dataclass(frozen=True, slots=True)
class Repeating:
    """The history of workloads that nodes were bought for before, by workload name: see `Workloads`."""

    histories: Mapping[str, AttemptHistory]
    names: Workloads
    now: datetime

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

    def noted(self, nodes: Sequence[PlannedNode], pods: Iterable[Pod]) -> tuple[PlannedNode, ...]:
        """Return the nodes to buy with the attempt number of each workload in their claims.

        Pods that still have a node are not counted: they run.
        """
        workloads = {pod.key: self.names.of(pod) for pod in pods if not pod.node}
        return tuple(self._noted(node, workloads) for node in nodes)

    def attempts_of(self, pods: Iterable[Pod]) -> FrozenMap[int]:
        """Return the attempt number of each workload of `pods`, without pods that still have a node."""
        return self._attempts({self.names.of(pod) for pod in pods if not pod.node})

    def _attempts(self, workloads: Iterable[str]) -> FrozenMap[int]:
        known = self.histories
        return FrozenMap({w: known[w].failed + 1 if w in known else 1 for w in sorted(workloads)})

    def _noted(self, node: PlannedNode, workloads: Mapping[str, str]) -> PlannedNode:
        attempts = self._attempts({workloads[pod] for pod in node.claim.nominated if pod in workloads})
        return replace(node, claim=replace(node.claim, attempts=attempts))


def _reason(pod: Pod, history: AttemptHistory, now: datetime) -> Reason:
    whose = pod.shape.owner or "the pod"
    text = f"nodes were bought {history.failed} times for {whose}, and none of its pods stayed on one for a minute"
    if history.trial:
        text += f"; it is tried with one node, NodeClaim {history.trial}"
    elif history.waits(now):
        text += f"; tried again after {history.until:%H:%M:%S} UTC"
    else:
        text += "; it is tried with one pod first"
    return Reason(text, blocking=BACK_OFF, fix=_FIX)


class Workloads:
    """Names workloads: `controller-constraints`, both as digests. Each shape is processed once."""

    def __init__(self) -> None:
        self._asked: dict[Shape, str] = {}
        self._alike: dict[tuple[object, ...], str] = {}
        self._owners: dict[tuple[str, str], str] = {}

    def of(self, pod: Pod) -> str:
        """Return the name of a pod's workload. A pod without a controller is a workload of its own."""
        asked = self._asked.get(pod.shape)
        if asked is None:
            asked = self._asked[pod.shape] = self._digest_of(pod.shape)
        return f"{self.controller_of(pod)}-{asked}"

    def _digest_of(self, shape: Shape) -> str:
        """Return the digest of a shape's constraints; shapes that differ only in labels and selectors share it."""
        alike = (
            tuple(shape.requests.items()),
            shape.own_terms,
            shape.tolerations,
            shape.host_ports,
            tuple([(s.topology_key, s.max_skew, s.hard) for s in shape.spreads]),
            tuple([(a.topology_key, a.anti, a.weight) for a in shape.affinities]),
            shape.priority,
        )
        if alike not in self._alike:
            self._alike[alike] = _digest(_asked(shape))
        return self._alike[alike]

    def controller_of(self, pod: Pod) -> str:
        """Return the first part of the names of all workloads of a pod's controller (see `controller`)."""
        owner = pod.shape.namespace, pod.shape.owner or pod.key
        found = self._owners.get(owner)
        if found is None:
            text = ", ".join(map(encode_basestring_ascii, owner))  # several times faster than the encoder
            found = self._owners[owner] = _hashed(f"[{text}]")
        return found


def controller(workload: str) -> str:
    """Return the part of a workload's name that identifies its controller."""
    return workload.partition("-")[0]


def _digest(value: object) -> str:
    return _hashed(_JSON.encode(value))


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _asked(shape: Shape) -> dict[str, Any]:
    """Return what determines where pods may run, except what differs between pods: volumes and labels with names."""
    requests = shape.requests.nonzero().items()
    return {
        "requests": {name: amount for name, amount in requests if not name.startswith((ATTACHABLE, DEVICES))},
        "terms": [write_requirements(term) for term in shape.own_terms],
        "tolerations": [[t.key, t.operator, t.value, t.effect] for t in shape.tolerations],
        "ports": shape.host_ports,
        "spreads": [[s.topology_key, s.max_skew, s.hard] for s in shape.spreads],
        "affinities": [[a.topology_key, a.anti, a.weight] for a in shape.affinities],
        "priority": shape.priority,
    }
