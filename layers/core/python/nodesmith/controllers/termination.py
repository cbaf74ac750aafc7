"""The controller of termination: take each ending claim one step further. A failure does not affect other claims.

It also measures what drains show: how long they take, Karpenter's metrics on drained pods, and what interruptions cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from nodesmith.controllers.observation import newest_snapshot
from nodesmith.controllers.runs import (
    ClusterPorts,
    Report,
    SelfHints,
    Spread,
    each,
    failed,
    in_turn,
    wait_until,
)
from nodesmith.decisions.disruption.interruption import displaced, interruption_costs, waiting_since
from nodesmith.decisions.reporting.events import of_evictions
from nodesmith.decisions.takeover import standby
from nodesmith.decisions.termination import next_steps, to_check, to_end
from nodesmith.decisions.termination.beginning import to_end_later
from nodesmith.decisions.termination.steps import SHORTEST_DRAIN, next_change
from nodesmith.effects import begin_end, carry_out_end, delete_pods, evict, release, terminate
from nodesmith.errors import Failures, Rejected, Transient
from nodesmith.model.apimachinery.problems import ObjectEvent
from nodesmith.model.commands import (
    Advance,
    Close,
    DeletePods,
    End,
    Evict,
    Release,
    SingleEnding,
    TerminateInstances,
    TerminationCommand,
    Wait,
)
from nodesmith.model.functions import Concern, Hint
from nodesmith.model.karpenter.nodeclaimobjects import DELETED
from nodesmith.model.karpenter.nodeclaims import NodeClaim, known_instances
from nodesmith.model.kubernetes.evictions import DENIED, Evicted, Eviction, EvictionRefused, Postponed
from nodesmith.model.ledger.learned import DrainTime, learned_drain_time
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.metrics.metrics import Metrics
from nodesmith.model.snapshot import Snapshot


@dataclass(slots=True)
class Drains:
    """The drains that this process has begun: by claim name, when, and the longest grace period of the pods.

    Drains that another process began are not measured.
    """

    begun: dict[str, tuple[datetime, timedelta]] = field(default_factory=dict)

    def ended(
        self, commands: Sequence[TerminationCommand], snapshot: Snapshot, now: datetime
    ) -> Iterator[tuple[str, timedelta]]:
        """Yield the NodePool of each drain that has just ended, and how much longer than the longest grace it took."""
        evicted = {pod.pod for c in commands if isinstance(c, Evict | DeletePods) for pod in c.pods}
        ending_pods = (pod for pod in snapshot.pods if pod.key in evicted) if evicted else ()
        graces = {pod.key: timedelta(seconds=pod.shape.grace_seconds) for pod in ending_pods}
        for command in commands:
            claim = command.claim
            match command:
                case Evict() | DeletePods():
                    since, longest = self.begun.get(claim.name, (now, timedelta(0)))
                    graces_of_pods = [graces.get(pod.pod, timedelta(0)) for pod in command.pods]
                    self.begun[claim.name] = since, max([longest, *graces_of_pods])
                case Advance() | TerminateInstances() if claim.drained_at == now:
                    since, longest = self.begun.pop(claim.name, (now, timedelta(0)))
                    yield claim.nodepool, now - since - longest
                case _:
                    pass


_FORCEFUL = "Forceful Termination"
"""Karpenter's reason if a node ends only because it was deleted."""


def note_drained(metrics: Metrics, commands: Iterable[Evict], answers: Mapping[str, Eviction]) -> None:
    """Count the pods that end because of these evictions, by the cause of their node's termination."""
    for command in commands:
        responses = [answers.get(pod.pod) for pod in command.pods]
        leaving = sum(isinstance(answer, Evicted) and not answer.before for answer in responses)
        if leaving:
            cause = command.claim.cause
            metrics.count("pods_drained_total", leaving, reason=_FORCEFUL if cause == DELETED else cause)


LONGEST_SILENCE = timedelta(minutes=2)
"""The longest interval between two counts of waiting pods: two ticks. A longer interval is not counted."""


def _ignore(name: str, value: float) -> None:
    """Discard a value."""


@dataclass(slots=True)
class InterruptionMetrics:
    """Passes values to `note`, by name. Names that end in `Seconds` have seconds as their unit, others are counts.

    Kept from run to run: `since` is when pods may have begun to wait because EC2 took their node, `counted_at` when
    they were last counted.
    """

    note: Callable[[str, float], None] = _ignore
    since: datetime | None = None
    counted_at: datetime | None = None

    def count_waiting(self, claims: Sequence[NodeClaim], snapshot: Snapshot, now: datetime) -> None:
        """Count how long pods have been without a node since EC2 took theirs, until none waits any more."""
        begun = displaced(claims, now)
        self.since = begun or self.since
        if self.since is None:
            return
        waiting = waiting_since(self.since, snapshot.pods)
        spent = now - (self.counted_at or now)
        if waiting and spent <= LONGEST_SILENCE:
            self.note("PodPendingSeconds", waiting * spent.total_seconds())
        self.counted_at = now
        if not waiting and begun is None:
            self.since = self.counted_at = None

    def record(
        self,
        commands: Sequence[TerminationCommand],
        claims: Sequence[NodeClaim],
        snapshot: Snapshot,
        now: datetime,
    ) -> None:
        """Record what the commands of one look show about interruptions."""
        costs = interruption_costs(commands, claims, snapshot, now)
        took = {"Launched": costs.launched, "Ready": costs.ready, "Drained": costs.drained}
        for step, spans in took.items():
            for seconds in spans:
                self.note(f"NoticeTo{step}Seconds", seconds)
        if costs.killed:
            self.note("PodsKilledWithoutGrace", costs.killed)


SOON = SHORTEST_DRAIN
"""The wait until the next look after something was done. By then the snapshot shows it, even if no event comes."""
LOCKED_FOR = timedelta(seconds=10)
"""How long a run holds the lock on ending nodes: two runs would request the same evictions and delay each other."""
DENIAL = timedelta(minutes=5)
"""How long a denied eviction is remembered if the pod was not evicted again since."""


@dataclass(frozen=True, slots=True)
class Termination(ClusterPorts):
    """What a run needs."""

    self_hints: SelfHints = field(default_factory=SelfHints)
    interruption_metrics: InterruptionMetrics = field(default_factory=InterruptionMetrics)
    drains: Drains = field(default_factory=Drains)
    denied: dict[str, datetime] = field(default_factory=dict)
    """pods whose eviction an admission webhook or policy has denied, and when; kept from run to run"""
    spread: Spread = in_turn
    """carries out the steps of many claims: one after the other, or several at once as an executor's `map` does; two
    of its threads only wait for the others"""


def end_nodes(run: Termination) -> Report:
    """Take every ending claim one step further; report the number of commands carried out, by kind.

    Does nothing while another run holds the lock; that run schedules another look when it ends. Raises Transient if a
    call failed, after all others are done.
    """
    began = run.clock()
    until = began + LOCKED_FOR
    if not run.store.take_lock(Concern.TERMINATION, began, until):
        _set(run, LOCKED_FOR, began)  # the run that holds the lock may have died
        return Report(Counter(TurnedAway=1), due=began)
    counts: Counter[str] = Counter()
    due: datetime | None = None
    new_events: list[ObjectEvent] = []
    with Failures() as failures:
        try:
            due = _look(run, counts, new_events, failures)
        except (Transient, Rejected):
            _hand_over(run, until)
            raise
        _hand_over(run, until, is_left=bool(counts["Postponed"]))
        if new_events:  # the next round of evictions need not wait for that
            with failures.of():
                run.cluster.publish(new_events)
    return Report(counts, due=due)


def _hand_over(run: Termination, until: datetime, *, is_left: bool = False) -> None:
    """Release the lock. Wake termination at once if other runs were turned away, or if something `is_left` to do."""
    were_turned_away = run.store.release_lock(Concern.TERMINATION, until)
    if were_turned_away or is_left:
        reason = "other runs were turned away" if were_turned_away else "evictions postponed"
        run.hints.send(Concern.TERMINATION, Hint(run.cluster_name, reason))


def _look(
    run: Termination, counts: Counter[str], new_events: list[ObjectEvent], failures: Failures
) -> datetime | None:
    """Load, decide and carry out; return when to look again, None if no node is ending and none waits to end.

    Counts what was done in `counts`, and adds Events that the caller must publish to `new_events`.
    """
    snapshot = newest_snapshot(run.blobs, run.cluster_name)
    if snapshot is None:
        return None
    ledger, now = run.store.load(), run.clock()
    if (held := standby(ledger, snapshot, now)) is not None:
        return held.until
    claims = _begin_due(run, ledger, snapshot, now, counts, failures)
    run.interruption_metrics.count_waiting(claims, snapshot, now)
    if not any(claim.is_ending for claim in claims):
        return now if to_end_later(claims, snapshot) else None
    checked = to_check(claims, snapshot)
    try:
        instances = run.cloud.instances_of(checked, known_instances(claims)) if checked else {}
    except Transient as error:  # claims whose Nodes still have pods need not wait for EC2
        failures.add(error)
        checked, instances = [], {}
    drain_times = ledger.drain_times
    commands = next_steps(claims, snapshot, instances, checked, now, _denied(run, now), drain_times)
    run.interruption_metrics.record(commands, claims, snapshot, now)
    _carry_out(run, commands, counts, new_events, failures)
    for nodepool, beyond in run.drains.ended(commands, snapshot, now):
        typical = learned_drain_time(drain_times.get(nodepool), beyond, now)
        if typical is not None:
            with failures.of():
                run.store.save_drain_time(nodepool, typical)
    _wake(run, claims, snapshot, commands, counts, now, drain_times)
    return now


def _begin_due(
    run: Termination,
    ledger: Ledger,
    snapshot: Snapshot,
    now: datetime,
    counts: Counter[str],
    failures: Failures,
) -> list[NodeClaim]:
    """Begin the terminations that are due; return the ledger's claims with these changes.

    Replacement nodes can be launched while the pods still run, so provisioning is woken before anything else is done.
    """

    def begin(command: End) -> NodeClaim:
        return begin_end(command, run.store, run.cluster)

    begun = each(run.spread, to_end(ledger.claims, snapshot, now), begin, counts, failures)
    if counts["End"]:
        with failures.of():
            run.hints.send(Concern.PROVISIONING, Hint(run.cluster_name, "nodes end"))
    claims = {claim.name: claim for claim in ledger.claims}
    return list({**claims, **{n: c for n, c in begun.items() if isinstance(c, NodeClaim)}}.values())


def _carry_out(
    run: Termination,
    commands: Sequence[TerminationCommand],
    counts: Counter[str],
    new_events: list[ObjectEvent],
    failures: Failures,
) -> None:
    """Taint Nodes, then evict pods and concurrently advance the claims without evictions.

    If a Node could not be tainted, its pods are not evicted: others would take their place on it.
    """
    closed = _carry_out_each(run, [c for c in commands if isinstance(c, Close)], counts, failures)
    open_yet = failed(closed)
    others = [c for c in commands if c.claim.name not in open_yet and not isinstance(c, Close)]
    leaving = {c.claim.name for c in others if isinstance(c, Evict | DeletePods)}
    sides = [[c for c in others if (c.claim.name in leaving) is leaves] for leaves in (True, False)]
    for did in run.spread(
        lambda side: _proceed(run, side, new_events, failures), [side for side in sides if side]
    ):
        counts.update(did)


def _proceed(
    run: Termination,
    commands: Sequence[TerminationCommand],
    new_events: list[ObjectEvent],
    failures: Failures,
) -> Counter[str]:
    """Evict or delete pods, advance each claim, and terminate all instances in one call; return what was done."""
    counts: Counter[str] = Counter()
    evictions = [c for c in commands if isinstance(c, Evict)]
    deletions = [c for c in commands if isinstance(c, DeletePods)]
    if evictions:
        counts["Evict"] += sum(len(command.pods) for command in evictions)
        with failures.of():
            _evict(run, evictions, counts, new_events)
    if deletions:
        with failures.of():
            delete_pods(deletions, run.cluster)
        counts["DeletePods"] += sum(len(command.pods) for command in deletions)
    _carry_out_each(run, [c for c in commands if isinstance(c, Wait | Advance)], counts, failures)
    _release(run, [c for c in commands if isinstance(c, Release)], counts, failures)
    terminations = [c for c in commands if isinstance(c, TerminateInstances)]
    if terminations:
        with failures.of():
            terminate(terminations, run.cloud)
            _carry_out_each(run, terminations, counts, failures)
    return counts


def _evict(
    run: Termination, commands: Sequence[Evict], counts: Counter[str], new_events: list[ObjectEvent]
) -> None:
    answers = evict(commands, run.cluster)
    note_drained(run.metrics, commands, answers)
    new_events += [event for c in commands for event in of_evictions(c.claim, c.pods, answers)]
    postponed = sum(isinstance(answer, Postponed) for answer in answers.values())
    counts.update({"Evict": -postponed, "Postponed": postponed} if postponed else {})
    for pod, answer in answers.items():
        if isinstance(answer, EvictionRefused) and answer.reason == DENIED:
            run.denied[pod] = run.clock()
        else:
            run.denied.pop(pod, None)


def _denied(run: Termination, now: datetime) -> frozenset[str]:
    for pod in [pod for pod, at in run.denied.items() if now - at > DENIAL]:
        del run.denied[pod]
    return frozenset(run.denied)


def _carry_out_each(
    run: Termination, commands: Sequence[SingleEnding], counts: Counter[str], failures: Failures
) -> Mapping[str, object]:
    return each(run.spread, commands, lambda c: carry_out_end(c, run.store, run.cluster), counts, failures)


def _release(run: Termination, commands: Sequence[Release], counts: Counter[str], failures: Failures) -> None:
    """Release claims without instances. Those whose Nodes other controllers hold are counted as "NodeHeld"."""
    results = each(run.spread, commands, lambda c: release(c, run.store, run.cluster), counts, failures)
    still_held = sum(result is False for result in results.values())
    counts.update({"Release": -still_held, "NodeHeld": still_held} if still_held else {})


def _wake(
    run: Termination,
    claims: Sequence[NodeClaim],
    snapshot: Snapshot,
    commands: Sequence[TerminationCommand],
    counts: Counter[str],
    now: datetime,
    drain_times: Mapping[str, DrainTime],
) -> None:
    """Schedule another look if something was done, and one for the moment at which time alone lets a claim go on.

    Events and ticks cause all other looks.
    """
    kinds = {type(command) for command in commands}
    if counts["Release"]:
        for concern in (Concern.READINESS, Concern.DISRUPTION):  # budgets may allow other nodes to go now
            run.hints.send(concern, Hint(run.cluster_name, "claims gone"))
    if kinds - {Release} or counts["Conflict"] or counts["End"]:
        _set(run, SOON, now)
    wait = wait_until(next_change(claims, snapshot, now, drain_times), now)
    if wait is not None:
        sent_at = run.clock()  # a look may take seconds
        _set(run, now + wait - sent_at, sent_at)


def _set(run: Termination, wait: timedelta, now: datetime) -> None:
    run.self_hints.send(run.hints, Concern.TERMINATION, Hint(run.cluster_name, "nodes end"), wait, now)
