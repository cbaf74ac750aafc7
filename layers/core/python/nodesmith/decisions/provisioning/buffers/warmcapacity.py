"""Warm capacity: stopped instances that CapacityBuffers keep, which of them start for pods, and which are missing.

Pods of a buffer's namespace that request as much as its template start its instances, whatever a new node would cost:
the buffer asks for fast starts, and its instances are the price. For all other pods, a stopped instance replaces a new
node if it holds the same pods and costs no more.

At most as many instances as a buffer asks for run at the same time to be prepared. So at worst, a buffer costs as much
as running nodes for it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from nodesmith.decisions.budgets import is_open
from nodesmith.decisions.provisioning.attempts import Repeating
from nodesmith.decisions.provisioning.buffers.resolutions import Resolution, next_window, resolutions
from nodesmith.decisions.provisioning.plan import Inputs, PlannedNode, Room
from nodesmith.decisions.provisioning.planner import Planner
from nodesmith.decisions.scheduling.existing import ExistingNode, in_flight_node
from nodesmith.decisions.scheduling.preferences import PreferenceMode
from nodesmith.decisions.scheduling.workloads import Workloads
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import (
    CAPACITY_TYPE,
    HOSTNAME,
    INSTANCE_TYPE,
    NODECLASS,
    TYPE_KEYS,
    ZONE,
)
from nodesmith.model.apimachinery.quantities import NOTHING, PODS
from nodesmith.model.apimachinery.times import first_after
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.karpenter.nodeclaims import (
    EXPIRED,
    IMAGES_CHANGED,
    SURPLUS,
    TEMPLATE_CHANGED,
    NodeClaim,
    Phase,
)
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.kubernetes.pods import Pod, Shape
from nodesmith.model.ledger.breakers import wait_after
from nodesmith.model.snapshot import Snapshot

_USABLE = frozenset({EXPIRED, IMAGES_CHANGED})
"""Reasons for a replacement with which an instance may still start until it is replaced."""
_ENDED_AT_ONCE = frozenset({Phase.LAUNCHED, Phase.WARMING, Phase.STOPPED})
_EPSILON_USD = 1e-9
_CHECKED_PER_POD = TYPE_KEYS | {INSTANCE_TYPE, CAPACITY_TYPE, HOSTNAME, NODECLASS}
"""Labels of a planned node that an instance need not match as such: the pods' requirements on them are checked."""
_BY_READINESS = Phase.STOPPED, Phase.STOPPING, Phase.WARMING, Phase.LAUNCHED, Phase.PENDING
_ORDER = {phase: number for number, phase in enumerate(_BY_READINESS)}


@dataclass(frozen=True, slots=True)
class WarmClaim:
    """A claim that keeps warm capacity for so many planned `pods`. `stale` is why it must be replaced, or empty."""

    claim: NodeClaim
    pods: int
    stale: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether it can be started."""
        return self.claim.phase is Phase.STOPPED


@dataclass(frozen=True, slots=True)
class WarmCapacity:
    """The claims that keep warm capacity for one buffer, those that can be started first, then by age."""

    resolution: Resolution
    entries: tuple[WarmClaim, ...] = ()

    @property
    def ready(self) -> int:
        """The number of pods for which there are stopped instances that need no replacement."""
        return sum(entry.pods for entry in self.entries if entry.is_ready and not entry.stale)

    @property
    def launching(self) -> int:
        """The number of pods for which instances are being prepared."""
        return sum(entry.pods for entry in self.entries if not entry.is_ready and not entry.stale)

    @property
    def lacking(self) -> int:
        """The number of pods for which there is no instance, or only one that must be replaced."""
        return max(0, self.resolution.count - self.ready - self.launching)

    def room(self, bought: int = 0, reason: str = "") -> Room:
        """Return the room as the buffer's status shows it; more instances are bought for `bought` pods."""
        key, wanted, count = self.resolution.key, self.resolution.wanted, self.resolution.count
        ready = min(self.ready, count)
        coming = min(self.launching, count - ready)
        stopped = sum(entry.is_ready for entry in self.entries)
        warming = len(self.entries) - stopped
        return Room(key, wanted, count, ready, coming, bought, reason, stopped, warming)

    def surplus(self) -> Iterator[tuple[NodeClaim, str]]:
        """Yield the claims to give up, each with the reason: those beyond the buffer's count, and replaced ones.

        Instances that can still be started are kept until stopped ones take their place. Claims that are just launching
        or stopping are left until that is done.
        """
        if not self.resolution.is_ready:  # its template may come back; meanwhile nothing is replaced
            return
        pods_held, unusable = 0, [entry.claim for entry in self.entries if not (entry.stale or entry.pods)]
        evidence = max(unusable, key=lambda claim: (claim.created_at, claim.name), default=None)
        for entry in self.entries:
            is_needed = pods_held < self.resolution.count and (bool(entry.pods) or entry.claim is evidence)
            if entry.stale:
                is_needed = entry.is_ready and entry.stale in _USABLE and self.ready < self.resolution.count
            else:
                pods_held += entry.pods
            if not is_needed and entry.claim.phase in _ENDED_AT_ONCE:
                yield entry.claim, entry.stale or SURPLUS


def warm_capacity(
    snapshot: Snapshot, claims: Iterable[NodeClaim], now: datetime, shifted_zones: Collection[str] = ()
) -> list[WarmCapacity]:
    """Return the warm capacity of each buffer that asks for some or has some, the oldest buffer first.

    Instances in `shifted_zones` cannot start now, so they do not count, and they are kept.
    """
    by_buffer: dict[str, list[NodeClaim]] = {}
    for claim in (claim for claim in claims if claim.is_warm):
        by_buffer.setdefault(claim.buffer, []).append(claim)
    requested = [resolution for resolution in resolutions(snapshot, now) if resolution.is_warm]
    open_ = {key: [c for c in members if c.zone not in shifted_zones] for key, members in by_buffer.items()}
    capacities = [WarmCapacity(r, tuple(_entries(r, open_.get(r.key, []), snapshot, now))) for r in requested]
    for key in sorted(by_buffer.keys() - {resolution.key for resolution in requested}):
        warm_claims = tuple(WarmClaim(claim, 0) for claim in sorted(by_buffer[key], key=_by_use))
        capacities.append(WarmCapacity(Resolution.gone(key), warm_claims))
    return capacities


def _by_use(claim: NodeClaim) -> tuple[int, datetime, str]:
    return _ORDER[claim.phase], claim.created_at, claim.name


def _entries(
    resolution: Resolution, claims: list[NodeClaim], snapshot: Snapshot, now: datetime
) -> Iterator[WarmClaim]:
    pods = resolution.pods(at_least=1)
    shape = pods[0].shape if pods else None
    for claim in sorted(claims, key=_by_use):
        held = _holds(claim, shape, snapshot) if shape is not None else len(claim.nominated)
        yield WarmClaim(claim, held, _stale(claim, resolution, held, now))


def _holds(claim: NodeClaim, shape: Shape, snapshot: Snapshot) -> int:
    """Return how many pods of a shape a claim has room for, but at most as many as it was bought for."""
    existing = in_flight_node(claim, snapshot)
    return existing.fits(shape, len(claim.nominated)) if existing.admits(shape) else 0


def _stale(claim: NodeClaim, resolution: Resolution, held: int, now: datetime) -> str:
    """Return why a claim must be replaced, empty if it need not."""
    if claim.drift:
        return claim.drift
    if resolution.buffer is not None and now - claim.created_at >= resolution.buffer.expire_after:
        return EXPIRED
    if resolution.template is None:
        return ""
    if resolution.template.images and set(resolution.template.images) != set(claim.images):
        return IMAGES_CHANGED
    return "" if held or _has_no_room(claim, resolution, held) else TEMPLATE_CHANGED


def _has_no_room(claim: NodeClaim, resolution: Resolution, held: int) -> bool:
    """Return whether a claim was bought for pods like those of today and has no room for any of them."""
    pods = resolution.pods(at_least=1)
    return not held and bool(pods) and Workloads().of(pods[0]) in claim.attempts


def next_need(snapshot: Snapshot, claims: Sequence[NodeClaim], now: datetime) -> datetime | None:
    """Return when time alone changes which warm capacity is needed; None for never.

    That is when an instance is so old that it must be replaced, or the window of a buffer begins or ends.
    """
    if not any(claim.is_warm for claim in claims):
        return None
    warm = warm_capacity(snapshot, claims, now)
    pairs = ((w.resolution.buffer, entry.claim) for w in warm for entry in w.entries)
    ages = (claim.created_at + buffer.expire_after for buffer, claim in pairs if buffer)
    return first_after(now, (*ages, next_window(snapshot, now)))


@dataclass(frozen=True, slots=True)
class WarmDemand:
    """The planned pods that warm capacity is bought for now, with the number of the attempt.

    `reason` says why nothing is bought for the rest, and `due` when that ends.
    """

    pods: tuple[Pod, ...] = ()
    attempts: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    due: datetime | None = None


def warm_demand(warm: WarmCapacity, now: datetime) -> WarmDemand:
    """Return what to buy for a buffer.

    If an instance has no room for the pods that it was bought for, it is kept as the evidence that another one would
    not help either. The next one is bought after the same waits as for pods (`attempts`), and for one pod.
    """
    pods = warm.resolution.pods()
    if not warm.lacking or not pods:
        return WarmDemand()
    workload = Workloads().of(pods[0])
    full = [entry.claim for entry in warm.entries if _has_no_room(entry.claim, warm.resolution, entry.pods)]
    if not full:
        return WarmDemand(tuple(pods[: warm.lacking]), {workload: 1})
    last = max(full, key=lambda claim: (claim.created_at, claim.name))
    attempt = last.attempts[workload]
    until = last.created_at + max(wait_after(attempt), timedelta(minutes=1))
    if now < until:
        message = (
            f"NodeClaim {last.name} was bought for it and has no room; tried again after {until:%H:%M:%S} UTC"
        )
        return WarmDemand(reason=message, due=until)
    return WarmDemand(tuple(pods[:1]), {workload: attempt + 1})


def hosting(warm: WarmCapacity, snapshot: Snapshot) -> Iterator[ExistingNode]:
    """Yield a buffer's warm capacity as full nodes that host its planned pods, for their spreads."""
    pods = warm.resolution.pods(at_least=1)
    for entry in warm.entries:
        if pods and entry.pods and not entry.stale:
            existing = in_flight_node(entry.claim, snapshot)
            existing.take(pods[0].shape, entry.pods)
            existing.free = NOTHING
            yield existing


def startable(inputs: Inputs) -> list[NodeClaim]:
    """Return the stopped instances that may be started now, the cheapest first.

    An instance may not start if it has drifted, if its NodePool is gone, closed or unread, if the cluster is shifted
    away from its zone, or if its offering recently had no capacity.
    """
    stopped = [claim for claim in inputs.ledger.claims if claim.phase is Phase.STOPPED and not claim.drift]
    if not stopped:
        return []
    ledger, now = inputs.ledger, inputs.now
    pools, away = parsed_nodepools(inputs.snapshot.nodepools), ledger.shifted(now)
    deleted = {
        str(manifest["metadata"].get("name"))
        for manifest in inputs.snapshot.nodeclaims
        if manifest["metadata"].get("deletionTimestamp")
    }
    stopped_claims = []
    for claim in stopped:
        pool = pools.get(claim.nodepool)
        key = OfferingKey(claim.capacity_type, claim.instance_type, claim.zone)
        backoff = ledger.unavailable.get(key)
        is_sold_out = backoff is not None and backoff.holds(now)
        if pool is None or pool.deleting or not is_open(pool, now) or not ledger.has_read(pool):
            continue
        if not (claim.zone in away or is_sold_out or claim.name in deleted):
            stopped_claims.append(claim)
    return sorted(stopped_claims, key=lambda claim: (claim.price_hourly_usd, claim.created_at, claim.name))


class Starting:
    """Decides which stopped instances start for the pods of one decision."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._claims = {claim.name: claim for claim in startable(inputs)}

    @property
    def is_possible(self) -> bool:
        """Whether there is an instance that may be started."""
        return bool(self._claims)

    def nodes(self) -> list[ExistingNode]:
        """Return all these instances as nodes."""
        return [in_flight_node(claim, self._inputs.snapshot) for claim in self._claims.values()]

    def nodes_to_start(
        self, fresh: Sequence[Pod], free: Sequence[ExistingNode], planner: Planner
    ) -> list[ExistingNode]:
        """Return, as nodes, the instances that start for pods of their buffers that find no room in `free`."""
        room, waiting, starting = [existing.copy() for existing in free], list(fresh), list[ExistingNode]()
        for resolution in resolutions(self._inputs.snapshot, self._inputs.now):
            buffer_claims = [claim for claim in self._claims.values() if claim.buffer == resolution.key]
            pods = [pod for pod in waiting if _is_like(pod, resolution)] if buffer_claims else []
            if not pods:
                continue
            nodes = [in_flight_node(claim, self._inputs.snapshot) for claim in buffer_claims]
            placed = planner.assign(pods, [*room, *nodes], PreferenceMode.RULE).placed
            used = {existing.name for existing in nodes} & placed.keys()
            placed_keys = {key for keys in placed.values() for key in keys}
            waiting = [pod for pod in waiting if pod.key not in placed_keys]
            room += [existing for existing in nodes if existing.name in used]
            starting += [in_flight_node(c, self._inputs.snapshot) for c in buffer_claims if c.name in used]
        return starting

    def replacing(
        self, nodes: Sequence[PlannedNode], pods: Mapping[str, Pod], used: Collection[str]
    ) -> dict[str, NodeClaim]:
        """Return, by the name of a planned node, an instance that replaces it and costs no more."""
        available = [claim for claim in self._claims.values() if claim.name not in used]
        replaced: dict[str, NodeClaim] = {}
        for node in sorted(nodes, key=lambda node: (-node.price_hourly_usd, node.claim.name)):
            shapes = [pods[key].shape for key in node.claim.nominated if key in pods]
            chosen = next((claim for claim in available if self._replaces(claim, node, shapes)), None)
            if chosen is not None and len(shapes) == len(node.claim.nominated):
                available.remove(chosen)
                replaced[node.claim.name] = chosen
        return replaced

    def _replaces(self, claim: NodeClaim, node: PlannedNode, shapes: Iterable[Shape]) -> bool:
        is_cheap = _price(claim, self._inputs.catalog) <= node.price_hourly_usd + _EPSILON_USD
        if not is_cheap or claim.nodepool != node.claim.nodepool or not _is_placed_alike(claim, node):
            return False
        existing = in_flight_node(claim, self._inputs.snapshot)
        for shape in shapes:
            if not existing.admits(shape) or not existing.fits(shape, 1):
                return False
            existing.take(shape, 1)
        return True

    def start(self, name: str, pods: Sequence[str], attempts: Mapping[str, int]) -> NodeClaim | None:
        """Return the claim as it starts for pods (namespace/name); None if no startable claim has this name."""
        claim = self._claims.get(name)
        if claim is None:
            return None
        message = f"its instance is started for {len(pods)} pods"
        return replace(
            claim.advanced(Phase.STARTING, self._inputs.now, "Starting", message),
            nominated=tuple(pods),
            attempts=FrozenMap(attempts),
            node_name="",
            decision=self._inputs.decision,
        )


def _price(claim: NodeClaim, catalog: Catalog) -> float:
    """Return what an instance costs an hour once it runs. Claims that are read from objects have no price."""
    offered = catalog.offerings.get(claim.instance_type, ())
    place = claim.zone, claim.capacity_type
    prices = (o.price_hourly_usd for o in offered if (o.zone, o.capacity_type) == place)
    return claim.price_hourly_usd or next(prices, math.inf)


def started(
    starting: Starting,
    nodes: tuple[PlannedNode, ...],
    placed: Mapping[str, Sequence[str]],
    pods: Iterable[Pod],
    repeating: Repeating,
) -> tuple[tuple[PlannedNode, ...], dict[str, tuple[str, ...]], tuple[NodeClaim, ...]]:
    """Return the nodes that are still to buy, the pods placed by node, and the claims that start.

    `placed` are the pods by the name of an existing node, or of an instance that may start.
    """
    placements = {name: tuple(keys) for name, keys in sorted(placed.items())}
    if not starting.is_possible:
        return nodes, placements, ()
    by_key = {pod.key: pod for pod in pods}
    swaps = starting.replacing(nodes, by_key, placements.keys())
    placements |= {swaps[n.claim.name].name: n.claim.nominated for n in nodes if n.claim.name in swaps}
    starts = []
    for name, keys in sorted(placements.items()):
        attempts = repeating.attempts_of(by_key[key] for key in keys if key in by_key)
        starts.append(starting.start(name, keys, attempts))
    bought = tuple(node for node in nodes if node.claim.name not in swaps)
    return bought, dict(sorted(placements.items())), tuple(claim for claim in starts if claim is not None)


def _is_placed_alike(claim: NodeClaim, node: PlannedNode) -> bool:
    """Return whether an instance has the labels that topology requires of a planned node."""
    labels = {**claim.requirements.settled, **claim.labels, ZONE: claim.zone}
    for key, requirement in node.claim.requirements.items():
        value = labels.get(key)
        if key in _CHECKED_PER_POD:
            continue
        if not (requirement.tolerates_absence if value is None else requirement.allows(value)):
            return False
    return True


def _is_like(pod: Pod, resolution: Resolution) -> bool:
    """Return whether a pod is in a buffer's namespace and requests as much of some resource as the template."""
    if resolution.template is None or pod.shape.namespace != resolution.template.shape.namespace:
        return False
    requests = resolution.template.shape.requests.nonzero()
    return any(pod.shape.requests.of(name) >= amount for name, amount in requests.items() if name != PODS)
