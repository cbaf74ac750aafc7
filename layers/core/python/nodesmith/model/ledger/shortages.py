"""What EC2's answers about some instance types show about others: zones without capacity, and the account's quotas."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime

from nodesmith.model.apimachinery.quantities import CPU
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith.model.ec2.launches import NO_SPOT_ROLE, VCPU_QUOTAS, OfferingKey
from nodesmith.model.ledger.learned import Backoff

_GENERAL = frozenset("cmrt")
"""The series that are not short for reasons of their own, as those with accelerators are."""
_KINDS_OF_A_ZONE = 10
_EMPTY = frozenset({"InsufficientInstanceCapacity", "UnfulfillableCapacity", "MaxFleetCountExceeded"})
"""The codes of errors that would hold for the other types of the zone as well"""
_SERIES = re.compile(r"[a-z]+")


def lost_zones(unavailable: Mapping[OfferingKey, Backoff], now: datetime) -> frozenset[tuple[str, str]]:
    """Return the zones, each with a capacity type, in which EC2 is taken to have nothing left at all.

    That is so while the back-offs from one answer hold that named ten instance types there without capacity, of at
    least two of the series c, m, r and t: otherwise the other types would be tried in vain, call by call. If the
    account lacks the role for Spot, one is enough.
    """
    denied: set[tuple[str, str]] = set()
    found: dict[tuple[str, str, datetime], set[str]] = {}
    for key, backoff in unavailable.items():
        if not backoff.holds(now):
            continue
        if backoff.reason == NO_SPOT_ROLE:
            denied.add((key.capacity_type, key.zone))
        is_general = _series(key.instance_type) in _GENERAL and not key.group
        if is_general and backoff.reason in _EMPTY:
            found.setdefault((key.capacity_type, key.zone, backoff.until), set()).add(key.instance_type)
    empty = (
        (capacity_type, zone)
        for (capacity_type, zone, _), kinds in found.items()
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

    A quota holds for a capacity type and a group of series, in all zones. What EC2 refused shows that as many vCPUs
    are too many, and that fewer may not be.
    """
    refused = [
        key for key, backoff in unavailable.items() if backoff.reason in VCPU_QUOTAS and backoff.holds(now)
    ]
    if not refused:
        return frozenset()
    known = {kind.name: kind for kind in types}
    least: dict[tuple[str, str], int] = {}
    for key in refused:
        if key.instance_type in known:
            counted = key.capacity_type, _counted_with(key.instance_type)
            cpu = known[key.instance_type].capacity.of(CPU)
            least[counted] = min(cpu, least.get(counted, cpu))
    return frozenset(
        OfferingKey(offering.capacity_type, kind.name, offering.zone)
        for kind in known.values()
        for offering in kind.offerings
        if kind.capacity.of(CPU) >= least.get((offering.capacity_type, _counted_with(kind.name)), _NO_LIMIT)
    )


def _counted_with(instance_type: str) -> str:
    """Return the series, or a name for those that share a quota: the standard ones, and those with graphics."""
    series = _series(instance_type)
    return "standard" if series in _STANDARD else "graphics" if series in _GRAPHICS else series


def _series(instance_type: str) -> str:
    found = _SERIES.match(instance_type)
    return found[0] if found else ""
