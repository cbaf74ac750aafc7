"""What claims teach, saved before they move on: node capacity, registration health, and lasting purchases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from nodesmith.decisions.provisioning.attempts import Workloads, stayed
from nodesmith.decisions.provisioning.buffers.resolutions import resolutions
from nodesmith.decisions.provisioning.buffers.room import with_stand_ins
from nodesmith.decisions.readiness.readiness import registration_condition
from nodesmith.errors import Conflict, Failures, Transient
from nodesmith.model.commands import Command, Forget, GiveUp, Initialize, Register
from nodesmith.model.functions.hints import Concern, Hint
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.ledger.learned import Boot, Offered, RegistrationHealth, boot_of, current_health, learned
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Hints, Store


def note_stayed(
    store: Store,
    ledger: Ledger,
    snapshot: Snapshot,
    moved: Collection[str],
    now: datetime,
    done: Counter[str],
    failures: Failures,
) -> None:
    """Record on claims whose pods have stayed, except on claims that this run has `moved`. Errors go to `failures`."""
    claims = {claim.name: claim for claim in ledger.claims if claim.name not in moved}
    names = Workloads()
    seen = with_stand_ins(snapshot, resolutions(snapshot, now), ledger, names)
    for name, served in stayed(ledger, seen, now, names).items():
        if name not in claims:
            continue
        with failures.of(f"NodeClaim {name}"):
            try:
                store.save(replace(claims[name], served=served))
            except Conflict:
                continue  # it has moved on meanwhile; the next run sees the same pods
            done["Served"] += 1


def learn(
    store: Store,
    commands: Iterable[Command],
    ledger: Ledger,
    snapshot: Snapshot,
    failures: Failures,
) -> None:
    """Compare what new nodes show with what is known, and keep it where a node offers less.

    Nothing waits for this: the next such node repeats a lesson that could not be stored.
    """
    ready = [command.claim for command in commands if isinstance(command, Initialize)]
    shown = [replace(claim, capacity=node.capacity) for claim in ready if (node := snapshot.node_of(claim))]
    if not shown:
        return
    try:
        lessons = _lessons(shown, ledger, store)
        if lessons:
            store.learn(lessons)
    except Transient as error:
        failures.add(error)


def _lessons(shown: Iterable[NodeClaim], ledger: Ledger, store: Store) -> dict[Boot, Offered]:
    expected = {claim.name: claim.capacity.memory_bytes for claim in ledger.claims}
    ca_bundle = ledger.cluster.ca_bundle if ledger.cluster else ""
    known = store.learned()
    lessons: dict[Boot, Offered] = {}
    for claim in shown:
        boot = boot_of(claim)
        if boot is None:
            continue
        lesson = learned(lessons.get(boot) or known.get(boot), claim, expected[claim.name], ca_bundle)
        if lesson is not None:
            lessons[boot] = lesson
    return lessons


def keep_health(
    store: Store,
    health: Mapping[str, RegistrationHealth],
    commands: list[Command],
    done: Counter[str],
    failures: Failures,
) -> list[Command]:
    """Save `health`; return `commands` without those that must wait because their NodePool's health was not saved."""
    unkept: set[str] = set()
    for nodepool in sorted(health):
        try:
            store.save_health(nodepool, health[nodepool])
        except Conflict:
            unkept.add(nodepool)
            done["Conflict"] += 1
        except Transient as error:
            unkept.add(nodepool)
            failures.add(error, f"NodePool {nodepool}")
    return [
        command
        for command in commands
        if command.claim.nodepool not in unkept or not isinstance(command, Register | GiveUp | Forget)
    ]


def wake_after_health(
    hints: Hints,
    cluster: str,
    before: Mapping[str, RegistrationHealth],
    health: Mapping[str, RegistrationHealth],
) -> None:
    """Wake readiness if a NodePool's condition changes, and provisioning if a NodePool may buy again."""
    if any(_shows(before.get(name), each) for name, each in health.items()):
        hints.send(Concern.READINESS, Hint(cluster, "registrations ended"))
    if any(_frees(before.get(name), each) for name, each in health.items()):
        hints.send(Concern.PROVISIONING, Hint(cluster, "nodes join"))


def _shows(before: RegistrationHealth | None, now: RegistrationHealth) -> bool:
    return registration_condition(current_health(before, now.basis)) != registration_condition(now)


def _frees(before: RegistrationHealth | None, now: RegistrationHealth) -> bool:
    """Return whether the NodePool, or one of its offerings, was in back-off and no longer is."""
    if before is None or now.backoff is not None:
        return False
    return before.backoff is not None or bool(before.offerings.keys() - now.offerings.keys())
