"""Conclusions from EC2's answers to launches: the offerings, subnets and NodePools to leave alone, and for how long.

Answers about some instance types also concern others: they show zones without capacity, and the account's quotas.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

from nodesmith.model.apimachinery.quantities import CPU
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith.model.ec2.launches import (
    NO_SPOT_ROLE,
    VCPU_QUOTAS,
    Launched,
    LaunchOutcome,
    NoCapacity,
    OfferingKey,
    Refused,
    Shortfall,
)
from nodesmith.model.ledger.learned import FIRST_BACKOFF, Backoff, next_backoff

_GENERAL = frozenset("cmrt")
"""The general series. Others, such as those with accelerators, may be short for reasons of their own."""
_KINDS_OF_A_ZONE = 10
_EMPTY = frozenset({"InsufficientInstanceCapacity", "UnfulfillableCapacity", "MaxFleetCountExceeded"})
"""The codes of errors that would hold for the other types of the zone as well"""
_SERIES = re.compile(r"[a-z]+")


def lost_zones(unavailable: Mapping[OfferingKey, Backoff], now: datetime) -> frozenset[tuple[str, str]]:
    """Return the zones, each with a capacity type, in which EC2 presumably has no capacity left at all.

    A zone counts if one answer named ten instance types without capacity there, from at least two of the series c, m, r
    and t, while their back-offs hold. Otherwise each call would try further types, and fail. If the account lacks the
    role for Spot, one type is enough.
    """
    denied: set[tuple[str, str]] = set()
    named_types: dict[tuple[str, str, datetime], set[str]] = {}
    for key, backoff in unavailable.items():
        if not backoff.holds(now):
            continue
        if backoff.reason == NO_SPOT_ROLE:
            denied.add((key.capacity_type, key.zone))
        is_general = _series(key.instance_type) in _GENERAL and not key.group
        if is_general and backoff.reason in _EMPTY:
            named_types.setdefault((key.capacity_type, key.zone, backoff.until), set()).add(key.instance_type)
    empty = (
        (capacity_type, zone)
        for (capacity_type, zone, _), kinds in named_types.items()
        if len(kinds) >= _KINDS_OF_A_ZONE and len({kind[:1] for kind in kinds}) > 1
    )
    return frozenset((*denied, *empty))


_STANDARD = frozenset("a c d h i im is m r t z".split())
_GRAPHICS = frozenset("g gr vt".split())
_NO_LIMIT = float("inf")


def over_quota(
    unavailable: Mapping[OfferingKey, Backoff], types: Iterable[InstanceType], now: datetime
) -> frozenset[OfferingKey]:
    """Return the offerings of these types that exceed a quota of vCPUs.

    A quota applies to a capacity type and a group of series, in all zones. A refusal shows that as many vCPUs as the
    refused type has are too many, while fewer may be allowed.
    """
    refused = [
        key for key, backoff in unavailable.items() if backoff.reason in VCPU_QUOTAS and backoff.holds(now)
    ]
    if not refused:
        return frozenset()
    types_by_name = {kind.name: kind for kind in types}
    least: dict[tuple[str, str], int] = {}
    for key in refused:
        if key.instance_type in types_by_name:
            quota = key.capacity_type, _counted_with(key.instance_type)
            cpu = types_by_name[key.instance_type].capacity.of(CPU)
            least[quota] = min(cpu, least.get(quota, cpu))
    return frozenset(
        OfferingKey(offering.capacity_type, kind.name, offering.zone)
        for kind in types_by_name.values()
        for offering in kind.offerings
        if kind.capacity.of(CPU) >= least.get((offering.capacity_type, _counted_with(kind.name)), _NO_LIMIT)
    )


def _counted_with(instance_type: str) -> str:
    """Return the series, or the name of a group that shares a quota: standard series, and series with graphics."""
    series = _series(instance_type)
    return "standard" if series in _STANDARD else "graphics" if series in _GRAPHICS else series


def _series(instance_type: str) -> str:
    match = _SERIES.match(instance_type)
    return match[0] if match else ""


SUBNET_BACKOFF = timedelta(minutes=5)
_FIRST_BACKOFFS = {"InstanceProfileNameInvalid": timedelta(seconds=15)}
"""EC2 does not know a newly created instance profile for some seconds."""
_MOST_DENIED = 600
"""The number of offerings that EC2 may deny one by one before the NodePool waits: about ten calls."""


def refused_offerings(outcome: LaunchOutcome) -> tuple[Shortfall, ...]:
    """Return the offerings that EC2 did not launch, each with its code, if the outcome names them."""
    if isinstance(outcome, Launched | NoCapacity):
        return outcome.shortfalls
    return outcome.denied if isinstance(outcome, Refused) else ()


def backoffs(
    outcomes: Collection[LaunchOutcome], unavailable: Mapping[OfferingKey, Backoff], now: datetime
) -> dict[OfferingKey, Backoff]:
    """Return the back-offs of offerings without capacity or permission, except those that served another claim."""
    codes = {s.offering: s.code for outcome in outcomes for s in refused_offerings(outcome)}
    return {
        key: next_backoff(unavailable.get(key), codes[key], now)
        for key in sorted(codes.keys() - served(outcomes))
    }


def subnet_backoffs(outcomes: Iterable[LaunchOutcome], now: datetime) -> dict[str, Backoff]:
    """Return the back-offs of subnets in which nothing could be launched.

    They last until readiness has read the number of free addresses of each subnet again.
    """
    answers = [outcome for outcome in outcomes if isinstance(outcome, (NoCapacity, Launched))]
    codes = {s.subnet: s.code for answer in answers for s in answer.subnets}
    return {subnet: Backoff(now + SUBNET_BACKOFF, 1, codes[subnet]) for subnet in sorted(codes)}


def served(outcomes: Iterable[LaunchOutcome]) -> set[OfferingKey]:
    """Return the offerings of the instances that were launched."""
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


def nodepool_backoff(
    outcome: Refused, before: Backoff | None, unavailable: Mapping[OfferingKey, Backoff], now: datetime
) -> Backoff | None:
    """Return the back-off of a NodePool after a refused launch; None if its other offerings are tried first.

    `before` is the NodePool's last back-off.
    """
    codes = {shortfall.code for shortfall in outcome.denied}
    denied = sum(backoff.reason in codes and backoff.holds(now) for backoff in unavailable.values())
    if outcome.denied and denied < _MOST_DENIED:
        return None
    first = _FIRST_BACKOFFS.get(outcome.reason, FIRST_BACKOFF)
    return next_backoff(before, f"{outcome.reason}: {outcome.message}", now, first)
