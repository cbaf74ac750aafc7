"""Two clusters that share limits of dollars and launches, whose functions buy at once and die at any call.

An observer counts what runs in both, what it has cost and will cost until the month's end, and what was requested.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache

from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.karpenter.nodepools import LIMIT_USD_PER_MONTH
from nodesmith.model.ledger.region import Region
from nodesmith.model.limits.spendinglimits import read_spending_limit
from tests import builders
from tests.fakes.cloud import Call
from tests.samples import spread
from tests.smallworld.world import Boundaries, Killed, World, catalog, pod_manifest

PODS = 6
DAYS = timedelta(days=8)
HOUR = timedelta(hours=1)
LIFE = timedelta(minutes=2)
MONTHS_END = datetime(2026, 12, 1, tzinfo=builders.NOW.tzinfo)
_ONE_POD_A_NODE = (*builders.EXPRESS, builders.expression("karpenter.k8s.aws/instance-cpu", "In", "4"))


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be used: by both clusters together, by a NodePool in a month, and by each cluster in launches."""

    usd_per_hour: float | None = None
    usd_per_month: float | None = None
    launches: int = 2000
    pool_usd_per_month: float | None = None
    cluster_launches: int = 500


MONEY = Limits(usd_per_hour=0.5, pool_usd_per_month=80)
"""The clusters share what they cost an hour; the nodes of a NodePool bind its month, the more so later."""
MONTH = Limits(usd_per_month=110, launches=12, cluster_launches=7)
"""The clusters share a month and launches."""


class Sharing(World):
    """One of two clusters. Every call that may add a node is followed by a count of both."""

    def __init__(self, pair: Pair, name: str, boundaries: Boundaries | None) -> None:
        pods = {f"web-{n}": pod_manifest(f"web-{n}", "3") for n in range(PODS)}
        pool = builders.nodepool_manifest(requirements=_ONE_POD_A_NODE)
        if pair.limits.pool_usd_per_month is not None:
            pool["metadata"]["annotations"] = {LIMIT_USD_PER_MONTH: str(pair.limits.pool_usd_per_month)}
        super().__init__(pods, nodepool=pool, boundaries=boundaries)
        self.pair, self.ended = pair, dict[str, datetime]()
        self.requested: list[tuple[datetime, int]] = []
        self.store.name, self.store.region, self.store.wall_clock = name, pair.region, self.clock
        self.store.most_launches = pair.limits.cluster_launches
        self.store.raise_before, self.store.raise_after = self._before_write, self._after_write
        self._known: set[str] = set()

    def _begin_shutdown(self, call: Call) -> None:
        super()._begin_shutdown(call)
        self.pair.count(self.now)

    def _before_write(self, method: str) -> None:
        if method == "commit":
            self.pair.interfere(self)

    def _after_write(self, method: str) -> None:
        if method != "commit":
            return
        new = [claim for name, claim in self.store.claims.items() if name not in self._known]
        self._known |= {claim.name for claim in new}
        self.requested.append((self.now, sum(claim.phase is Phase.PENDING for claim in new)))
        self.pair.count(self.now)
        self.pair.commits += 1
        if self.pair.dying and self.pair.commits % 3 == 1:
            raise Killed("after a commit")

    def prices(self) -> dict[str, float]:
        """Return the prices of all instances that ever were, by id."""
        offers = catalog().offerings
        return {
            one.id: next(
                each.price_hourly_usd
                for each in offers[one.instance_type]
                if (each.zone, each.capacity_type) == (one.zone, one.capacity_type)
            )
            for one in self.cloud.instances.values()
        }

    def rate(self) -> float:
        """Return what runs costs an hour."""
        prices = self.prices()
        return sum(prices[one.id] for one in self.cloud.alive())

    def month(self, now: datetime) -> float:
        """Return what instances have cost, and those that run will cost until the month's end."""
        alive, prices, total = {one.id for one in self.cloud.alive()}, self.prices(), 0.0
        for one in self.cloud.instances.values():
            if one.id not in alive:
                self.ended.setdefault(one.id, now)
            end = MONTHS_END if one.id in alive else self.ended[one.id]
            total += prices[one.id] * ((end - one.launched_at) / HOUR)
        return total


class Pair:
    """Both clusters. While the first commit waits, so many `writers` decide, each while the one before it waits."""

    def __init__(
        self,
        limits: Limits,
        boundaries: Boundaries | None = None,
        *,
        writers: int = 0,
        dying: bool = False,
    ) -> None:
        self.limits, self.dying, self.commits, self.decided = limits, dying, 0, 0
        self.overshoots: list[str] = []
        self.most = {"usd an hour": 0.0, "usd a month": 0.0, "launches": 0}
        self._writers = writers
        spec = {
            "format": 1,
            "usdPerHour": limits.usd_per_hour,
            "usdPerMonth": limits.usd_per_month,
            "launchesPerHour": limits.launches,
        }
        found, faults = read_spending_limit("all", spec)
        assert not faults
        self.region = [Region("", (found,), ("east", "west"))]
        self.worlds = [Sharing(self, "east", boundaries), Sharing(self, "west", None)]
        for world in self.worlds:  # readiness runs in each cluster once a limit is set
            world.store.save_shares()

    def interfere(self, first: World) -> None:
        """Let another writer of either cluster decide about one more pod before the commit of `first`."""
        if self.decided >= self._writers:
            return
        self.decided += 1
        world = self.worlds[self.decided % 2]
        world.add(f"late-{self.decided}", cpu="3")
        for each in self.worlds:
            each.now = first.now + timedelta(milliseconds=1)
        world.observe()
        with suppress(Killed):
            world.visit(Concern.PROVISIONING)

    def live(self, span: timedelta) -> None:
        """Let both clusters live."""
        end = self.worlds[0].now + span
        while self.worlds[0].now < end:
            for world in self.worlds:
                world.step()

    def pass_days(self, span: timedelta) -> None:
        """Let time pass in which nothing happens."""
        for world in self.worlds:
            world.now += span

    def count(self, now: datetime) -> None:
        """Compare what runs, what it costs and what was requested with the limits."""
        limits, found = self.limits, dict[str, tuple[float, float | None]]()
        rate = sum(world.rate() for world in self.worlds)
        months = [world.month(now) for world in self.worlds]
        found["USD an hour"] = rate, limits.usd_per_hour
        found["USD a month"] = sum(months), limits.usd_per_month
        for world, month in zip(self.worlds, months, strict=True):
            found[f"USD a month in {world.store.name}"] = month, limits.pool_usd_per_month
            found[f"launches in {world.store.name}"] = lately([world], now), limits.cluster_launches
        found["launches"] = lately(self.worlds, now), limits.launches
        self.most["usd an hour"] = max(self.most["usd an hour"], rate)
        self.most["usd a month"] = max(self.most["usd a month"], sum(months))
        self.most["launches"] = max(self.most["launches"], found["launches"][0])
        over = [
            f"{used:.4f} {what}" for what, (used, most) in found.items() if most is not None and used > most
        ]
        self.overshoots += [f"{now:%d %H:%M:%S}: {each}" for each in over]


def lately(worlds: list[Sharing], now: datetime) -> int:
    """Return how many nodes were requested within the last hour."""
    return sum(count for world in worlds for at, count in world.requested if now - at < HOUR)


def lived(pair: Pair) -> Pair:
    """Let a pair buy nodes, keep them for days, lose those of one cluster, and need more in both."""
    for world in pair.worlds:
        world.observe()
    if pair.decided == 0:
        pair.worlds[0].run(Concern.PROVISIONING)
    pair.live(LIFE)
    pair.pass_days(DAYS)
    east = pair.worlds[0]
    east.remove(sorted(east.pods))
    for node in sorted(east.cluster.nodes):
        east.cluster.delete("Node", node)
    pair.live(LIFE)
    for world in pair.worlds:
        for number in range(PODS):
            world.add(f"more-{number}", cpu="3")
    pair.live(LIFE)
    return pair


@cache
def undisturbed(limits: Limits) -> Pair:
    """Return a pair that has lived without any disturbance; it must not be changed."""
    return lived(Pair(limits, Boundaries()))


def crashed(limits: Limits, sample: int = 0) -> Iterator[tuple[int, Pair]]:
    """Yield pairs in which a function died at one boundary each, and the boundary; at `sample` of them, 0 for all."""
    moments = undisturbed(limits).worlds[0].boundaries.distinct()
    for moment in spread(moments, sample, "spending"):
        yield moment, lived(Pair(limits, Boundaries(frozenset({moment}), look=None)))


def at_once(limits: Limits, writers: int, *, dying: bool) -> Pair:
    """Return a pair in which so many functions decided before the first of them committed."""
    return lived(Pair(limits, writers=writers - 1, dying=dying))
