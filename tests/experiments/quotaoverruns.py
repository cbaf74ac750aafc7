"""Clusters with quotas in which many functions buy at once and die at any call, with a count of what runs and costs.

An observer counts instances as EC2 has them, and claims as the ledger has them, after every call that may add one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from functools import cache

from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import Phase
from tests import builders
from tests.fakes.cloud import Call
from tests.objects.quotas import dollar_pool, quota_manifest
from tests.samples import spread
from tests.smallworld.world import Boundaries, Killed, World, catalog, pod_manifest

NODES, NODES_IN_A_ZONE, USD = 5, 2, 0.3
"""The quotas: of all nodes, of those in one zone, and of the NodePool in dollars an hour."""
PODS = 8
LIFE = timedelta(minutes=6)
_ONE_POD_A_NODE = (*builders.EXPRESS, builders.expression("karpenter.k8s.aws/instance-cpu", "In", "4"))
_ZONE = builders.expression("topology.kubernetes.io/zone", "In", builders.ZONES[0])


class Limited(World):
    """A world whose pods need more nodes than its quotas allow. Every third commit is followed by a crash if `dying`.

    While the first commit waits, so many `writers` decide about other snapshots, each while the one before it waits.
    """

    def __init__(
        self, boundaries: Boundaries | None = None, *, writers: int = 0, dying: bool = False
    ) -> None:
        self.overshoots: list[str] = []
        self.most = 0
        """The highest number of instances at once."""
        self.decided = 0
        """How many writers have decided before any of them committed."""
        self._writers, self._dying, self._commits = writers, dying, 0
        pods = {f"web-{n}": pod_manifest(f"web-{n}", "3") for n in range(PODS)}
        pool = dollar_pool(str(USD), requirements=_ONE_POD_A_NODE)
        super().__init__(pods, nodepool=pool, boundaries=boundaries)
        self.cluster.quotas = {
            "all": quota_manifest("all", {"nodes": str(NODES)}),
            "zone": quota_manifest("zone", {"nodes": str(NODES_IN_A_ZONE)}, expressions=[_ZONE]),
        }
        self.store.raise_before, self.store.raise_after = self._before_write, self._after_write

    def _begin_shutdown(self, call: Call) -> None:
        super()._begin_shutdown(call)
        self.count()

    def _before_write(self, method: str) -> None:
        if method == "commit" and self.decided < self._writers:
            self.decided += 1
            self.add(f"late-{self.decided}", cpu="3")
            self.now += timedelta(milliseconds=1)
            self.observe()
            with suppress(Killed):
                self.visit(Concern.PROVISIONING)

    def _after_write(self, method: str) -> None:
        if method == "commit":
            self._commits += 1
            self.count()
            if self._dying and self._commits % 3 == 1:
                raise Killed("after a commit")

    def count(self) -> None:
        """Compare what runs, and what the ledger has begun, with the quotas."""
        alive = self.cloud.alive()
        self.most = max(self.most, len(alive))
        prices = [
            next(
                each.price_hourly_usd
                for each in catalog().offerings[instance.instance_type]
                if (each.zone, each.capacity_type) == (instance.zone, instance.capacity_type)
            )
            for instance in alive
        ]
        claims = [claim for claim in self.store.claims.values() if claim.phase is not Phase.GIVEN_UP]
        zone = sum(instance.zone == builders.ZONES[0] for instance in alive)
        found = [
            f"{len(alive)} instances" if len(alive) > NODES else "",
            f"{len(claims)} claims" if len(claims) > NODES else "",
            f"{zone} instances in a zone" if zone > NODES_IN_A_ZONE else "",
            f"{sum(prices):.4f} USD an hour" if sum(prices) > USD else "",
        ]
        self.overshoots += [f"{self.now:%H:%M:%S}: {each}" for each in found if each]


@cache
def undisturbed() -> Limited:
    """Return a world that has lived without any disturbance; it must not be changed."""
    world = Limited(Boundaries())
    world.live(LIFE)
    return world


def crashed(sample: int = 0) -> Iterator[tuple[int, Limited]]:
    """Yield worlds in which a function died at one boundary each, and the boundary; at `sample` of them, 0 for all."""
    moments = undisturbed().boundaries.distinct()
    for moment in spread(moments, sample, "quota"):
        world = Limited(Boundaries(frozenset({moment}), look=None))
        world.live(LIFE)
        yield moment, world


def at_once(writers: int, *, dying: bool) -> Limited:
    """Return a world in which so many functions decided before the first of them committed."""
    world = Limited(writers=writers - 1, dying=dying)
    world.observe()
    world.run(Concern.PROVISIONING)
    world.live(LIFE)
    return world
