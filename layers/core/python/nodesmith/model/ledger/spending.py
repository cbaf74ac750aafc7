"""The cost of nodes in a month so far and to its end, how many were requested lately, and a cluster's use of a limit.

A node that runs counts against a month with its price from the month's start, or from its own, until the month's end.
When it is gone, the ledger keeps what it has cost (`Spent`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from nodesmith.model.apimachinery.labels import DECIDED, INITIALIZED, REGISTERED
from nodesmith.model.apimachinery.quantities import NODES, NOTHING, Resources
from nodesmith.model.apimachinery.requirements import NO_REQUIREMENTS, Requirement, Requirements
from nodesmith.model.ec2.launches import LaunchRequest
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.limits.spendinglimits import OF_NODEPOOLS, SpendingLimit
from nodesmith.model.policies import USD_PER_HOUR, USD_PER_MONTH, micro_usd

_INTERVAL, _WINDOW = timedelta(minutes=5), timedelta(hours=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
LEAST_HORIZON_SECONDS = 24 * 3600
"""A purchase must fit into what is left of a month for at least so long, even if the month ends before."""
_LATER = {REGISTERED: "true", INITIALIZED: "true"}
"""The labels that every node gets once it has joined."""


def month_of(now: datetime) -> str:
    """Return the month of a time in UTC, such as `2026-11`."""
    return f"{now.astimezone(UTC):%Y-%m}"


def month_start(now: datetime) -> datetime:
    """Return when the month of a time began."""
    return now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def month_end(now: datetime) -> datetime:
    """Return when the month of a time ends."""
    return month_start(month_start(now) + timedelta(days=32))


def _seconds(span: timedelta) -> int:
    """Return whole seconds, rounded up, at least 0."""
    return max(0, -(-span // _SECOND))


def seconds_left(now: datetime) -> int:
    """Return the seconds until the month of a time ends."""
    return _seconds(month_end(now) - now)


@dataclass(frozen=True, slots=True)
class Launches:
    """How many nodes were requested in each interval of five minutes: its number, and the nodes.

    An interval counts until an hour after its end, so that no hour has more than the limit.
    """

    counts: tuple[tuple[int, int], ...] = ()

    def recent(self, now: datetime) -> int:
        """Return how many count now."""
        return sum(count for _, count in self._counting(now))

    def noted(self, nodes: int, now: datetime) -> Launches:
        """Return the counts with further nodes that are requested now, without those that count no longer."""
        counts = dict(self._counting(now))
        interval = (now - _EPOCH) // _INTERVAL
        counts[interval] = counts.get(interval, 0) + nodes
        return Launches(tuple(sorted(counts.items())))

    def since(self, now: datetime) -> datetime | None:
        """Return when the newest interval that counts began."""
        return max((_EPOCH + at * _INTERVAL for at, _ in self._counting(now)), default=None)

    def freed_at(self, now: datetime) -> datetime | None:
        """Return when the oldest interval that counts does so no longer."""
        return min((_EPOCH + (at + 1) * _INTERVAL + _WINDOW for at, _ in self._counting(now)), default=None)

    def _counting(self, now: datetime) -> list[tuple[int, int]]:
        """Return what counts. Otherwise, times that no function's clock can have shown would count forever."""
        interval = (now - _EPOCH) // _INTERVAL
        return [
            (at, n)
            for at, n in self.counts
            if interval - _WINDOW // _INTERVAL <= at <= interval + 1 and n > 0
        ]

    def to_item(self) -> list[list[int]]:
        """Return the JSON document that `from_item` reads."""
        return [list(count) for count in self.counts]

    @classmethod
    def from_item(cls, item: Any) -> Launches:
        """Read what `to_item` writes; any other document has no launches."""
        try:
            return cls(tuple(sorted((int(at), int(count)) for at, count, *_ in item)))
        except (TypeError, ValueError):
            return cls()


NO_LAUNCHES = Launches()


@dataclass(frozen=True, slots=True)
class Spent:
    """What nodes that are gone have cost in a month, in the unit of `USD_PER_MONTH`, by their NodePool's labels."""

    month: str
    labels: Mapping[str, str]
    amount: int

    @property
    def key(self) -> str:
        """Return the month and a digest of the labels."""
        text = json.dumps(sorted(self.labels.items()), separators=(",", ":"))
        return f"{self.month}#{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def spent_by(claim: NodeClaim, now: datetime) -> Spent | None:
    """Return what a claim that is forgotten now has cost in the current month; None if that is nothing."""
    lived = now - max(claim.created_at, month_start(now))
    amount = micro_usd(claim.price_hourly_usd) * _seconds(lived) if claim.instance_id else 0
    labels = {key: text for key, text in claim.labels.items() if key not in DECIDED or key in OF_NODEPOOLS}
    return Spent(month_of(now), labels, amount) if amount else None


@dataclass(frozen=True, slots=True)
class Counted:
    """A node that counts: `labels` it has, and `open` requirements on others that are not settled yet.

    With `is_open`, labels that its type or offering decides may have any value. `monthly` is what it costs in the
    current month if it runs until its end.
    """

    labels: Mapping[str, str]
    capacity: Resources = NOTHING
    micro_usd: int = 0
    monthly: int = 0
    since: datetime | None = None
    open: Requirements = NO_REQUIREMENTS
    is_open: bool = False
    is_gone: bool = False

    def meets(self, requirements: Requirements) -> bool:
        """Return whether the node may meet requirements."""
        return all(map(self._may_meet, requirements.values()))

    def _may_meet(self, requirement: Requirement) -> bool:
        value, narrowed = self.labels.get(requirement.key), self.open.get(requirement.key)
        if value is not None:
            return requirement.allows(value)
        if narrowed is not None:
            return narrowed.intersects(requirement) or requirement.tolerates_absence
        return requirement.tolerates_absence or (self.is_open and requirement.key in DECIDED)

    def amount(self, resource: str) -> int:
        """Return what it takes of a limit."""
        if resource == NODES:
            return int(not self.is_gone)
        if resource == USD_PER_MONTH:
            return self.monthly
        return self.micro_usd if resource == USD_PER_HOUR else self.capacity.of(resource)


def _no_labels(_: NodeClaim) -> Mapping[str, str]:
    return {}


def counted_claims(
    claims: Iterable[NodeClaim],
    now: datetime,
    further: Callable[[NodeClaim], Mapping[str, str]] = _no_labels,
) -> Iterator[Counted]:
    """Yield what claims count as; `further` returns the labels that only the Node of a claim has.

    A claim that is not launched yet counts with the most that it may become.
    """
    start, end = month_start(now), month_end(now)
    for claim in claims:
        if claim.phase is Phase.GIVEN_UP and not claim.instance_id:
            continue  # an instance that never joined costs money until it is gone
        labels = {**_LATER, **claim.labels, **further(claim)}
        price, is_open = micro_usd(most_hourly_usd(claim)), claim.phase is Phase.PENDING
        began = min(now, max(claim.created_at, start))  # plans have a fixed time, before all nodes of a dump
        monthly = price * _seconds(end - began)
        unsettled = claim.requirements if is_open else NO_REQUIREMENTS
        yield Counted(labels, claim.capacity, price, monthly, claim.created_at, unsettled, is_open)


def most_hourly_usd(claim: NodeClaim) -> float:
    """Return the price of a claim; before its launch, that of the dearest offering that EC2 may pick."""
    if claim.phase is not Phase.PENDING or not claim.launch:
        return claim.price_hourly_usd
    launch = LaunchRequest.from_item(claim.name, claim.launch)
    return max(claim.price_hourly_usd, launch.most_hourly_usd)


def counted_spent(spent: Iterable[Spent], now: datetime) -> Iterator[Counted]:
    """Yield what nodes that are gone have cost in the current month."""
    for entry in spent:
        if entry.month == month_of(now):
            yield Counted({**_LATER, **entry.labels}, monthly=entry.amount, is_gone=True)


@dataclass(frozen=True, slots=True)
class Share:
    """What a cluster takes of a limit: an hour, and of a month if what runs does so until the month's end."""

    micro_usd: int = 0
    month: str = ""
    monthly: int = 0

    def in_month(self, now: datetime) -> int:
        """Return what counts in the month of `now`. In a later month, what ran then may run all the time."""
        if self.month == month_of(now):
            return self.monthly
        return self.micro_usd * _seconds(month_end(now) - month_start(now))


def share_of(limit: SpendingLimit, counted: Iterable[Counted], now: datetime) -> Share:
    """Return what these nodes take of a limit."""
    mine = [item for item in counted if item.meets(limit.quota.requirements)]
    return Share(sum(item.micro_usd for item in mine), month_of(now), sum(item.monthly for item in mine))
