"""The steps of `nodesmith adopt` and `nodesmith release`, in an order that may be cut off anywhere.

To adopt: pause disruption, then for some NodeClaims at a time tag the instances, commit the claims, mark the objects.
nodesmith serves the cluster after the first pass: it buys nothing for pods whose nodes are still joining.
Garbage collection leaves a tagged instance alone for as long as its NodeClaim is Karpenter's. A claim in the ledger
always has an instance that the functions may terminate.

To release: buy nothing any more, and wait until no claim is being launched or ended and no move is in progress. Then
nodesmith stands by. Once no function runs that has seen the ledger from before, the objects lose their mark, the
instances their tag and the ledger the claims. The ledger comes last: it lists what is left to do.

Each step reads the state again, and does only what is not done yet. Both start over from that state when run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from nodesmith.adapters.ec2.instances import Machine
from nodesmith.decisions.takeover import KARPENTER
from nodesmith.errors import Conflict, Transient
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.karpenter.nodeclaimobjects import CREATED_FOR, DECISION, ORIGIN
from nodesmith.model.karpenter.nodeclaims import BY_HAND, NodeClaim, Phase
from nodesmith.model.karpenter.ownership import (
    FLEET_TAG,
    KEEP_VOLUMES_TAG,
    MANAGED_BY_TAG,
    NODECLAIM_TAG,
    is_marked,
    provider_id,
)
from nodesmith.model.ledger.ledger import Handover, Ledger, Pause
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Store
from nodesmith_cli.migration.adopting.assessment import Due, Read, Row, State, assess
from nodesmith_cli.migration.adopting.clients import Machines, Objects
from nodesmith_cli.sharing.ownership import Manifest
from nodesmith_formats.kubernetes.objects import name_of

AT_ONCE = 40
"""The most NodeClaims in one step. A transaction of DynamoDB has at most 100 items."""
IN_FLIGHT = timedelta(seconds=75)
"""How long a function may run that has read the ledger before nodesmith stood by: a minute, and a margin."""
POLL = timedelta(seconds=3)
_COMMITS = 20
"""The most attempts to commit: decisions about pods commit as well, and change the version."""
_MARKS = (DECISION, ORIGIN, CREATED_FOR)
_TAGS = (MANAGED_BY_TAG, FLEET_TAG, KEEP_VOLUMES_TAG)


@dataclass(frozen=True, slots=True)
class Takeover:
    """A cluster and what surrounds it. `say` is called with each line of progress.

    `snapshot` returns the newest snapshot of nodesmith's functions, None if there is none.
    """

    cluster: str
    store: Store
    machines: Machines
    objects: Objects
    snapshot: Callable[[], Snapshot | None]
    catalog: Catalog | None
    clock: Callable[[], datetime]
    sleep: Callable[[float], None]
    say: Callable[[str], None]
    at_once: int = AT_ONCE

    def read(self) -> Read:
        """Read the cluster. Raises Transient, Rejected.

        Instances are read before the NodeClaims: an instance without a NodeClaim then belongs to none.
        """
        machines = self.machines.of_cluster()
        objects = self.objects
        return Read(
            self.cluster,
            objects.nodeclaims(),
            objects.nodes(),
            objects.nodepools(),
            objects.nodeclasses(),
            machines,
            self.store.load(),
            self.catalog,
            self.snapshot(),
            self.clock(),
        )


@dataclass(slots=True)
class Result:
    """The outcome. `is_done` is True if nothing is left to do; otherwise `reason` gives the reason."""

    is_done: bool
    rows: list[Row] = field(default_factory=list)
    reason: str = ""


def adopt(run: Takeover, pause: timedelta, timeout: timedelta) -> Result:
    """Make Karpenter's NodeClaims and instances nodesmith's. Raises Transient, Rejected, Denied.

    Stops as soon as Karpenter is seen to run. Disruption stays paused for `pause` after the last step. Waits up to
    `timeout` for the snapshot to show all NodeClaims.
    """
    end = run.clock() + timeout
    _pause(run, pause)
    is_served = False
    while True:
        assessment = assess(run.read())
        for part in _parts(assessment.due, run.at_once):
            if signs := run.objects.karpenter():
                return _stopped(run, signs)
            _take(run, part)
        if not is_served and not run.objects.karpenter():
            run.store.hand_over(Handover(run.clock()))
            is_served = True
        if run.clock() >= end or not (assessment.due or assessment.is_waiting):
            break
        if not assessment.due:
            run.sleep(POLL.total_seconds())
    if signs := run.objects.karpenter():
        return _stopped(run, signs)
    _pause(run, pause)
    rows = assess(run.read()).rows
    is_left = any(row.state in (State.ADOPT, State.WAITS) for row in rows)
    return Result(not is_left, rows, "run the command again" if is_left else "")


def _parts(due: Sequence[Due], at_once: int) -> Iterator[Sequence[Due]]:
    for start in range(0, len(due), at_once):
        yield due[start : start + at_once]


def _pause(run: Takeover, pause: timedelta) -> None:
    """Pause disruption for a time from now on. A longer pause by the user stays."""
    held, now = run.store.load().paused, run.clock()
    if not pause or (held is not None and held.until is None):
        return
    if held is None or held.until is None or held.until < now + pause:
        since = held.since if held is not None and held.holds(now) else now
        run.store.pause(Pause(since, "Karpenter's nodes were adopted", now + pause))


def _stopped(run: Takeover, signs: Sequence[str]) -> Result:
    rows = assess(run.read()).rows
    reason = f"Karpenter is back: it {signs[0]}. Nothing more was adopted. nodesmith stands by while Karpenter runs"
    return Result(False, rows, f"{reason}: scale it to zero, then run the command again")


def _take(run: Takeover, part: Sequence[Due]) -> None:
    """Tag the instances, then commit their claims, then mark their objects. What is done already is left out."""
    untagged = [adoption for adoption in part if MANAGED_BY_TAG not in adoption.machine.tags]
    for adoption in untagged:
        if NODECLAIM_TAG not in adoption.machine.tags:
            run.machines.tag(_resources(adoption.machine), {NODECLAIM_TAG: adoption.claim.name})
    if untagged:
        resources = [id_ for adoption in untagged for id_ in _resources(adoption.machine)]
        run.machines.tag(resources, {MANAGED_BY_TAG: run.cluster})
    _commit(run, [adoption.claim for adoption in part])
    for adoption in part:
        origin = BY_HAND if adoption.claim.is_by_hand else KARPENTER
        if not is_marked(adoption.manifest):
            run.objects.annotate(adoption.claim.name, _uid(adoption.manifest), {ORIGIN: origin})
        run.say(f"adopted NodeClaim/{adoption.claim.name} (instance {adoption.claim.instance_id})")


def _resources(machine: Machine) -> list[str]:
    """Return the ids of an instance and of its Spot Instance request, whose status shows interruptions."""
    return [id_ for id_ in (machine.instance.id, machine.spot_request) if id_]


def _uid(manifest: Manifest) -> str:
    return str(manifest["metadata"].get("uid"))


def _commit(run: Takeover, claims: Sequence[NodeClaim]) -> None:
    """Write the claims that the ledger lacks, in one transaction. Raises Transient if decisions keep changing it."""
    for _ in range(_COMMITS):
        ledger = run.store.load()
        committed = {claim.name for claim in ledger.claims}
        new = [claim for claim in claims if claim.name not in committed]
        if not new:
            return
        try:
            run.store.commit(ledger.version, new, f"{run.clock():%Y%m%dT%H%M%SZ}-adopt")
        except Conflict:
            run.sleep(0.2)
        else:
            return
    raise Transient("the ledger changes too often to be written: run the command again", "Conflict")


def release(run: Takeover, timeout: timedelta) -> Result:
    """Hand all nodes of nodesmith over to Karpenter. Raises Transient, Rejected, Denied.

    Waits up to `timeout` for launches, ends and moves in progress. If some are left then, nothing is handed over.
    """
    handover = run.store.load().handover
    if handover is None or not handover.to_karpenter:
        handover = Handover(run.clock(), to_karpenter=True)
        run.store.hand_over(handover)
    if not handover.is_settled:
        if left := _awaited(run, timeout):
            reason = "nodesmith buys nothing more, and completes these. Run the command again, or `nodesmith resume`"
            return Result(False, [Row(about, State.WAITS, detail) for about, detail in left], reason)
        handover = Handover(run.clock(), to_karpenter=True, is_settled=True)
        run.store.hand_over(handover)
    if (rest := handover.at + IN_FLIGHT - run.clock()) > timedelta(0):
        run.say(f"nodesmith stands by; waiting {rest.total_seconds():.0f} s for functions that still run")
        run.sleep(rest.total_seconds())
    return _given_back(run)


def _awaited(run: Takeover, timeout: timedelta) -> list[tuple[str, str]]:
    """Wait until everything is settled, and return what is not after `timeout`."""
    end, last_text = run.clock() + timeout, ""
    while True:
        left = unsettled(run.store.load(), run.objects.nodeclaims())
        if not left or run.clock() >= end:
            return left
        if (text := ", ".join(f"{about}: {reason}" for about, reason in left[:5])) != last_text:
            run.say(f"waiting for {text}")
            last_text = text
        run.sleep(POLL.total_seconds())


def unsettled(ledger: Ledger, nodeclaims: Sequence[Manifest]) -> list[tuple[str, str]]:
    """Return what must be completed before a cluster can be handed over: `Kind/name`, and the obstacle."""
    shown = {name_of(nodeclaim): provider_id(nodeclaim) for nodeclaim in nodeclaims}
    obstacles = [(f"move {move.id}", "it is in progress") for move in ledger.moves if not move.is_over]
    for claim in ledger.claims:
        about = f"NodeClaim/{claim.name}"
        if claim.is_ending or claim.phase is Phase.GIVEN_UP:
            obstacles.append((about, "its node is being removed"))
        elif claim.phase is Phase.PENDING:
            obstacles.append((about, "it is being launched"))
        elif shown.get(claim.name) != claim.provider_id:
            obstacles.append((about, "its object does not show its instance yet"))
    return sorted(obstacles)


def _given_back(run: Takeover) -> Result:
    """Unmark the objects, untag the instances and forget the claims, in this order."""
    rows: list[Row] = []
    manifests = {name_of(nodeclaim): nodeclaim for nodeclaim in run.objects.nodeclaims()}
    machines = {each.instance.id: each for each in run.machines.of_cluster()}
    claims = {claim.name: claim for claim in run.store.load().claims}
    for name in sorted(name for name, manifest in manifests.items() if is_marked(manifest) or name in claims):
        run.objects.annotate(name, _uid(manifests[name]), dict.fromkeys(_MARKS))
    for machine in machines.values():
        if NODECLAIM_TAG not in machine.tags and (claim := _of(machine, claims)) is not None:
            run.machines.tag([machine.instance.id], {NODECLAIM_TAG: claim.name})
    tagged = [owned for owned in machines.values() if MANAGED_BY_TAG in owned.tags]
    if tagged:
        run.machines.untag([id_ for owned in tagged for id_ in _resources(owned)], _TAGS)
    for name, claim in sorted(claims.items()):
        run.store.forget(claim)
        run.say(f"released NodeClaim/{name} (instance {claim.instance_id})")
        lost = "" if name in manifests else "its NodeClaim is gone: Karpenter terminates the instance"
        rows.append(Row(f"NodeClaim/{name}", State.RELEASED, lost or f"instance {claim.instance_id}"))
    return Result(True, rows)


def _of(machine: Machine, claims: dict[str, NodeClaim]) -> NodeClaim | None:
    return next((claim for claim in claims.values() if claim.instance_id == machine.instance.id), None)
