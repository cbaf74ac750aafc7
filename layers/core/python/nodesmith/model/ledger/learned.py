"""What failures, interruptions and nodes have taught: back-offs, registration health, costs, and what nodes offer.

How much memory the hypervisor and the image use is not known before a node runs. It depends on the instance type and
the image. How much of the rest the kubelet reserves depends on the EC2NodeClass as well. The recorded costs of
interruptions and drains are halved with each day that passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from math import exp2, log, log2

from nodesmith.model.apimachinery.quantities import CPU, EPHEMERAL_STORAGE, MEMORY, Resources
from nodesmith.model.ec2.capacity import MIB, NO_LIMITS, AttachLimits, allocatable, overhead
from nodesmith.model.ec2.catalog import Catalog, InstanceFacts
from nodesmith.model.ec2.instancetypes import InstanceType, image_for, instance_types
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.hashes import hash_in_cluster
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.ledger.breakers import CLOSED, Breaker
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from nodesmith.model.nodeclasses.status import NodeClassStatus
from nodesmith.model.policies import NodeSettings

_RESERVED = (CPU, MEMORY, EPHEMERAL_STORAGE)
_MOST_NODECLASSES = 16
_LEAST, _MOST = 0.8, 1.1
"""Bounds for a node's memory, as fractions of the expected memory. A value outside them is ignored."""


@dataclass(frozen=True, slots=True, order=True)
class Boot:
    """What a node was booted from: an instance type and an image."""

    instance_type: str
    image_id: str


@dataclass(frozen=True, slots=True)
class Offered:
    """The least that nodes of one type and image have reported.

    `allocatable` is the CPU, memory and ephemeral storage for pods, by the hash of the EC2NodeClass without the
    cluster's CA bundle.
    """

    memory_bytes: int
    """capacity, before anything is reserved"""
    allocatable: Mapping[str, Resources] = field(default_factory=dict)


def boot_of(claim: NodeClaim) -> Boot | None:
    """Return what a claim's node was booted from, None if that is not known."""
    return Boot(claim.instance_type, claim.image_id) if claim.instance_type and claim.image_id else None


def learned(earlier: Offered | None, claim: NodeClaim, expected_bytes: int, ca_bundle: str) -> Offered | None:
    """Return the minimum of `earlier` and what a claim's node reports; None if that changes nothing.

    `expected_bytes` is the memory that the node was expected to have, and `ca_bundle` is the cluster's CA bundle.
    """
    memory_bytes = claim.capacity.memory_bytes
    # Without the CA bundle, the hash is the same in all clusters.
    nodeclass = hash_in_cluster(claim.comparable_nodeclass_hash, ca_bundle)
    if not nodeclass or not _LEAST * expected_bytes <= memory_bytes <= _MOST * expected_bytes:
        return None
    least = Resources({name: claim.allocatable.of(name) for name in _RESERVED})
    if earlier is None:
        return Offered(memory_bytes, {nodeclass: least})
    before = earlier.allocatable.get(nodeclass)
    if before is not None:
        least = Resources({name: min(before.of(name), least.of(name)) for name in _RESERVED})
    remaining = {key: value for key, value in earlier.allocatable.items() if key != nodeclass}
    latest = list(remaining.items())[1 - _MOST_NODECLASSES :]
    after = Offered(min(earlier.memory_bytes, memory_bytes), {**dict(latest), nodeclass: least})
    return None if after == earlier else after


_LEAST_SHARE = 0.75
"""Minimum share of a type's memory: data from other clusters of the account is only accepted within bounds."""
_NOTHING_LEARNED: Mapping[Boot, Offered] = {}


@dataclass(frozen=True, slots=True)
class _Observed:
    """What was learned about one type: its memory, and what is left for pods with the same EC2NodeClass."""

    instance_type: str
    memory_bytes: int
    left: Resources | None


def known_types(
    catalog: Catalog,
    configuration: NodeConfiguration,
    settings: NodeSettings,
    status: NodeClassStatus | None = None,
    learned: Mapping[Boot, Offered] = _NOTHING_LEARNED,
) -> tuple[InstanceType, ...]:
    """Return every type of the catalogue, sorted by name, with what was learned from nodes of the EC2NodeClass.

    Cached: equal arguments give the same objects.
    """
    types = instance_types(catalog, configuration, settings)
    if status is None or not learned:
        return types
    observed_types = {boot.instance_type for boot in learned}
    observed = []
    for kind in types:
        image = image_for(kind, status.images) if kind.name in observed_types else None
        offered = learned.get(Boot(kind.name, image.id)) if image else None
        if offered is not None:
            observed.append(_Observed(kind.name, offered.memory_bytes, offered.allocatable.get(status.hash)))
    return _corrected_types(catalog, configuration, settings, tuple(observed)) if observed else types


@lru_cache(maxsize=16)
def _corrected_types(
    catalog: Catalog,
    configuration: NodeConfiguration,
    settings: NodeSettings,
    observed: tuple[_Observed, ...],
) -> tuple[InstanceType, ...]:
    by_type = {observation.instance_type: observation for observation in observed}
    return tuple(
        _corrected(kind, by_type[kind.name], catalog, configuration, settings)
        if kind.name in by_type
        else kind
        for kind in instance_types(catalog, configuration, settings)
    )


def _corrected(
    kind: InstanceType,
    observed: _Observed,
    catalog: Catalog,
    configuration: NodeConfiguration,
    settings: NodeSettings,
) -> InstanceType:
    facts = catalog.facts[kind.name]
    if not isinstance(facts, InstanceFacts):
        return kind  # stated in a file, so not an estimate
    nominal = facts.memory_mib * MIB
    if not _LEAST_SHARE * nominal <= observed.memory_bytes <= nominal:
        return kind
    room = Resources({**kind.capacity, MEMORY: observed.memory_bytes})
    reserved = overhead(facts, configuration, room, settings)
    usable = allocatable(room, reserved)
    if observed.left is not None and _is_credible(observed.left, usable, room):
        usable = Resources({**usable, **observed.left})
        reserved = room - usable
    return replace(kind, capacity=room, overhead=reserved, allocatable=usable)


def _is_credible(observed: Resources, computed: Resources, capacity: Resources) -> bool:
    slack = 1 - _LEAST_SHARE
    return all(
        computed.of(name) - slack * capacity.of(name) <= amount <= capacity.of(name)
        for name, amount in observed.items()
    )


def attaching(types: tuple[InstanceType, ...], limits: AttachLimits) -> tuple[InstanceType, ...]:
    """Return types with the volume limits that nodes report, see `AttachLimits`. Cached like `known_types`."""
    return types if limits == NO_LIMITS else _attaching(types, limits)


@lru_cache(maxsize=16)
def _attaching(types: tuple[InstanceType, ...], limits: AttachLimits) -> tuple[InstanceType, ...]:
    return tuple(
        replace(
            kind,
            capacity=Resources({**kind.capacity, **limits.on(kind.name)}),
            allocatable=Resources({**kind.allocatable, **limits.on(kind.name)}),
        )
        for kind in types
    )


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
    """stops launches. Like the fields below, it does not depend on `basis`."""
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
"""The part of a NodePool's health that does not depend on its basis."""


def current_health(health: RegistrationHealth | None, basis: str) -> RegistrationHealth | None:
    """Return the health if it was observed with `basis`, else what of it lasts; None if nothing is known."""
    return health if health is None or health.basis == basis else with_changed_basis(health, basis)


def with_changed_basis(
    health: RegistrationHealth, basis: str, since: datetime | None = None
) -> RegistrationHealth:
    """Return the health of a NodePool whose basis has changed."""
    return replace(RegistrationHealth(basis, since), **{name: getattr(health, name) for name in _LASTING})


HALF_LIFE = timedelta(hours=24)
"""One day, because activity in clusters follows the time of day: yesterday at this time is the best predictor."""


def _decayed(amount: float, since: datetime, now: datetime) -> float:
    """Return what is left of an amount. If `now` is before `since`, it is the whole amount."""
    return amount * exp2(-max(timedelta(0), now - since) / HALF_LIFE)


def _until(least: float, amount: float, since: datetime) -> datetime:
    """Return when an amount has decayed to `least`."""
    return since + HALF_LIFE * log2(max(least, amount) / least)


MOST_SECONDS = 60.0
"""Half of the notice of an interruption. A longer drain is blocked by something that no head start helps with."""
_LEAST_SECONDS = 1.0


# PodDisruptionBudgets make pods leave one after the other, and eviction tiers follow each other. How long that
# takes cannot be predicted, only observed.
@dataclass(frozen=True, slots=True)
class DrainTime:
    """The longest recent excess, in seconds, over the longest grace period of the node's pods. It halves each day."""

    beyond_seconds: float
    at: datetime

    def left(self, now: datetime) -> timedelta:
        """Return the excess to expect now."""
        return timedelta(seconds=_decayed(self.beyond_seconds, self.at, now))

    @property
    def forgotten_at(self) -> datetime:
        """When the excess has decayed to one second."""
        return _until(_LEAST_SECONDS, self.beyond_seconds, self.at)


def learned_drain_time(earlier: DrainTime | None, beyond: timedelta, now: datetime) -> DrainTime | None:
    """Return the drain time after a drain that took `beyond` too long; None if it was no longer than expected."""
    seconds = min(MOST_SECONDS, beyond.total_seconds())
    if seconds < _LEAST_SECONDS or (earlier is not None and timedelta(seconds=seconds) <= earlier.left(now)):
        return None
    return DrainTime(seconds, now)


_FORGOTTEN = 0.01
"""Losses that change prices by less than a tenth of a percent."""


# One number is kept for each pool, its `losses`: the sum, over its interruptions, of the share of nodesmith's
# nodes in the pool that was interrupted, halved for each half-life that has passed since. A pool that interrupts
# each of its nodes r times an hour converges to r × half-life / ln 2 (the sum of 2^(-t / half-life) over its
# interruptions), so that
#
#     interruptions per node and hour = losses × ln 2 / half-life
#     cost of them per hour           = interruptions per node and hour × cost of one
#
# The cost of one interruption is a number of hours of the node's own price (`INTERRUPTION_COST_HOURS`): two nodes
# run side by side until the pods have moved, each pod starts and warms up again, and Jobs start over. With one
# hour, a pool that has just interrupted the only node is 3 % more expensive, and a pool that interrupts every node
# five times a day is 21 % more expensive. A week later, neither differs from other pools.
@dataclass(frozen=True, slots=True)
class Risk:
    """The losses of a pool at one moment, in shares of nodesmith's nodes in the pool."""

    losses: float
    at: datetime

    def losses_at(self, now: datetime) -> float:
        """Return the losses that are left at `now`."""
        return _decayed(self.losses, self.at, now)

    def after(self, share: float, now: datetime) -> Risk:
        """Return the risk after another interruption of this share (at most 1) of nodesmith's nodes in the pool."""
        return Risk(self.losses_at(now) + share, now)

    def surcharge_percent(self, now: datetime, cost_hours: float) -> int:
        """Return what risk adds to the hourly price of a node, in whole percent, so that results remain cacheable."""
        hourly = self.losses_at(now) * log(2) / (HALF_LIFE / timedelta(hours=1))
        return round(100 * hourly * cost_hours)

    def cheaper_from(self, now: datetime, cost_hours: float) -> datetime | None:
        """Return when the surcharge falls to a lower whole percentage; None if it is already 0.

        The result is a second late, because rounding might still go up at the exact moment.
        """
        percent = self.surcharge_percent(now, cost_hours)
        if percent <= 0:
            return None
        per_percent = HALF_LIFE / timedelta(hours=1) / (100 * log(2) * cost_hours)
        return _until((percent - 0.5) * per_percent, self.losses, self.at) + timedelta(seconds=1)

    @property
    def forgotten_at(self) -> datetime:
        """When the risk has become negligible."""
        return _until(_FORGOTTEN, self.losses, self.at)
