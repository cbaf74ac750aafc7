"""What the clusters of a region share: SpendingLimits, what each takes of them, launches an hour, and EC2's calls.

A limit over several clusters is held by one document (`Region`). A commit writes what its cluster then takes, on
condition that no other cluster has written in between. Between its commits, what a cluster takes can only fall. An
outdated document is therefore too high, and writing what the ledger says releases what was taken but not used.

EC2 counts CreateFleet calls for the whole account and region: its token bucket holds 50 and gains 5 a second (Amazon
EC2 Developer Guide, "Request throttling"). Clusters of a region that need many calls share a token bucket that is
smaller than EC2's. The rest is left to clusters that need a few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any

from nodesmith.errors import Conflict
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.ledger.learned import LONGEST_BACKOFF
from nodesmith.model.ledger.spending import (
    NO_LAUNCHES,
    Counted,
    Launches,
    Share,
    Spent,
    counted_claims,
    counted_spent,
    share_of,
)
from nodesmith.model.limits.spendinglimits import SpendingLimit
from nodesmith.model.policies import LAUNCHES_OF_CLUSTER, USD_PER_HOUR, USD_PER_MONTH

LAUNCHES_OF_ACCOUNT = 2000
"""How many nodes all clusters may request within an hour, unless a SpendingLimit says otherwise."""


@dataclass(frozen=True, slots=True)
class Region:
    """What the clusters of the region share: SpendingLimits, what each cluster takes of them, and launches.

    `clusters` are the registered ones. `cluster` is the one that reads this. `shares` are by the key of a limit.
    """

    cluster: str
    limits: tuple[SpendingLimit, ...] = ()
    clusters: tuple[str, ...] = ()
    shares: Mapping[str, Mapping[str, Share]] = field(default_factory=dict)
    launches: Launches = NO_LAUNCHES
    revision: int = 0
    calls: CallBudget | None = None
    """The budget of calls when the ledger was read; None if it was not."""
    lost: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    """Until when EC2 is taken to have nothing in zones, by capacity type and zone, as any cluster has learned."""

    @property
    def is_used(self) -> bool:
        """Whether there are limits, or shares of limits that are gone."""
        return bool(self.limits or self.shares)

    @property
    def most_launches(self) -> int:
        """How many nodes all clusters may request within an hour."""
        set_limits = [limit.launches for limit in self.limits if limit.launches is not None]
        return min(set_limits, default=LAUNCHES_OF_ACCOUNT)

    @property
    def own_limits(self) -> tuple[SpendingLimit, ...]:
        """The limits of money that apply to the cluster."""
        return tuple(limit for limit in self.limits if limit.covers(self.cluster) and limit.quota.limits)

    def others(self, limit: SpendingLimit) -> dict[str, Share]:
        """Return what other clusters take of a limit, by cluster."""
        shares = self.shares.get(limit.key, {})
        return {name: shares[name] for name in sorted(shares) if name != self.cluster and limit.covers(name)}

    def uncounted(self, limit: SpendingLimit) -> tuple[str, ...]:
        """Return the registered clusters of which it is not known yet what they take of a limit."""
        if limit.clusters == (self.cluster,):
            return ()
        if self.cluster not in self.clusters:
            return (self.cluster,)
        counted = self.shares.get(limit.key, {}).keys() | {self.cluster}
        return tuple(name for name in self.clusters if limit.covers(name) and name not in counted)

    def reported_use(self, limit: SpendingLimit, now: datetime) -> dict[str, int]:
        """Return how much of a limit all of its clusters have reported to take, by resource."""
        shares = [share for name, share in self.shares.get(limit.key, {}).items() if limit.covers(name)]
        return {
            USD_PER_HOUR: sum(share.micro_usd for share in shares),
            USD_PER_MONTH: sum(share.in_month(now) for share in shares),
        }

    def with_own(self, shares: Mapping[str, Share]) -> Region:
        """Return the document with what the cluster takes of each limit, by the limit's key.

        Clusters that are not registered, and limits that are gone, are left out.
        """
        clusters = {*self.clusters, self.cluster}
        after: dict[str, Mapping[str, Share]] = {}
        for key in (limit.key for limit in self.limits):
            current = {name: share for name, share in self.shares.get(key, {}).items() if name in clusters}
            after[key] = {**current, self.cluster: shares[key]} if key in shares else current
        return replace(self, shares={key: by for key, by in after.items() if by})

    def own_shares(
        self, claims: Iterable[NodeClaim], spent: Iterable[Spent], now: datetime
    ) -> dict[str, Share]:
        """Return what the cluster takes of the limits that apply to it, by their keys."""
        if not self.own_limits:
            return {}
        counted = [*counted_claims(claims, now), *counted_spent(spent, now)]
        return {limit.key: share_of(limit, counted, now) for limit in self.own_limits}

    def charged(
        self, before: Iterable[NodeClaim], new: Sequence[NodeClaim], spent: Iterable[Spent], now: datetime
    ) -> Region:
        """Return the document after a commit of new claims to those before.

        Raises Conflict if a limit does not allow that.
        """
        launching = sum(claim.phase is Phase.PENDING for claim in new)
        launches = self.launches.noted(launching, now)
        if launches.recent(now) > self.most_launches:
            raise Conflict(f"the account may request {self.most_launches} nodes an hour")
        shares = self.own_shares([*before, *new], spent, now)
        added = list(counted_claims(new, now))
        for limit in self.own_limits:
            self._check(limit, shares[limit.key], added, now)
        return replace(self.with_own(shares), launches=launches)

    def _check(self, limit: SpendingLimit, own: Share, added: Iterable[Counted], now: datetime) -> None:
        """Raise Conflict if a limit does not allow the nodes that are `added`, with which the cluster takes `own`."""
        mine = [counted for counted in added if counted.meets(limit.quota.requirements)]
        if mine and (limit.quota.fault or self.uncounted(limit)):
            raise Conflict(f"{limit.quota.owner} allows nothing now")
        others, limits = list(self.others(limit).values()), limit.quota.limits
        hourly = own.micro_usd + sum(share.micro_usd for share in others)
        monthly = own.in_month(now) + sum(share.in_month(now) for share in others)
        for resource, amount in ((USD_PER_HOUR, hourly), (USD_PER_MONTH, monthly)):
            if resource in limits and amount > limits[resource] and any(e.amount(resource) for e in mine):
                raise Conflict(f"{limit.quota.owner} allows no more")

    def document(self) -> dict[str, Any]:
        """Return the JSON document of shares and launches."""
        shares = {
            key: {name: [s.micro_usd, s.month, s.monthly] for name, s in sorted(self.shares[key].items())}
            for key in sorted(self.shares)
        }
        return {"shares": shares, "launches": self.launches.to_item()}

    def limits_document(self) -> dict[str, Any]:
        """Return the JSON document of limits and registered clusters."""
        return {"limits": [limit.to_item() for limit in self.limits], "clusters": list(self.clusters)}


def region_of(cluster: str, limits: Mapping[str, Any], document: Mapping[str, Any], revision: int) -> Region:
    """Read what `Region.limits_document` and `Region.document` write."""
    shares = {
        key: {name: Share(int(rate), month, int(monthly)) for name, (rate, month, monthly, *_) in by.items()}
        for key, by in document.get("shares", {}).items()
    }
    return Region(
        cluster,
        tuple(map(SpendingLimit.from_item, limits.get("limits", ()))),
        tuple(limits.get("clusters", ())),
        shares,
        Launches.from_item(document.get("launches", ())),
        revision,
        lost=read_lost(document.get("lost", ())),
    )


def lost_item(lost: Mapping[tuple[str, str], datetime]) -> list[list[str]]:
    """Write lost zones as JSON data."""
    return [[*zone, lost[zone].isoformat()] for zone in sorted(lost)]


def read_lost(rows: Iterable[Sequence[str]]) -> dict[tuple[str, str], datetime]:
    """Read what `lost_item` writes. Raises ValueError, TypeError for anything else."""
    return {(str(kind), str(zone)): parse_time(until) for kind, zone, until, *_ in rows}


@dataclass(frozen=True, slots=True)
class Spending:
    """The ledger's record of money and launches. `region` is None for functions that do not buy nodes."""

    launches: Launches = NO_LAUNCHES
    most_launches: int = LAUNCHES_OF_CLUSTER
    spent: tuple[Spent, ...] = ()
    region: Region | None = None

    def launches_left(self, now: datetime) -> int:
        """Return how many nodes may still be requested now."""
        remaining = self.most_launches - self.launches.recent(now)
        region = self.region
        if region is not None:
            remaining = min(remaining, region.most_launches - region.launches.recent(now))
        return max(0, remaining)

    @property
    def calls(self) -> CallBudget:
        """The budget of calls, as it was when the ledger was read."""
        calls = self.region.calls if self.region is not None else None
        return calls or CallBudget()

    def is_short_of_calls(self, now: datetime) -> bool:
        """Return whether EC2 has throttled calls of the region lately."""
        return self.calls.is_short(now)

    def turn(self, wanted: int, now: datetime) -> datetime:
        """Return when the cluster may expect calls after it has asked for some."""
        cluster = self.region.cluster if self.region is not None else ""
        return self.calls.take(cluster, wanted, now)[1].turn(cluster, now)

    def lost_zones(self, now: datetime) -> frozenset[tuple[str, str]]:
        """Return the zones, each with a capacity type, in which clusters have found nothing left lately."""
        lost = self.region.lost if self.region is not None else {}
        return frozenset(zone for zone, until in lost.items() if now < until <= now + LONGEST_BACKOFF)

    def charged(self, before: Iterable[NodeClaim], new: Sequence[NodeClaim], now: datetime) -> Spending:
        """Return this after a commit of new claims to those before. Raises Conflict if a limit does not allow it."""
        launching = sum(claim.phase is Phase.PENDING for claim in new)
        if not launching:
            return self
        launches = self.launches.noted(launching, now)
        if launches.recent(now) > self.most_launches:
            raise Conflict(f"the cluster may request {self.most_launches} nodes an hour")
        region = self.region.charged(before, new, self.spent, now) if self.region is not None else None
        return replace(self, launches=launches, region=region)

    def to_item(self) -> dict[str, Any]:
        """Return the JSON document that `from_item` reads."""
        item: dict[str, Any] = {
            "launches": self.launches.to_item(),
            "most_launches": self.most_launches,
            "spent": [[row.month, dict(sorted(row.labels.items())), row.amount] for row in self.spent],
        }
        region = self.region
        if region is not None:
            item["region"] = {"cluster": region.cluster, **region.limits_document(), **region.document()}
            if region.lost:
                item["region"]["lost"] = lost_item(region.lost)
        return item

    @classmethod
    def from_item(cls, item: Mapping[str, Any]) -> Spending:
        """Read what `to_item` writes."""
        region = item.get("region")
        return cls(
            Launches.from_item(item["launches"]),
            int(item["most_launches"]),
            tuple(Spent(month, labels, int(amount)) for month, labels, amount, *_ in item["spent"]),
            region_of(region["cluster"], region, region, 0) if region else None,
        )


NO_SPENDING = Spending()


MOST_CALLS = 32
CALLS_PER_SECOND = 4.0
SHORT_CALLS_PER_SECOND = 4.8
"""While calls are short: no run makes calls outside of the budget, which would leave less of EC2's 5 a second."""
SHORT_FOR = timedelta(minutes=1)
"""How long calls count as short after EC2 has throttled one, or after a cluster got none of the budget meanwhile."""
ACTIVE_FOR = timedelta(seconds=30)
"""How long a cluster counts as one that shares the budget after it has asked for calls."""
LONGEST_WAIT = timedelta(seconds=20)
"""How long a cluster in line waits before it asks again, so that it keeps its place."""
LONGEST_ROUND = timedelta(seconds=25)
"""How long a cluster waits after a purchase while calls are short, so that it still counts as one that shares them."""
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


def _seconds(waited: timedelta) -> float:
    """Return the seconds waited; 0 if the clocks of functions, which differ slightly, make them negative."""
    return max(0.0, waited.total_seconds())


@dataclass(frozen=True, slots=True)
class Scarcity:
    """What one cluster has learned that EC2 lacks in the region: calls, or capacity in zones as in `Region.lost`."""

    is_throttled: bool = False
    lost: Mapping[tuple[str, str], datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CallBudget:
    """A token bucket of calls, when each cluster last asked for some, and the clusters that wait for some in line.

    A new one is full. `waiting_since` has the clusters that did not get all they asked for. Until `short_until`, all
    clusters take all their calls from it. `lost` is as in `Region`.
    """

    calls: float = MOST_CALLS
    at: datetime = _NEVER
    asked_at: Mapping[str, datetime] = field(default_factory=dict)
    waiting_since: Mapping[str, datetime] = field(default_factory=dict)
    short_until: datetime | None = None
    lost: Mapping[tuple[str, str], datetime] = field(default_factory=dict)

    def with_scarcity(self, scarcity: Scarcity, now: datetime) -> CallBudget:
        """Return the budget after a cluster has learned what EC2 lacks. If it throttles, calls are short for now."""
        zones = {zone: until for zone, until in self.lost.items() if now < until <= now + LONGEST_BACKOFF}
        short_until = now + SHORT_FOR if scarcity.is_throttled else self.short_until
        return replace(self, short_until=short_until, lost={**zones, **scarcity.lost})

    def is_short(self, now: datetime) -> bool:
        """Return whether all clusters take all their calls from this budget for now."""
        return self.short_until is not None and now < self.short_until <= now + SHORT_FOR + ACTIVE_FOR

    def take(self, cluster: str, wanted: int, now: datetime) -> tuple[int, CallBudget]:
        """Return how many of `wanted` calls a cluster may make now, and the budget afterwards.

        Clusters that have asked within `ACTIVE_FOR` are served in the order in which they came. Each gets an equal part
        of a full bucket, or of what the bucket holds while calls are short, but at least one call. A cluster that gets
        less keeps its place; one that wants more goes to the end of the queue.
        """
        budget = self.current(now)
        since, share, ahead = budget.place(cluster, now)
        granted = max(0, min(wanted, share, int(budget.calls) - ahead))
        waiting = {name: at for name, at in budget.waiting_since.items() if name != cluster}
        if granted < wanted:
            waiting[cluster] = now if granted == share else since
        asked_at = {**budget.asked_at, cluster: max(now, budget.asked_at.get(cluster, now))}
        is_scarce = budget.short_until is not None and granted < wanted
        until = now + SHORT_FOR if is_scarce else budget.short_until
        return granted, CallBudget(budget.calls - granted, budget.at, asked_at, waiting, until, budget.lost)

    def turn(self, cluster: str, now: datetime) -> datetime:
        """Return when a cluster may expect a call: now, unless it is in line for one."""
        budget = self.current(now)
        if cluster not in budget.waiting_since:
            return now
        _, _, ahead = budget.place(cluster, now)
        rate = SHORT_CALLS_PER_SECOND if budget.short_until else CALLS_PER_SECOND
        seconds = max(0.0, (ahead + 1 - budget.calls) / rate)
        return now + min(timedelta(seconds=seconds), LONGEST_WAIT)

    def next_round(self, calls: int, now: datetime) -> datetime:
        """Return when a cluster may buy again, if all that share the budget make as many calls at the same rate."""
        clusters = max(1, len(self.current(now).asked_at))
        return now + min(timedelta(seconds=calls * clusters / SHORT_CALLS_PER_SECOND), LONGEST_ROUND)

    def place(self, cluster: str, now: datetime) -> tuple[datetime, int, int]:
        """Return since when a cluster is in line, how many calls it gets, and how many are kept for those before it."""
        since = self.waiting_since.get(cluster, now)
        clusters = len(self.asked_at.keys() | {cluster})
        share = max(1, int(self.calls / clusters)) if self.short_until else ceil(MOST_CALLS / clusters)
        before = sum(at < since for name, at in self.waiting_since.items() if name != cluster)
        return since, share, before * share

    def current(self, now: datetime) -> CallBudget:
        """Return the budget with the calls that it has gained until now, and the clusters that have asked lately.

        Times that no function's clock can have shown are left out. All clusters share the item, so a wrong one would
        otherwise stop their large purchases until that time.
        """
        latest = now + ACTIVE_FOR
        asking = {name: at for name, at in self.asked_at.items() if now - ACTIVE_FOR < at <= latest}
        waiting = {name: at for name, at in self.waiting_since.items() if name in asking and at <= latest}
        short, rate = (
            (self.short_until, SHORT_CALLS_PER_SECOND) if self.is_short(now) else (None, CALLS_PER_SECOND)
        )
        at = self.at if self.at <= latest else now
        held = min(float(MOST_CALLS), max(0.0, self.calls) + _seconds(now - at) * rate)
        return CallBudget(held, max(now, at), asking, waiting, short, self.lost)

    def to_item(self) -> dict[str, Any]:
        """Return the JSON document that `from_item` reads."""
        asked, waiting = (
            {cluster: at.isoformat() for cluster, at in sorted(known.items())}
            for known in (self.asked_at, self.waiting_since)
        )
        item = {"calls": self.calls, "at": self.at.isoformat(), "askedAt": asked, "owedSince": waiting}
        short = {"shortUntil": self.short_until.isoformat()} if self.short_until else {}
        return item | short | ({"lost": lost_item(self.lost)} if self.lost else {})

    @classmethod
    def from_item(cls, item: Mapping[str, Any]) -> CallBudget:
        """Read what `to_item` writes; any other document, such as an empty one, is a full budget."""
        try:
            asked, waiting = (
                {cluster: parse_time(at) for cluster, at in known.items()}
                for known in (item["askedAt"], item.get("owedSince", {}))
            )
            until = item.get("shortUntil")
            short = parse_time(until) if until is not None else None
            lost = read_lost(item.get("lost", ()))
            return cls(float(item["calls"]), parse_time(item["at"]), asked, waiting, short, lost)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            return cls()
