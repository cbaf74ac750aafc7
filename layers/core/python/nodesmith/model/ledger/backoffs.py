"""Back-offs after failures, and the registration health of NodePools, whose nodes may fail to join the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.ec2.notices import Fate
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.nodeclasses.status import NodeClassStatus

FIRST_BACKOFF = timedelta(minutes=3)
LONGEST_BACKOFF = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Something that failed is not tried again before `until`. Each consecutive failure doubles the wait."""

    until: datetime
    failures: int
    reason: str = ""

    def holds(self, now: datetime) -> bool:
        """Return whether the back-off still applies."""
        return now < self.until


def next_backoff(
    previous: Backoff | None, reason: str, now: datetime, first: timedelta = FIRST_BACKOFF
) -> Backoff:
    """Return the back-off after another failure: `first` (default 3 min), doubling up to 30 min.

    A failure that is reported while `previous` still applies counts as the same failure: it neither doubles nor extends
    the back-off.
    """
    if previous is not None and previous.holds(now):
        return previous
    failures = previous.failures + 1 if previous else 1
    wait = min(LONGEST_BACKOFF, first * 2 ** min(failures - 1, 10))
    return Backoff(now + wait, failures, reason)


_GENERAL = frozenset("cmrt")
"""The first letters of families that are not short for reasons of their own, as those with accelerators are."""
_KINDS_OF_A_ZONE = 10
_OF_NOTICES = frozenset(Fate)


def lost_zones(unavailable: Mapping[OfferingKey, Backoff], now: datetime) -> frozenset[tuple[str, str]]:
    """Return the zones, each with a capacity type, in which EC2 is taken to have nothing left at all.

    That is so while the back-offs from one answer hold that named ten instance types there, of at least two of the
    series c, m, r and t: otherwise the other types would be tried in vain, call by call. Notices do not count.
    """
    found: dict[tuple[str, str, datetime], set[str]] = {}
    for key, backoff in unavailable.items():
        is_general = key.instance_type[:1] in _GENERAL and not key.group
        if is_general and backoff.holds(now) and backoff.reason not in _OF_NOTICES:
            found.setdefault((key.capacity_type, key.zone, backoff.until), set()).add(key.instance_type)
    return frozenset(
        (capacity_type, zone)
        for (capacity_type, zone, _), kinds in found.items()
        if len(kinds) >= _KINDS_OF_A_ZONE and len({kind[:1] for kind in kinds}) > 1
    )


REMEMBERED_NODES = 4
_UNHEALTHY = 2


@dataclass(frozen=True, slots=True)
class Ending:
    """The result of the launch for one claim: whether its node joined the cluster."""

    claim: str
    registered: bool


# A NodePool is unhealthy if half of its last four nodes did not join (Karpenter's figures). The health is only
# valid for the NodePool, EC2NodeClass and images that it was observed with (`basis`).
@dataclass(frozen=True, slots=True)
class RegistrationHealth:
    """The registration health of one NodePool. `endings` are its latest launches, newest last.

    `reason` and `message` are those of the last failure. `backoff` is set from when the NodePool becomes unhealthy
    until one of its nodes joins again. Once the back-off is over, one node at a time is tried. `offerings` are those
    that failed last, which this NodePool avoids.
    """

    basis: str
    since: datetime | None = None
    """Claims created before this time have another basis; None if there was no other basis."""
    endings: tuple[Ending, ...] = ()
    reason: str = ""
    message: str = ""
    backoff: Backoff | None = None
    offerings: Mapping[OfferingKey, Backoff] = field(default_factory=dict)
    revision: int = 0
    """Number of writes to the ledger: the optimistic lock."""

    @property
    def failures(self) -> int:
        """The number of its latest nodes that did not join."""
        return sum(not ending.registered for ending in self.endings)

    @property
    def is_unhealthy(self) -> bool:
        """Return whether too many of its latest nodes did not join."""
        return self.failures >= _UNHEALTHY

    @property
    def has_registered(self) -> bool:
        """Return whether any of its latest nodes joined."""
        return any(ending.registered for ending in self.endings)


def basis_of(pool: NodePool, status: NodeClassStatus | None) -> str:
    """Return an identifier of what a NodePool's nodes are currently launched from. A change of it resets the health."""
    resolved = f"{status.generation}.{status.hash}" if status else ""
    images = ",".join(sorted(image.id for image in status.images)) if status else ""
    return f"{pool.uid}/{pool.generation} {pool.nodeclass.name}/{resolved} {images}"


def current_health(health: RegistrationHealth | None, basis: str) -> RegistrationHealth | None:
    """Return the health if it was observed with `basis`, else None."""
    return health if health is not None and health.basis == basis else None
