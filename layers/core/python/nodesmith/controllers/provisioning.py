"""The controller of provisioning: resume pending launches, load, decide, record, commit, launch; repeat if needed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from nodesmith.controllers.launching.gangs import buy_for_requests
from nodesmith.controllers.launching.launch import (
    TypeTable,
    buy_many,
    buy_without_pods,
    no_heartbeat,
    note_refused,
    recorded,
    start_many,
)
from nodesmith.controllers.launching.pendingclaims import carry_on, leased_until, resume_starts
from nodesmith.controllers.launching.unschedulable import Refused, read_tried, write_unplaced
from nodesmith.controllers.observation import timely_data
from nodesmith.controllers.region.commitments import claim_commitments, known_commitments
from nodesmith.controllers.runs import SelfHints
from nodesmith.decisions.provisioning import (
    Inputs,
    Plan,
    decide,
    decision_id,
    exceeds_steps,
    is_about_to_buy,
    round_robin,
    unread,
)
from nodesmith.decisions.provisioning.buffers.resolutions import due_statuses
from nodesmith.decisions.provisioning.decide import next_change
from nodesmith.decisions.provisioning.gangs import next_turn, turns
from nodesmith.decisions.scheduling.demands import waiting_by_zone
from nodesmith.decisions.scheduling.offerings.quotas import limit_owner, limited_nodepools
from nodesmith.decisions.takeover import is_closing, standby
from nodesmith.errors import Conflict, RetryScheduled, Transient
from nodesmith.launcheffects import Allowance, Settled
from nodesmith.model.apimachinery.times import first
from nodesmith.model.functions import Concern, Heartbeat, Hint
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.metrics.metrics import Labels, Metrics, labelled
from nodesmith.model.policies import NodeSettings
from nodesmith.ports import Blobs, Catalogs, Cloud, CommitmentStore, Hints, Store

MAX_ROUNDS = 12
"""The most looks in one run: each exhausted list of offerings, lost race or full commit takes another one."""

LOOK_SECONDS = 25
"""The time that a look with its launches may take. A run with less time left wakes another one instead of being killed
amid its launches: their claims would then have to wait for their lease to run out.
"""
LONGEST_LOOK_AHEAD = timedelta(minutes=15)
"""The longest delay of an SQS message. Later moments are reached in several steps."""
_READ_WAIT = timedelta(seconds=5)
"""The wait until the next look if readiness must first read a user's NodeClaim. Readiness sends a hint when done."""
AGAIN_SECONDS = (2, 5, 10)
"""Waits before deferred launches are repeated, by the number of deferrals in a row. The last one is repeated."""
MOST_IN_A_ROW = 30
"""The most runs in a row with deferred launches before only ticks look again: by then claims reach their time-out."""


def _not_at_all(_: Inputs) -> None:
    pass


@dataclass(slots=True)
class Repeats:
    """What a warm process keeps about launches to repeat: its hints, and how many runs in a row deferred launches."""

    self_hints: SelfHints = field(default_factory=SelfHints)
    in_a_row: int = 0


@dataclass(frozen=True, slots=True)
class Provisioning:
    """What a run needs. `clock` returns the time, `stopwatch` monotonic seconds."""

    cluster_name: str
    settings: NodeSettings
    store: Store
    cloud: Cloud
    blobs: Blobs
    hints: Hints
    catalogs: Catalogs
    clock: Callable[[], datetime]
    stopwatch: Callable[[], float]
    rehearse: Callable[[Inputs], None] = _not_at_all
    """called if no pod waits"""
    when_nothing_bought: Callable[[Inputs], None] = _not_at_all
    """called with the input of the decision if nothing was bought"""
    repeats: Repeats = field(default_factory=Repeats)
    remaining_seconds: Callable[[], float] = lambda: math.inf
    """returns how long the function may still run"""
    metrics: Metrics = field(default_factory=Metrics)
    commitments: CommitmentStore | None = None
    """None if the deployment does not use commitments"""
    last_heartbeat: Callable[[], Heartbeat | None] = no_heartbeat
    """returns the forwarder's newest heartbeat, which confirms a snapshot that is old because nothing has changed"""


@dataclass(slots=True)
class Outcome:
    """The result of a run: the decisions written, and the claims by outcome.

    `deferred` lists the launches to repeat, `postponed` the claims whose pods need a new decision a little later.
    `unplaced` is True if pods stay without a node and the reasons were written down. `leased_until` is when the first
    lease on a claim that another run began to launch runs out, None if there is none.
    """

    decisions: list[str] = field(default_factory=list)
    launched: list[str] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    deferred: list[str] = field(default_factory=list)
    postponed: list[str] = field(default_factory=list)
    is_throttled: bool = False
    is_cut: bool = False
    """whether the run needed more calls to EC2 than one run may make"""
    plan: Plan = field(default_factory=Plan)
    unplaced: bool = False
    leased_until: datetime | None = None
    decided_from: Inputs | None = None
    """the input of the last look, if it came to a decision"""
    room_is_news: bool = False
    """whether CapacityBuffers do not show yet what the last decision found"""
    unread: bool = False
    """whether the snapshot shows an object differently from what readiness has read"""
    due: datetime | None = None
    """when to look again even if nothing changes; None for never"""

    @property
    def counts(self) -> dict[str, int]:
        """The values for metrics."""
        return {
            "NodeClaimsLaunched": len(self.launched),
            "NodeClaimsGivenUp": len(self.given_up),
            "PodsUnplaced": sum(len(group.pods) for group in self.plan.unplaced),
            "PodsBackedOff": self.plan.backed_off,
        }

    @property
    def is_busy(self) -> bool:
        """Whether something was done or must be repeated, or pods wait for something that no node provides."""
        done = self.launched or self.given_up or self.deferred or self.postponed
        return bool(done or self.is_throttled or self.is_cut or self.unread or self.plan.refused)

    def note(self, settled: Settled) -> None:
        """Add the results of launches."""
        self.is_throttled = self.is_throttled or settled.is_throttled
        self.is_cut = self.is_cut or settled.is_cut
        self.launched += settled.launched
        self.given_up += settled.given_up
        self.postponed += settled.postponed
        self.deferred += [f"NodeClaim {d.claim}: {d.reason}: {d.message}" for d in settled.deferred]


def provision(run: Provisioning) -> Outcome:
    """Buy nodes for the pending pods of a cluster.

    Raises Transient, after everything else is done, if a launch must be repeated (RetryScheduled if provisioning is
    already scheduled to repeat it), and Rejected if the snapshot or the catalogue cannot be read.
    """
    outcome, allowance = Outcome(), Allowance(run.store, run.clock)
    for looks in range(1, MAX_ROUNDS + 1):
        if _look(run, outcome, allowance) or outcome.is_throttled or outcome.is_cut:
            break
        if looks == MAX_ROUNDS or run.remaining_seconds() < LOOK_SECONDS:
            _look_again(run, f"not done after {looks} looks", timedelta())
            break
    _serve_requests(run, outcome, allowance)
    if outcome.launched or outcome.given_up or outcome.deferred:
        run.hints.send(Concern.LIFECYCLE, Hint(run.cluster_name, "claims changed"))
    elif outcome.unplaced or outcome.room_is_news:
        reason = "pods stay unscheduled" if outcome.unplaced else "the room of CapacityBuffers changed"
        run.hints.send(Concern.LIFECYCLE, Hint(run.cluster_name, reason))
    if allowance.end_turn():
        _look_again(run, "another run waits for its turn", timedelta())
    is_repeated = _have_repeated(run, outcome, allowance.until)
    _note_outcome(run, outcome)
    if outcome.plan.due is not None:
        wait = min(outcome.plan.due - run.clock(), LONGEST_LOOK_AHEAD)
        _look_again(run, "a wait of pods ends", wait)
    if outcome.unread:
        run.hints.send(
            Concern.READINESS, Hint(run.cluster_name, "the snapshot shows objects that are still to be read")
        )
    if outcome.deferred:
        raise (RetryScheduled if is_repeated else Transient)("; ".join(outcome.deferred), "Deferred")
    return outcome


def _serve_requests(run: Provisioning, outcome: Outcome, allowance: Allowance) -> None:
    """Decide about ProvisioningRequests, once nothing more can be done for pods in this run."""
    inputs = outcome.decided_from
    if inputs is None:
        return
    shared = inputs.settings.shared_provisioning_classes
    if not turns(inputs.snapshot, inputs.ledger, inputs.now, shared=shared):
        return
    if outcome.is_throttled or outcome.is_cut:
        return  # the run that follows has calls for them
    try:
        purchases = buy_for_requests(run, inputs, allowance, lambda: run.remaining_seconds() > LOOK_SECONDS)
    except Transient as error:
        outcome.deferred.append(f"ProvisioningRequests: {error}")
        return
    for settled in purchases.settled:
        outcome.note(settled)
    outcome.decisions += purchases.decisions
    if purchases.is_cut:
        _look_again(run, "ProvisioningRequests wait for their turn", timedelta())


def _note_outcome(run: Provisioning, outcome: Outcome) -> None:
    """Record the metrics on waiting pods, and call `when_nothing_bought` if nothing was bought."""
    if (inputs := outcome.decided_from) is not None:
        note_waiting(run.metrics, inputs.snapshot.pods, outcome.counts["PodsUnplaced"], run.clock())
        if not (outcome.launched or outcome.deferred):
            run.when_nothing_bought(inputs)


def _have_repeated(run: Provisioning, outcome: Outcome, turn_until: datetime | None) -> bool:
    """Wake provisioning when deferred launches, or those of a run that may have died, can be repeated.

    If the run held the lock (until `turn_until`), it wakes provisioning when the lock expires; the runs that the lock
    kept from buying do not. Return whether deferred launches will be repeated.
    """
    repeats, now = run.repeats, run.clock()
    repeats.in_a_row = repeats.in_a_row + 1 if outcome.deferred or outcome.is_throttled else 0
    waits = [outcome.leased_until - now] if outcome.leased_until is not None else []
    is_repeated = turn_until is not None or 0 < repeats.in_a_row <= MOST_IN_A_ROW
    if turn_until is not None:
        seconds = max(1, math.ceil((turn_until - now).total_seconds()))
        run.hints.send(Concern.PROVISIONING, Hint(run.cluster_name, "the launch lock has expired"), seconds)
    elif is_repeated:
        longest = len(AGAIN_SECONDS)
        waits.append(timedelta(seconds=AGAIN_SECONDS[min(repeats.in_a_row, longest) - 1]))
    if waits:
        _look_again(run, "launches are to be repeated", min(waits))
    return is_repeated


def _look_again(run: Provisioning, reason: str, wait: timedelta) -> None:
    hint = Hint(run.cluster_name, reason)
    run.repeats.self_hints.send(run.hints, Concern.PROVISIONING, hint, wait, run.clock())


def _look(run: Provisioning, outcome: Outcome, allowance: Allowance) -> bool:
    """Load, decide, record and buy once; return whether there is nothing more to do.

    The ledger is read before the snapshot. In an older snapshot, pods would still wait for nodes that the ledger calls
    ready for long, and more would be bought. An older ledger does no harm, because its version has to be the newest.
    """
    started, read = run.stopwatch(), run.store.load()
    timely = timely_data(run.blobs, run.cluster_name, run.last_heartbeat, run.clock())
    if timely is None:
        return True
    outcome.due = run.clock()
    (data, snapshot), catalog = timely, run.catalogs.latest()
    paid = known_commitments(run.commitments)
    ledger = replace(read, learned=run.store.learned(), commitments=paid)
    if (held := standby(ledger, snapshot, outcome.due)) is not None:
        outcome.due = held.until
        return True
    outcome.is_cut = not allowance.has_turn(ledger.spending)
    if outcome.is_cut:
        return True
    settings = allowance.with_fewer_nodes(run.settings.in_cluster(ledger.cluster))
    types = TypeTable(snapshot, catalog, settings, ledger)
    ledger = _resume(run, ledger, types, outcome, allowance)
    now, digest = run.clock(), hashlib.sha256(data).hexdigest()
    decision = decision_id(digest, ledger.version, now)
    tried = read_tried(run.blobs, run.cluster_name) if exceeds_steps(snapshot.pods) else ()
    inputs = Inputs(snapshot, ledger, catalog, settings, now, decision, tried)
    outcome.unread = bool(unread(snapshot, ledger))
    if outcome.is_throttled or outcome.is_cut or is_closing(ledger):
        return True
    refused, settled = buy_without_pods(run, inputs, run.last_heartbeat, types, allowance)
    outcome.note(settled)
    if refused is None:
        return False
    if _must_wait(run, outcome, inputs):
        return True
    loaded = run.stopwatch()
    outcome.plan = plan = decide(inputs)
    decided_seconds, outcome.decided_from = run.stopwatch() - loaded, inputs
    if plan.is_idle:
        _note_unplaced(run, outcome, refused, now)
        run.rehearse(inputs)
        if not (outcome.is_busy or refused.any):
            outcome.due = first((next_change(inputs), _next_turn(inputs)))
        return True
    run.metrics.observe("scheduler_scheduling_duration_seconds", decided_seconds, controller="provisioner")
    durations = {"load": (loaded - started) * 1000, "decide": decided_seconds * 1000}
    outcome.decisions.append(decision)
    is_complete = recorded(
        run, inputs, plan, data, durations, lambda: _carry_out(run, outcome, inputs, types, allowance)
    )
    if is_complete is None:
        outcome.decisions.remove(decision)
    _note_unplaced(run, outcome, refused, now)
    return bool(is_complete) and (not plan.new or bool(outcome.postponed))


def _carry_out(
    run: Provisioning, outcome: Outcome, inputs: Inputs, types: TypeTable, allowance: Allowance
) -> bool | None:
    """Start and buy the nodes of the plan; return whether all were, None if another run was first."""
    plan, ledger, decision = outcome.plan, inputs.ledger, inputs.decision
    is_complete, begun = True, 0
    try:
        if plan.starts:
            settled, begun = start_many(run, plan.starts, ledger, decision, allowance)
            outcome.note(settled)
            ledger = replace(ledger, version=ledger.version + bool(begun))
            is_complete = not settled.given_up and begun == len(plan.starts)
        if plan.nodes:
            claim_commitments(run.commitments, inputs, plan.nodes, inputs.now)
            settled, committed = buy_many(run, round_robin(plan.nodes), ledger, types, decision, allowance)
            outcome.note(settled)
            begun += committed
            is_complete = is_complete and not settled.given_up and committed == len(plan.nodes)
    except Conflict:
        is_complete = False
    return is_complete if begun or not (plan.nodes or plan.starts) else None


def _must_wait(run: Provisioning, outcome: Outcome, inputs: Inputs) -> bool:
    """Return whether a NodeClaim must be read before it may be bought for; if so, look again soon."""
    if not (outcome.unread and is_about_to_buy(inputs)):
        return False
    _look_again(run, "a NodeClaim is being read", _READ_WAIT)
    return True


def _next_turn(inputs: Inputs) -> datetime | None:
    shared = inputs.settings.shared_provisioning_classes
    return next_turn(inputs.snapshot, inputs.ledger, inputs.now, shared=shared)


def _note_unplaced(run: Provisioning, outcome: Outcome, refused: Refused, now: datetime) -> None:
    was_written = outcome.unplaced  # by an earlier look of this run, and may be out of date
    plan = outcome.plan
    if (inputs := outcome.decided_from) is not None and plan.rooms:
        rooms = {room.buffer: room for room in plan.rooms}
        outcome.room_is_news = any(True for _ in due_statuses(inputs.snapshot, rooms, now))
    if plan.unplaced or plan.refused or plan.without_types or plan.rooms or refused.any or was_written:
        write_unplaced(run.blobs, run.cluster_name, plan, now, refused, _limited(outcome))
        outcome.unplaced = bool(plan.unplaced or plan.refused or refused.unschedulable)


def _limited(outcome: Outcome) -> Mapping[str, Sequence[str]]:
    """Return the NodePools of each limit that keeps pods without a node, for limits that are no objects."""
    inputs = outcome.decided_from
    if inputs is None:
        return {}
    owners = {limit_owner(group.cause) for group in outcome.plan.unplaced} - {""}
    return limited_nodepools(owners, inputs.snapshot, inputs.ledger, inputs.settings, inputs.now)


def _resume(
    run: Provisioning, ledger: Ledger, types: TypeTable, outcome: Outcome, allowance: Allowance
) -> Ledger:
    """Settle the claims that earlier runs left behind; return the ledger as it is afterwards.

    If that fails, those claims stay pending, and new pods do not wait for them.
    """
    try:
        outside = run.store, run.cloud, run.clock, allowance
        begun = resume_starts(ledger, *outside)
        outcome.note(begun)
        settled = carry_on(ledger, types.nodepools, types.nodeclasses, types, *outside)
    except Transient as error:
        outcome.deferred.append(f"NodeClaims left pending by earlier runs: {error}")
        return ledger
    outcome.note(settled)
    note_refused(run.metrics, settled, ledger)
    outcome.leased_until = leased_until(ledger.claims, run.clock())
    if not (settled.launched or settled.given_up or begun.launched or begun.given_up):
        return ledger
    return replace(run.store.load(), learned=ledger.learned, commitments=ledger.commitments)


def note_waiting(metrics: Metrics, pods: Sequence[Pod], unplaced: int, now: datetime) -> None:
    """Record how many pods of the cluster wait, in which zones they may run, and how many are `unplaced`."""
    zones, ignored = waiting_by_zone(pods)
    by_zone = {labelled(controller="provisioner", zone=zone): count for zone, count in zones.items()}
    series_by_name: Mapping[str, Mapping[Labels, float]] = {
        "scheduler_unschedulable_pods_count": {labelled(controller="provisioner"): unplaced},
        "scheduler_ignored_pods_count": {(): ignored},
        "scheduler_pending_pods_by_effective_zone_count": by_zone,
    }
    for name, values in series_by_name.items():
        metrics.show(name, values, now)
