"""The registration health of NodePools, saved before the claims that affect it move on. A repetition counts once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from nodesmith.decisions.readiness.readiness import registration_condition
from nodesmith.errors import Conflict, Failures, Transient
from nodesmith.model.commands import Command, Forget, GiveUp, Register
from nodesmith.model.functions.hints import Concern, Hint
from nodesmith.model.ledger.backoffs import RegistrationHealth, current_health
from nodesmith.ports import Hints, Store


def keep(
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


def wake(
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
