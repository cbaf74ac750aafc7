"""The controller of lifecycle: load, decide the next step of each claim, carry it out.

One claim's failure does not affect the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import fsum
from typing import TYPE_CHECKING, Any

from nodesmith.controllers.launching.gangs import follow_gangs
from nodesmith.controllers.launching.unschedulable import (
    delete_unlaunchable,
    publish_pods,
    publish_unplaced,
)
from nodesmith.controllers.nodeclaims.objects import Pace, show_consolidatable, stamp, write_tags
from nodesmith.controllers.nodeclaims.observations import (
    keep_health,
    learn,
    next_sizes,
    note_stayed,
    publish_buffer_status,
    wake_after_health,
)
from nodesmith.controllers.observation import newest_snapshot
from nodesmith.controllers.runs import (
    ClusterPorts,
    EventDeduplication,
    Report,
    SelfHints,
    Spread,
    each,
    failed,
    in_turn,
    tick_for,
    wait_until,
)
from nodesmith.decisions.budgets import next_turn
from nodesmith.decisions.disruption.expiration import expired, next_deadline, out_of_schedule
from nodesmith.decisions.lifecycle import event_of, is_held, next_steps, registrations, to_check, to_name
from nodesmith.decisions.lifecycle.gangs import endings, is_awaited
from nodesmith.decisions.lifecycle.gangs import next_change as next_of_gangs
from nodesmith.decisions.lifecycle.stages import REGISTRATION_TIMEOUT
from nodesmith.decisions.lifecycle.steps import next_change
from nodesmith.decisions.lifecycle.warmcapacity import LEAST_WARM_UP, not_needed
from nodesmith.decisions.provisioning.buffers.warmcapacity import next_need
from nodesmith.decisions.provisioning.nodeclaims import unclaimed
from nodesmith.decisions.provisioning.nodepools.static import surplus
from nodesmith.decisions.scheduling.existing import NOMINATION
from nodesmith.decisions.takeover import standby
from nodesmith.effects import carry_out
from nodesmith.errors import Failures, Transient
from nodesmith.model.apimachinery.labels import REGISTERED
from nodesmith.model.apimachinery.problems import ObjectEvent
from nodesmith.model.apimachinery.times import first
from nodesmith.model.commands import (
    ClearNominations,
    Command,
    End,
    Forget,
    GiveUp,
    Initialize,
    Nominate,
    Open,
    Prepare,
    Register,
    Show,
    Wait,
)
from nodesmith.model.functions import Concern, Hint
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase, known_instances
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.metrics.metrics import Metrics, labelled
from nodesmith.model.snapshot import Snapshot

if TYPE_CHECKING:
    from nodesmith.controllers.notifying import Notifier

HELD_SECONDS = (2, 5, 10, 20)
"""When to look at a Node that is held for its DaemonSets' pods, since its registration; afterwards only ticks look."""
SOON_SECONDS = 5
"""When to look again if a claim must move on and no event may come: a lost race, an ended claim to clear away."""


@dataclass(frozen=True, slots=True)
class Lifecycle(ClusterPorts):
    """What a run needs."""

    published: EventDeduplication = field(default_factory=dict)
    """the Events published lately; kept from run to run"""
    self_hints: SelfHints = field(default_factory=SelfHints)
    pace: Pace = field(default_factory=Pace)
    """limits how often conditions that change with pods are written; kept from run to run"""
    shared_provisioning_classes: bool = True
    """whether ProvisioningRequests of Cluster Autoscaler's classes are served"""
    spread: Spread = in_turn
    """carries out the steps of many claims: one after the other, or several at once as an executor's `map` does"""
    autoscaler_events: bool = False
    """whether pods also get Cluster Autoscaler's Events"""
    notifier: Notifier | None = None
    """sends notifications to EventBridge; kept from run to run. None if they are not wanted"""


_SHOWN_SECONDS = 3
"""How long the forwarder takes at most to write a status that a run has just written into the snapshot."""


def follow(run: Lifecycle) -> Report:
    """Take every claim one step further; report the number of commands carried out, by kind.

    Raises Transient if a call failed, after all other commands are done.
    """
    snapshot = newest_snapshot(run.blobs, run.cluster_name)
    if snapshot is None:
        return Report()
    ledger, now = run.store.load(), run.clock()
    if (held := standby(ledger, snapshot, now)) is not None:
        return Report(due=held.until)
    note_cost(run.metrics, ledger.claims, parsed_nodepools(snapshot.nodepools), now)
    with Failures() as failures:
        counts = _steps(run, snapshot, ledger, now, failures)
    if run.notifier is not None and (notified := run.notifier.notify(ledger, snapshot, now)):
        counts["Notified"] += notified
    due = first(
        (
            next_change(ledger, snapshot, parsed_nodepools(snapshot.nodepools), now),
            next_need(snapshot, ledger.claims, now),
            next_of_gangs(ledger, snapshot, now, shared=run.shared_provisioning_classes),
            next_sizes(snapshot, now),
        )
    )
    return Report(counts, due=now if counts["Conflict"] else tick_for(due, now))


def _confirmed(run: Lifecycle, commands: list[Command], failures: Failures) -> list[Command]:
    """Return the commands without give-ups of claims whose Node exists, although the snapshot does not show it yet.

    While the API server does not answer, no claim is given up for want of a Node.
    """
    late = [c for c in commands if isinstance(c, GiveUp) and c.claim.reason == REGISTRATION_TIMEOUT]
    try:
        registered = [c for c in late if _has_node(run, c.claim)]
    except Transient as error:
        failures.add(error)
        registered = late
    return [command for command in commands if command not in registered]


def _has_node(run: Lifecycle, claim: NodeClaim) -> bool:
    return run.cluster.has_node(claim.private_dns_name or claim.name, claim.provider_id)


def _steps(
    run: Lifecycle, snapshot: Snapshot, ledger: Ledger, now: datetime, failures: Failures
) -> Counter[str]:
    checked, unnamed = to_check(ledger.claims, snapshot, now), to_name(ledger.claims, snapshot)
    try:
        ids, names = known_instances(ledger.claims), {*checked, *unnamed}
        instances = run.cloud.instances_of(names, ids) if names else {}
    except Transient as error:  # claims whose Node has registered need not wait for EC2
        failures.add(error)
        checked, instances = [], {}
    # Until EC2 has returned an instance's private DNS name, a Node with its provider id may be another machine's.
    unproven = {*unnamed} - instances.keys() - {*checked}
    called_off = endings(ledger, snapshot, now)
    unneeded = not_needed(ledger, snapshot, now, called_off)
    unproven |= {command.claim.name for command in (*called_off, *unneeded)}
    claims = [claim for claim in ledger.claims if claim.name not in unproven]
    pools = parsed_nodepools(snapshot.nodepools)
    commands = next_steps(claims, snapshot, instances, checked, now)
    commands = _confirmed(run, commands, failures)
    moving = ledger.replacements
    # Claims are kept until their moves know why they ended.
    held_back = {command.claim.name for command in commands if isinstance(command, Forget)} & moving
    commands = [command for command in commands if command.claim.name not in held_back]
    staying = [claim for claim in ledger.claims if claim.name not in moving]
    read = {name: pool for name, pool in pools.items() if ledger.has_read(pool)}
    ends = expired(ledger, snapshot, read, now)
    ends += out_of_schedule(ledger, snapshot, read, now, ends)
    ends += surplus(staying, snapshot, read, now, ends, ledger.booked(now))
    commands += ends + called_off + unneeded
    counts: Counter[str] = Counter()
    health = registrations(commands, ledger, pools, now)
    commands = keep_health(run.store, health, commands, counts, failures)
    learn(run.store, commands, ledger, snapshot, failures)
    requested = unclaimed(snapshot, ledger.claims)
    deleted = delete_unlaunchable(run, requested, snapshot, now, failures)
    counts.update({"Delete": len(deleted)} if deleted else {})
    _carry_out(run, commands, ledger.claims, snapshot, counts, failures)
    _take_back(run, commands, failures)
    follow_gangs(run, ledger, snapshot, now, run.shared_provisioning_classes, counts, failures)
    moved = {command.claim.name for command in commands}
    note_stayed(run.store, ledger, snapshot, moved, now, counts, failures)
    stamped = stamp(ledger.claims, snapshot, run.cluster, now, failures)
    counts.update({"PodEvent": stamped} if stamped else {})
    with failures.of():
        number = publish_unplaced(
            run.blobs,
            run.cluster,
            run.store,
            snapshot,
            run.published,
            now,
            as_autoscaler=run.autoscaler_events,
        )
        number += publish_pods(
            run.cluster, ledger.claims, snapshot, run.published, now, pools if run.autoscaler_events else None
        )
        counts.update({"Event": number} if number else {})
    with failures.of("CapacityBuffers"):
        written, is_resized = publish_buffer_status(run.blobs, run.cluster, snapshot, now)
        counts.update({"RoomShown": written} if written else {})
        if is_resized:
            for concern in (Concern.PROVISIONING, Concern.DISRUPTION):
                run.hints.send(
                    concern, Hint(run.cluster_name, "the size of CapacityBuffers changed"), _SHOWN_SECONDS
                )
    waits = [
        write_tags(run, ledger.claims, run.spread, counts, failures),
        show_consolidatable(ledger.claims, snapshot, pools, run.cluster, now, run.pace, counts, failures),
        wait_until(next_deadline(ledger.claims, now), now),
        wait_until(next_turn(read.values(), now), now),
    ]
    lost = held_back | moving & {command.claim.name for command in commands if isinstance(command, GiveUp)}
    _wake(run, commands, snapshot, counts, lost, [wait for wait in waits if wait is not None])
    _wake_for_ends(run, commands, ledger.claims, snapshot)
    if any(isinstance(c, Initialize) and is_awaited(c.claim, ledger) for c in commands):
        run.hints.send(
            Concern.PROVISIONING, Hint(run.cluster_name, "nodes of a ProvisioningRequest are ready")
        )
    wake_after_health(run.hints, run.cluster_name, ledger.health, health)
    _wake_for_users(run, [manifest for manifest in requested if manifest["metadata"]["name"] not in deleted])
    return counts


def _carry_out(
    run: Lifecycle,
    commands: Sequence[Command],
    claims: Sequence[NodeClaim],
    snapshot: Snapshot,
    counts: Counter[str],
    failures: Failures,
) -> None:
    """Update the nominations of all Nodes, then open the Nodes, then advance each claim, and last begin terminations.

    A claim is registered only if its Node could be opened. A Node whose pods could not be nominated is opened all the
    same.
    """
    before = {claim.name: claim for claim in claims}

    def carry(command: Command) -> None:
        carry_out(command, snapshot, run.store, run.cloud, run.cluster)
        _warn(run, command, before[command.claim.name], snapshot)

    def carry_all(kind: Callable[[Command], bool], waiting: Collection[str] = ()) -> set[str]:
        steps = [c for c in commands if kind(c) and c.claim.name not in waiting]
        return failed(each(run.spread, steps, carry, counts, failures))

    carry_all(lambda c: isinstance(c, Nominate | ClearNominations))
    closed = carry_all(lambda c: isinstance(c, Open))
    carry_all(lambda c: not isinstance(c, Nominate | ClearNominations | Open | End), closed)
    carry_all(lambda c: isinstance(c, End), closed)


def _warn(run: Lifecycle, command: Command, before: NodeClaim, snapshot: Snapshot) -> None:
    fault = event_of(before, command, snapshot.node_of(before))
    if fault is not None:
        run.cluster.publish([ObjectEvent("NodeClaim", before.name, *fault, warning=True)])


def _wake_for_users(run: Lifecycle, nodeclaims: Iterable[Mapping[str, Any]]) -> None:
    """Wake provisioning for users' new NodeClaims. Those that were refused before wait for ticks."""
    if any(not (manifest.get("status") or {}).get("conditions") for manifest in nodeclaims):
        run.hints.send(Concern.PROVISIONING, Hint(run.cluster_name, "users have created NodeClaims"))


def _take_back(run: Lifecycle, commands: list[Command], failures: Failures) -> None:
    """Delete objects written for claims that another run has forgotten meanwhile: no later run would delete them."""
    unwritten = Forget | Nominate | ClearNominations | Open
    written = {command.claim.name for command in commands if not isinstance(command, unwritten)}
    try:
        deleted = written - set(run.store.existing_claims(written)) if written else ()
    except Transient as error:
        failures.add(error)
        return
    for name in sorted(deleted):
        with failures.of(f"NodeClaim {name}"):
            run.cluster.delete_nodeclaim(name)


def _wake(
    run: Lifecycle,
    commands: list[Command],
    snapshot: Snapshot,
    counts: Counter[str],
    lost: Collection[str],
    waits: Iterable[timedelta],
) -> None:
    kinds = {type(command) for command in commands}
    now = run.clock()
    soon = [timedelta(seconds=SOON_SECONDS)] if GiveUp in kinds or counts["Conflict"] else []
    soon += [timedelta(seconds=SOON_SECONDS)] if _was_open(commands, snapshot) else []
    soon += _until_looks_at_held(commands, now)
    soon += waits
    soon += [LEAST_WARM_UP] if Prepare in kinds else []
    if counts["Shelve"]:
        run.hints.send(Concern.PROVISIONING, Hint(run.cluster_name, "instances are stopped"))
    if soon:
        hint = Hint(run.cluster_name, "claims advanced")
        run.self_hints.send(run.hints, Concern.LIFECYCLE, hint, min(soon), now)
    if End in kinds:
        run.hints.send(Concern.TERMINATION, Hint(run.cluster_name, "claims end"))
    if kinds & {GiveUp, Forget, End}:
        run.hints.send(Concern.PROVISIONING, Hint(run.cluster_name, "claims given up or ended"))
    # Each claim comes here once, so no chain begins.
    if counts["Initialize"] and _awaited(commands, snapshot):
        # First when the scheduler has bound pods, and other pods may have taken the room of nominated ones; then when
        # the nominations of pods that still wait have ended.
        for seconds in (SOON_SECONDS, NOMINATION.seconds + 1):
            run.hints.send(Concern.PROVISIONING, Hint(run.cluster_name, "claims initialized"), seconds)
        run.hints.send(Concern.LIFECYCLE, Hint(run.cluster_name, "nominations end"), NOMINATION.seconds + 1)
    if Initialize in kinds or lost:  # replacements are lost until disruption ends their moves
        run.hints.send(Concern.DISRUPTION, Hint(run.cluster_name, "claims initialized or given up"))
    manifests = snapshot.shown_nodeclaims()
    new = any(isinstance(c, Show) and c.claim.name not in manifests for c in commands)
    if new or kinds & {Initialize, End, Forget}:
        run.hints.send(
            Concern.READINESS, Hint(run.cluster_name, "claims launched, initialized, ending or gone")
        )


def _wake_for_ends(
    run: Lifecycle, commands: Iterable[Command], claims: Iterable[NodeClaim], snapshot: Snapshot
) -> None:
    """Wake termination if a claim that has just become ready replaces an ending node. Each claim comes here once."""
    ready = {pod for c in commands if isinstance(c, Initialize) for pod in c.claim.nominated}
    if not ready:
        return
    ending = {node.name for c in claims if c.is_ending and (node := snapshot.node_of(c)) is not None}
    if any(pod.node in ending and pod.key in ready for pod in snapshot.pods):
        run.hints.send(Concern.TERMINATION, Hint(run.cluster_name, "replacements are ready"))


def _until_looks_at_held(commands: Iterable[Command], now: datetime) -> list[timedelta]:
    """Return the waits until the looks at held Nodes, since the binding of a pod may cause no event."""
    held = [c.claim.phase_since for c in commands if isinstance(c, Wait) and is_held(c.claim)]
    moments = (since + timedelta(seconds=seconds) for since in held for seconds in HELD_SECONDS)
    return [moment - now for moment in moments if moment > now]


def _was_open(commands: Iterable[Command], snapshot: Snapshot) -> bool:
    """Return whether a claim registers now whose Node was opened earlier, so that no further event will come."""
    nodes = (snapshot.node_of(command.claim) for command in commands if isinstance(command, Register))
    return any(node is not None and REGISTERED in node.labels for node in nodes)


def _awaited(commands: Iterable[Command], snapshot: Snapshot) -> bool:
    """Return whether pods still wait for a Node that was bought for them and is now ready."""
    expected = {pod for c in commands if isinstance(c, Initialize) for pod in c.claim.nominated}
    return any(pod.key in expected for pod in snapshot.pods if not pod.node)


_UNPAID = frozenset({Phase.PENDING, Phase.TERMINATED, Phase.GIVEN_UP})
"""Phases without an instance, or after EC2 was asked to terminate it."""


def note_cost(metrics: Metrics, claims: Sequence[NodeClaim], nodepools: Iterable[str], now: datetime) -> None:
    """Record what the instances of each NodePool cost an hour in USD, at the prices at which they were bought."""
    paid = [claim for claim in claims if claim.phase not in _UNPAID]
    names = sorted({*nodepools, *(claim.nodepool for claim in paid)})
    cost = {name: fsum(c.paid_hourly_usd for c in paid if c.nodepool == name) for name in names}
    series = {labelled(nodepool=name): round(usd, 6) for name, usd in cost.items()}
    metrics.show("nodepools_cost_total", series, now)
