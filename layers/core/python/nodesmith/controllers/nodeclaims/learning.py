"""What new nodes show about their instance type and image, kept for all clusters before their claims move on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nodesmith.errors import Failures, Transient
from nodesmith.model.commands import Command, Initialize
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.ledger.learned import Boot, Offered, boot_of, learned
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Store


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
