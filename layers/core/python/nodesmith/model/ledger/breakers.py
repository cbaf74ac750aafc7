"""Breakers: what a NodePool has bought in vain, and how long its launches or replacements are paused for that.

A breaker remembers at most `KEPT_PURCHASES` purchases, each for a day, so its size has a bound whatever happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

FIRST_WAIT, LONGEST_WAIT = timedelta(minutes=10), timedelta(days=1)
"""The wait after the second useless purchase, and the longest one. Each is twelve times the one before."""
FREE_ATTEMPTS = 2
"""How often nodes are bought for the same pods without a wait."""
_GROWTH = 12


def wait_after(purchases: int) -> timedelta:
    """Return the wait after so many purchases in a row that came to nothing, so that a day has at most four.

    The second follows the first at once.
    """
    if purchases < FREE_ATTEMPTS:
        return timedelta()
    grown: int = _GROWTH ** min(purchases - FREE_ATTEMPTS, 3)
    return min(LONGEST_WAIT, FIRST_WAIT * grown)


class PurchaseFailure(StrEnum):
    """How a purchase came to nothing. The values are the reasons of the condition NodesBoughtInVain."""

    NOT_REGISTERED = "NodesNotRegistered"
    NOT_INITIALIZED = "NodesNotInitialized"
    UNUSED = "NodesUnused"
    """pods that it was bought for still waited when the node was ready, and none came"""
    WITHDRAWN = "PodsWithdrawn"
    """no pod came, and those that it was bought for were gone"""
    MOVED_AGAIN = "NodesReplacedAgain"
    """a replacement that was itself replaced soon, or a node for pods whose node nodesmith had just removed"""


_IN_WORDS: Mapping[PurchaseFailure, str] = {
    PurchaseFailure.NOT_REGISTERED: "they did not join the cluster",
    PurchaseFailure.NOT_INITIALIZED: "they were not initialized within half an hour",
    PurchaseFailure.UNUSED: "the pods that they were bought for never ran there",
    PurchaseFailure.WITHDRAWN: "the pods that they were bought for were gone when they were ready",
    PurchaseFailure.MOVED_AGAIN: "each was removed soon, and another was bought for the same pods",
}
RESET_HINT = "find the cause, then change the NodePool or its annotation nodesmith.dev/reset-launches"


@dataclass(frozen=True, slots=True)
class Wasted:
    """The nodes of one purchase that came to nothing: when it was decided, how many, and one of their NodeClaims."""

    at: datetime
    nodes: int
    failure: PurchaseFailure
    claim: str


MOST_IN_VAIN, MOST_WITHDRAWN = 3, 8
"""How many purchases trip a breaker, unless more nodes were used in the last hour; the second if pods were withdrawn.

Nodes that were bought together are one purchase.
"""
KEPT_PURCHASES = 8
"""The most purchases in vain that a breaker remembers."""
IN_VAIN_WINDOW = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Breaker:
    """The purchases in vain of a NodePool, oldest first, and how often in a row they have tripped the breaker.

    Until `until` nothing is bought; from then on one node at a time is tried (half-open), until it turns out well.
    """

    wasted: tuple[Wasted, ...] = ()
    trips: int = 0
    until: datetime | None = None

    def holds(self, now: datetime) -> bool:
        """Return whether nothing may be bought now."""
        return self.until is not None and now < self.until

    @property
    def is_tripped(self) -> bool:
        """Whether it has tripped and no trial has turned out well since."""
        return self.trips > 0

    @property
    def main_failure(self) -> PurchaseFailure | None:
        """Return how most of the purchases came to nothing, None if there are none."""
        kinds = [wasted.failure for wasted in self.wasted]
        return max(sorted(set(kinds)), key=kinds.count, default=None)

    @property
    def summary(self) -> str:
        """What was bought in vain, as a clause."""
        latest = f", the last time NodeClaim {self.wasted[-1].claim}" if self.wasted else ""
        failure = self.main_failure or PurchaseFailure.UNUSED
        times = (
            f"{len(self.wasted)} times in a row"
            if failure is not PurchaseFailure.MOVED_AGAIN
            else "again and again"
        )
        return f"nodes were bought in vain {times}{latest} ({_IN_WORDS[failure]})"

    def message(self, now: datetime) -> str:
        """Return what was bought in vain, what waits for it, and until when."""
        is_loop = self.main_failure is PurchaseFailure.MOVED_AGAIN
        consequence = "disruption of its nodes is paused" if is_loop else "its launches are paused"
        if self.until is not None and self.holds(now):
            return f"{self.summary}; {consequence} until {self.until:%Y-%m-%d %H:%M:%S} UTC"
        return f"{self.summary}; it is tried with one node"

    @property
    def is_due(self) -> bool:
        """Whether so many purchases in a row were in vain that it trips."""
        withdrawn = sum(wasted.failure is PurchaseFailure.WITHDRAWN for wasted in self.wasted)
        return len(self.wasted) - withdrawn >= MOST_IN_VAIN or len(self.wasted) >= MOST_WITHDRAWN

    def noted(self, wasted: Iterable[Wasted], since: datetime) -> Breaker:
        """Return it with further purchases in vain, each once, and without those before `since`."""
        by_time = {purchase.at: purchase for purchase in self.wasted}
        for purchase in wasted:
            before = by_time.get(purchase.at)
            by_time[purchase.at] = purchase if before is None or before.nodes < purchase.nodes else before
        recent = [by_time[at] for at in sorted(by_time) if at >= since]
        return replace(self, wasted=tuple(recent[-KEPT_PURCHASES:]))

    def tripped(self, now: datetime) -> Breaker:
        """Return it after it trips once more."""
        return replace(self, trips=self.trips + 1, until=now + wait_after(FREE_ATTEMPTS + 1 + self.trips))

    def to_item(self) -> dict[str, Any]:
        """Return the JSON document that `from_item` reads."""
        wasted = [
            [purchase.at.isoformat(), purchase.nodes, purchase.failure, purchase.claim]
            for purchase in self.wasted
        ]
        until = {"until": self.until.isoformat()} if self.until else {}
        return {"wasted": wasted, "trips": self.trips, **until}

    @classmethod
    def from_item(cls, item: Mapping[str, Any] | None) -> Breaker:
        """Read what `to_item` writes, without purchases of kinds that only later releases know."""
        if item is None:
            return CLOSED
        rows = [row for row in item["wasted"] if row[2] in set(PurchaseFailure)]
        wasted = (
            Wasted(datetime.fromisoformat(at), int(n), PurchaseFailure(failure), c)
            for at, n, failure, c, *_ in rows
        )
        until = datetime.fromisoformat(item["until"]) if item.get("until") else None
        return cls(tuple(wasted), int(item["trips"]), until)


CLOSED = Breaker()
