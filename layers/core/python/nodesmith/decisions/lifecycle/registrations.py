"""Registrations: the registration health of NodePools, from whether their nodes have joined the cluster.

A NodePool whose nodes do not join (a broken image, user data, network, role) is in back-off, longer each time, and so
is the failed offering within it. Other NodePools are not affected. Each claim counts once, however often it is seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from nodesmith.model.commands import Command, Forget, GiveUp, Prepare, Register
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.ledger.gangs import ROLLED_BACK
from nodesmith.model.ledger.learned import (
    REMEMBERED_NODES,
    Ending,
    RegistrationHealth,
    basis_of,
    next_backoff,
)
from nodesmith.model.ledger.ledger import Ledger

FIRST_WAIT = timedelta(minutes=5)
_KEPT = timedelta(days=1)
_BLAMELESS = frozenset(
    {
        "InsufficientCapacity",
        "InstanceInterrupted",
        "LaunchTemplateNotFound",
        "TemporarilyUnavailable",
        ROLLED_BACK,
    }
)
"""Reasons for the end of a claim that do not count against its NodePool."""


def registrations(
    commands: Iterable[Command], ledger: Ledger, pools: Mapping[str, NodePool], now: datetime
) -> dict[str, RegistrationHealth]:
    """Return the registration health of NodePools after these commands, by name; unchanged ones are left out."""
    known = {
        name: _renewed(ledger.health.get(name), _basis(pool, ledger), now) for name, pool in pools.items()
    }
    for command in commands:
        registered = _ending(command)
        claim = command.claim
        if registered is not None and not claim.is_by_hand and claim.nodepool in known:
            known[claim.nodepool] = _noted(known[claim.nodepool], claim, registered, now)
    return {
        name: health
        for name, health in known.items()
        if health != ledger.health.get(name, RegistrationHealth(health.basis))
    }


def _basis(pool: NodePool, ledger: Ledger) -> str:
    return basis_of(pool, ledger.nodeclasses.get(pool.nodeclass.name))


def _renewed(health: RegistrationHealth | None, basis: str, now: datetime) -> RegistrationHealth:
    """Return `health`, or a fresh start if the NodePool or its EC2NodeClass has changed since."""
    if health is None:
        return RegistrationHealth(basis)
    return health if health.basis == basis else RegistrationHealth(basis, now, revision=health.revision)


def _ending(command: Command) -> bool | None:
    """Return True if a claim's node joins with this command, False if it never will, None if neither applies."""
    claim = command.claim
    match command:
        case Register() | Prepare():
            return True
        case GiveUp() if claim.was_not_needed:
            return None
        case GiveUp() if claim.registered_at is None and claim.reason not in _BLAMELESS:
            return False
        case Forget() if claim.launched_at is None and claim.reason not in _BLAMELESS:
            return False  # the launch failed
        case _:
            return None


def _noted(
    health: RegistrationHealth, claim: NodeClaim, registered: bool, now: datetime
) -> RegistrationHealth:
    """Return `health` with the outcome of one claim added."""
    older = health.since is not None and claim.created_at < health.since
    if older or any(ending.claim == claim.name for ending in health.endings):
        return health
    after = replace(health, endings=(*health.endings, Ending(claim.name, registered))[-REMEMBERED_NODES:])
    return _joined(health, after, claim) if registered else _failed(after, claim, now)


def _joined(before: RegistrationHealth, after: RegistrationHealth, claim: NodeClaim) -> RegistrationHealth:
    key = _offering(claim)
    if not before.failures and len(before.endings) == REMEMBERED_NODES and key not in before.offerings:
        return before  # one more node that joined is not worth a write
    offerings = {each: backoff for each, backoff in before.offerings.items() if each != key}
    return replace(after, backoff=None, offerings=offerings)


def _failed(after: RegistrationHealth, claim: NodeClaim, now: datetime) -> RegistrationHealth:
    offerings = {key: held for key, held in after.offerings.items() if now - held.until < _KEPT}
    if claim.instance_type:
        key = _offering(claim)
        offerings[key] = next_backoff(offerings.get(key), claim.reason, now, FIRST_WAIT)
    backoff = after.backoff
    if after.is_unhealthy:
        backoff = next_backoff(backoff, claim.reason, now, FIRST_WAIT)
    return replace(after, reason=claim.reason, message=claim.message, backoff=backoff, offerings=offerings)


def _offering(claim: NodeClaim) -> OfferingKey:
    return OfferingKey(claim.capacity_type, claim.instance_type, claim.zone)
