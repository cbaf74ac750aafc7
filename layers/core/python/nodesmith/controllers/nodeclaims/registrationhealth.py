"""What the claims of a run say of their NodePools, kept before the claims move on: told twice it counts once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from nodesmith.decisions.readiness.readiness import registration_condition
from nodesmith.errors import Conflict, Failures, Transient
from nodesmith.model.commands import Command, Forget, GiveUp, Register
from nodesmith.model.functions.hints import Concern, Hint
from nodesmith.model.ledger.registrationhealth import RegistrationHealth, current
from nodesmith.ports import Hints, Store


def keep(
    store: Store,
    health: Mapping[str, RegistrationHealth],
    commands: list[Command],
    done: Counter[str],
    failures: Failures,
) -> list[Command]:
    """Write what is known anew; give the commands but for those of which it could not be written: they must wait."""
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
    """Let the NodePools' conditions be written where they change, and pods be served by those that may buy again."""
    if any(_shows(before.get(name), each) for name, each in health.items()):
        hints.send(Concern.READINESS, Hint(cluster, "registrations ended"))
    if any(_frees(before.get(name), each) for name, each in health.items()):
        hints.send(Concern.PROVISIONING, Hint(cluster, "nodes join"))


def _shows(before: RegistrationHealth | None, now: RegistrationHealth) -> bool:
    return registration_condition(current(before, now.basis)) != registration_condition(now)


def _frees(before: RegistrationHealth | None, now: RegistrationHealth) -> bool:
    """Return whether something was left alone and is not any more."""
    if before is None or now.backoff is not None:
        return False
    return before.backoff is not None or bool(before.offerings.keys() - now.offerings.keys())
