"""How well `nodesmith savings` predicts: random clusters, adopted by nodesmith, and what they cost in the end."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from math import fsum
from typing import Any

from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from nodesmith.model.functions import Concern
from nodesmith.model.policies import NodeSettings
from nodesmith_cli.costs.savings.analysis import parsed_nodes, prepared
from nodesmith_cli.costs.savings.fleet import adopted
from nodesmith_cli.costs.savings.nodeprices import total_hourly_usd
from nodesmith_cli.costs.savings.reading import Cluster
from nodesmith_cli.costs.savings.repacking import reached
from nodesmith_formats.prices import prices
from tests.objects.fleets import pool
from tests.objects.savingsclusters import documents
from tests.smallworld.world import CONCERNS, World, catalog, pod_manifest

QUIET, SETTLED = timedelta(days=1), timedelta(hours=1)
_SIZES = (("250m", "512Mi"), ("500m", "1Gi"), ("1", "2Gi"), ("1500m", "6Gi"), ("2", "3Gi"), ("3", "10Gi"))
_NAMES = {
    "nodes": ("v1", "Node"),
    "pods": ("v1", "Pod"),
    "nodepools": ("karpenter.sh/v1", "NodePool"),
    "nodeclasses": ("karpenter.k8s.aws/v1", "EC2NodeClass"),
    "nodeclaims": ("karpenter.sh/v1", "NodeClaim"),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One cluster's price in USD an hour: before, as predicted, and after an hour in which nodesmith has managed it."""

    before: float
    predicted: float
    real: float

    @property
    def error(self) -> float:
        """The prediction's error as a share of the real price; positive if it was too high."""
        return self.predicted / self.real - 1


def outcome(seed: int) -> Outcome:
    """Return what became of a random cluster: nodes were bought for its pods, then many of these were removed."""
    world = _sparse(random.Random(seed))  # noqa: S311
    before, predicted = _predicted(world)
    world.concerns = (*CONCERNS, Concern.DISRUPTION)
    world.live(SETTLED)
    world.settle()
    assert not world.harm
    return Outcome(before, predicted, _price(world))


def _sparse(dice: random.Random) -> World:
    """Return a settled cluster without disruption that has been quiet for a day since it lost a share of its pods."""
    pods = {f"p-{n:03d}": _pod(n, dice) for n in range(dice.randint(60, 240))}
    world = World(pods, nodepool=pool(requirements=_on_demand()))
    world.settle()
    gone = dice.sample(sorted(pods), round(len(pods) * dice.uniform(0.2, 0.7)))
    world.remove(gone)
    world.live(timedelta(minutes=5))
    world.now += QUIET
    world.observe()
    return world


def _pod(number: int, dice: random.Random) -> dict[str, Any]:
    cpu, memory = dice.choice(_SIZES)
    return pod_manifest(f"p-{number:03d}", cpu, memory)


def _on_demand() -> list[dict[str, Any]]:
    return [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]


def _predicted(world: World) -> tuple[float, float]:
    """Return the cluster's price and the predicted one, from the objects that its API server would list."""
    found = [
        {**manifest, "apiVersion": version, "kind": kind}
        for name, (version, kind) in _NAMES.items()
        for manifest in getattr(world.cluster, name).values()
    ]
    cluster = Cluster(documents(found))
    nodes, faults = parsed_nodes(cluster.of_kind("Node"))
    assert not faults
    ready = prepared(cluster, nodes, catalog(), NodeSettings(), world.now)
    moves = reached(adopted(ready.inputs, ready.nodes).inputs)
    assert moves.is_finished
    return total_hourly_usd(ready.nodes), moves.hourly_usd


def _price(world: World) -> float:
    price_of = prices(catalog())
    bought = (
        {CAPACITY_TYPE: i.capacity_type, INSTANCE_TYPE: i.instance_type, ZONE: i.zone}
        for i in world.cloud.alive()
    )
    found = [price_of(labels) for labels in bought]
    assert None not in found
    return fsum(price.hourly_usd for price in found if price is not None)
