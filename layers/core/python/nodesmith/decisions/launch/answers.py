"""What EC2's answers to launches mean for capacity pools, subnets and NodePools: how long they are left alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from nodesmith.model.ec2.launches import (
    Launched,
    LaunchOutcome,
    NoCapacity,
    OfferingKey,
    Refused,
    Shortfall,
)
from nodesmith.model.ledger.learned import FIRST_BACKOFF, Backoff, next_backoff
from nodesmith.model.ledger.ledger import Ledger

SUBNET_BACKOFF = timedelta(minutes=5)
_FIRST_BACKOFFS = {"InstanceProfileNameInvalid": timedelta(seconds=15)}
"""EC2 does not know a newly created instance profile for some seconds."""
_MOST_DENIED = 600
"""How many offerings that EC2 denies one by one are tried before the NodePool waits: about ten calls."""


def refused_offerings(outcome: LaunchOutcome) -> tuple[Shortfall, ...]:
    """Return the offerings that EC2 did not launch, each with its code, if the outcome names them."""
    if isinstance(outcome, Launched | NoCapacity):
        return outcome.shortfalls
    return outcome.denied if isinstance(outcome, Refused) else ()


def backoffs(
    outcomes: Collection[LaunchOutcome], ledger: Ledger, now: datetime
) -> dict[OfferingKey, Backoff]:
    """Return the back-offs of offerings without capacity or permission, except those that served another claim."""
    codes = {s.offering: s.code for outcome in outcomes for s in refused_offerings(outcome)}
    return {
        key: next_backoff(ledger.unavailable.get(key), codes[key], now)
        for key in sorted(codes.keys() - served(outcomes))
    }


def subnet_backoffs(outcomes: Iterable[LaunchOutcome], now: datetime) -> dict[str, Backoff]:
    """Return the back-offs of subnets in which nothing could be launched.

    They last until readiness has read again how many free addresses each subnet has.
    """
    answers = [outcome for outcome in outcomes if isinstance(outcome, (NoCapacity, Launched))]
    codes = {s.subnet: s.code for answer in answers for s in answer.subnets}
    return {subnet: Backoff(now + SUBNET_BACKOFF, 1, codes[subnet]) for subnet in sorted(codes)}


def served(outcomes: Iterable[LaunchOutcome]) -> set[OfferingKey]:
    """Return the offerings that instances came from."""
    instances = [outcome.instance for outcome in outcomes if isinstance(outcome, Launched)]
    return {OfferingKey(i.capacity_type, i.instance_type, i.zone) for i in instances}


def shortage(outcome: NoCapacity) -> str:
    """Return a sentence about what EC2 lacked."""
    if outcome.subnets and not outcome.shortfalls:
        names = ", ".join(s.subnet for s in outcome.subnets)
        return f"no free address in {names} ({outcome.subnets[0].code})"
    codes = sorted({s.code for s in outcome.shortfalls})
    lacking = "quota left" if outcome.quota else "capacity"
    example = f", such as {outcome.shortfalls[0].offering}" if outcome.shortfalls else ""
    return f"no {lacking} in {len(outcome.shortfalls)} offerings ({', '.join(codes)}){example}"


def nodepool_backoff(outcome: Refused, nodepool: str, ledger: Ledger, now: datetime) -> Backoff | None:
    """Return the back-off of a NodePool whose launch was refused; None if its other offerings are tried first."""
    codes = {each.code for each in outcome.denied}
    denied = sum(each.reason in codes and each.holds(now) for each in ledger.unavailable.values())
    if outcome.denied and denied < _MOST_DENIED:
        return None
    first = _FIRST_BACKOFFS.get(outcome.reason, FIRST_BACKOFF)
    return next_backoff(
        ledger.nodepool_backoffs.get(nodepool), f"{outcome.reason}: {outcome.message}", now, first
    )
