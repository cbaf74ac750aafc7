"""Back-offs after failures; the health of NodePools, whose nodes may fail to join; their breakers against runaways.

A breaker remembers the purchases of a NodePool that came to nothing. It keeps at most `KEPT_PURCHASES` of them, each
for a day, so its size has a bound whatever happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from nodesmith.model.ec2.launches import OfferingKey
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


FIRST_WAIT, LONGEST_WAIT = timedelta(minutes=10), timedelta(days=1)
"""The wait after the second purchase in vain, and the longest one. Each is twelve times the one before."""
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


class InVain(StrEnum):
    """How a purchase came to nothing. The values are the reasons of the condition LaunchesHealthy."""

    NOT_REGISTERED = "NodesNotRegistered"
    NOT_INITIALIZED = "NodesNotInitialized"
    UNUSED = "NodesUnused"
    """pods that it was bought for still waited when the node was ready, and none came"""
    WITHDRAWN = "PodsWithdrawn"
    """no pod came, and those that it was bought for were gone"""
    MOVED_AGAIN = "NodesReplacedAgain"
    """a replacement that was itself replaced soon, or a node for pods whose node nodesmith had just removed"""


_IN_WORDS: Mapping[InVain, str] = {
    InVain.NOT_REGISTERED: "they did not join the cluster",
    InVain.NOT_INITIALIZED: "they were not initialized within half an hour",
    InVain.UNUSED: "the pods that they were bought for never ran there",
    InVain.WITHDRAWN: "the pods that they were bought for were gone when they were ready",
    InVain.MOVED_AGAIN: "each was removed soon, and another was bought for the same pods",
}
RESET_HINT = "find the cause, then change the NodePool or its annotation nodesmith.dev/reset-launches"


@dataclass(frozen=True, slots=True)
class Wasted:
    """The nodes of one purchase that came to nothing: when it was decided, how many, and one of their NodeClaims."""

    at: datetime
    nodes: int
    why: InVain
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
    def why(self) -> InVain | None:
        """Return how most of the purchases came to nothing, None if there are none."""
        kinds = [each.why for each in self.wasted]
        return max(sorted(set(kinds)), key=kinds.count, default=None)

    @property
    def nodes(self) -> int:
        """The number of nodes that were bought in vain."""
        return sum(each.nodes for each in self.wasted)

    @property
    def told(self) -> str:
        """What was bought in vain, as a clause."""
        last = f", the last time NodeClaim {self.wasted[-1].claim}" if self.wasted else ""
        why = self.why or InVain.UNUSED
        times = f"{len(self.wasted)} times in a row" if why is not InVain.MOVED_AGAIN else "again and again"
        return f"nodes were bought in vain {times}{last} ({_IN_WORDS[why]})"

    def said(self, now: datetime) -> str:
        """Return what was bought in vain, what waits for it, and until when."""
        is_loop = self.why is InVain.MOVED_AGAIN
        what = "disruption of its nodes is paused" if is_loop else "its launches are paused"
        if self.until is not None and self.holds(now):
            return f"{self.told}; {what} until {self.until:%Y-%m-%d %H:%M:%S} UTC"
        return f"{self.told}; it is tried with one node"

    @property
    def is_due(self) -> bool:
        """Whether so many purchases in a row were in vain that it trips."""
        withdrawn = sum(each.why is InVain.WITHDRAWN for each in self.wasted)
        return len(self.wasted) - withdrawn >= MOST_IN_VAIN or len(self.wasted) >= MOST_WITHDRAWN

    def noted(self, found: Iterable[Wasted], since: datetime) -> Breaker:
        """Return it with further purchases in vain, each once, and without those before `since`."""
        known = {each.at: each for each in self.wasted}
        for each in found:
            before = known.get(each.at)
            known[each.at] = each if before is None or before.nodes < each.nodes else before
        kept = [known[at] for at in sorted(known) if at >= since]
        return replace(self, wasted=tuple(kept[-KEPT_PURCHASES:]))

    def tripped(self, now: datetime) -> Breaker:
        """Return it after it trips once more."""
        return replace(self, trips=self.trips + 1, until=now + wait_after(FREE_ATTEMPTS + 1 + self.trips))


CLOSED = Breaker()

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
    launches: Breaker = CLOSED
    """stops launches. Like the next three, it does not depend on `basis`."""
    moves: Breaker = CLOSED
    """stops the voluntary disruption of its nodes"""
    specs: tuple[str, ...] = ()
    """Digests of the specs that it had since nodes were last bought in vain, newest last."""
    reset: str = ""
    """The value of the annotation RESET_LAUNCHES that was last obeyed."""
    resets: tuple[datetime, ...] = ()
    """When the breakers were reset, newest last. Purchases before the newest do not count any more."""
    revision: int = 0
    """Number of writes to the ledger: the optimistic lock."""

    @property
    def reset_at(self) -> datetime | None:
        """When the breakers were last reset."""
        return self.resets[-1] if self.resets else None

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


_LASTING = "launches", "moves", "specs", "reset", "resets", "revision"
"""What of a NodePool's health does not depend on its basis."""


def current_health(health: RegistrationHealth | None, basis: str) -> RegistrationHealth | None:
    """Return the health if it was observed with `basis`, else what of it lasts; None if nothing is known."""
    return health if health is None or health.basis == basis else lasting(health, basis)


def lasting(health: RegistrationHealth, basis: str, since: datetime | None = None) -> RegistrationHealth:
    """Return the health of a NodePool whose basis has changed."""
    return replace(RegistrationHealth(basis, since), **{name: getattr(health, name) for name in _LASTING})
