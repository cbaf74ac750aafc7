"""What the clusters of a region share: SpendingLimits, what each cluster takes of them, and launches an hour.

A limit over several clusters is held by one document (`Region`). A commit writes what its cluster then takes, on
condition that no other cluster has written in between. What a cluster takes only falls between its commits, so a
document that is out of date is too high, and writing what the ledger says releases what was taken in vain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from nodesmith.errors import Conflict
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
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
from nodesmith.model.policies import LAUNCHES_OF_CLUSTER, USD_PER_HOUR, USD_PER_MONTH
from nodesmith.model.spendinglimits import SpendingLimit

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

    @property
    def is_used(self) -> bool:
        """Whether there are limits, or shares of limits that are gone."""
        return bool(self.limits or self.shares)

    @property
    def most_launches(self) -> int:
        """How many nodes all clusters may request within an hour."""
        chosen = [each.launches for each in self.limits if each.launches is not None]
        return min(chosen, default=LAUNCHES_OF_ACCOUNT)

    @property
    def own_limits(self) -> tuple[SpendingLimit, ...]:
        """The limits of money that apply to the cluster."""
        return tuple(each for each in self.limits if each.covers(self.cluster) and each.quota.limits)

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
        known = self.shares.get(limit.key, {}).keys() | {self.cluster}
        return tuple(name for name in self.clusters if limit.covers(name) and name not in known)

    def told(self, limit: SpendingLimit, now: datetime) -> dict[str, int]:
        """Return how much of a limit all of its clusters take, as they have told, by resource."""
        shares = [share for name, share in self.shares.get(limit.key, {}).items() if limit.covers(name)]
        return {
            USD_PER_HOUR: sum(each.micro_usd for each in shares),
            USD_PER_MONTH: sum(each.in_month(now) for each in shares),
        }

    def with_own(self, shares: Mapping[str, Share]) -> Region:
        """Return the document with what the cluster takes of each limit, by the limit's key.

        Clusters that are not registered, and limits that are gone, are left out.
        """
        there = {*self.clusters, self.cluster}
        after: dict[str, Mapping[str, Share]] = {}
        for key in (limit.key for limit in self.limits):
            known = {name: share for name, share in self.shares.get(key, {}).items() if name in there}
            after[key] = {**known, self.cluster: shares[key]} if key in shares else known
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
        asked = sum(claim.phase is Phase.PENDING for claim in new)
        launches = self.launches.noted(asked, now)
        if launches.lately(now) > self.most_launches:
            raise Conflict(f"the account may request {self.most_launches} nodes an hour")
        own = self.own_shares([*before, *new], spent, now)
        added = list(counted_claims(new, now))
        for limit in self.own_limits:
            self._check(limit, own[limit.key], added, now)
        return replace(self.with_own(own), launches=launches)

    def _check(self, limit: SpendingLimit, own: Share, added: Iterable[Counted], now: datetime) -> None:
        """Raise Conflict if a limit does not allow the nodes that are `added`, with which the cluster takes `own`."""
        mine = [each for each in added if each.meets(limit.quota.requirements)]
        if mine and (limit.quota.fault or self.uncounted(limit)):
            raise Conflict(f"{limit.quota.owner} allows nothing now")
        others, limits = list(self.others(limit).values()), limit.quota.limits
        hourly = own.micro_usd + sum(each.micro_usd for each in others)
        monthly = own.in_month(now) + sum(each.in_month(now) for each in others)
        for resource, taken in ((USD_PER_HOUR, hourly), (USD_PER_MONTH, monthly)):
            if resource in limits and taken > limits[resource] and any(e.amount(resource) for e in mine):
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
        return {"limits": [each.to_item() for each in self.limits], "clusters": list(self.clusters)}


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
    )


@dataclass(frozen=True, slots=True)
class Spending:
    """What the ledger knows of money and launches. `region` is None for functions that do not buy nodes."""

    launches: Launches = NO_LAUNCHES
    most_launches: int = LAUNCHES_OF_CLUSTER
    spent: tuple[Spent, ...] = ()
    region: Region | None = None

    def launches_left(self, now: datetime) -> int:
        """Return how many nodes may still be requested now."""
        left = self.most_launches - self.launches.lately(now)
        region = self.region
        if region is not None:
            left = min(left, region.most_launches - region.launches.lately(now))
        return max(0, left)

    def charged(self, before: Iterable[NodeClaim], new: Sequence[NodeClaim], now: datetime) -> Spending:
        """Return this after a commit of new claims to those before. Raises Conflict if a limit does not allow it."""
        asked = sum(claim.phase is Phase.PENDING for claim in new)
        if not asked:
            return self
        launches = self.launches.noted(asked, now)
        if launches.lately(now) > self.most_launches:
            raise Conflict(f"the cluster may request {self.most_launches} nodes an hour")
        region = self.region.charged(before, new, self.spent, now) if self.region is not None else None
        return replace(self, launches=launches, region=region)

    def to_item(self) -> dict[str, Any]:
        """Return the JSON document that `from_item` reads."""
        item: dict[str, Any] = {
            "launches": self.launches.to_item(),
            "most_launches": self.most_launches,
            "spent": [[each.month, dict(sorted(each.labels.items())), each.amount] for each in self.spent],
        }
        region = self.region
        if region is not None:
            item["region"] = {"cluster": region.cluster, **region.limits_document(), **region.document()}
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
