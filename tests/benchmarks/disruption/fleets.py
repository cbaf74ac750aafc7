"""Large fleets by recipe, as inputs of decisions."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from nodesmith.decisions.provisioning import Inputs
from nodesmith.decisions.provisioning.plan import PlannedNode
from nodesmith.model.apimachinery.labels import CAPACITY_TYPE, INITIALIZED, INSTANCE_TYPE, NODEPOOL, ZONE
from nodesmith.model.karpenter.nodeclaims import Phase
from nodesmith.model.kubernetes.nodes import Condition, Node
from nodesmith.model.kubernetes.pods import Pod, Shape
from tests import builders
from tests.objects.fleets import Worker, fleet, kinds, pool

TEAM = "example.com/team"
_ASKS = ((250, 900), (500, 1900), (250, 950), (1000, 3700), (100, 400))
"""cpu (milli) and memory (MiB) of the pods of each Deployment, in turn: 20 such pods nearly fill a node"""
_KIND = "m5.2xlarge"


def machine(
    name: str,
    kind: str,
    zone: str,
    capacity_type: str,
    nodepool: str,
    labels: Mapping[str, str] | None = None,
) -> Worker:
    """Return a node of an instance type that has been quiet for two days."""
    of = kinds()[kind]
    since = builders.NOW - timedelta(days=2)
    known = {**of.labels, INSTANCE_TYPE: kind, CAPACITY_TYPE: capacity_type, ZONE: zone, NODEPOOL: nodepool}
    node = Node(
        name,
        since,
        provider_id=f"aws:///{zone}/i-{name}",
        labels={**known, INITIALIZED: "true", "kubernetes.io/hostname": name, **(labels or {})},
        capacity=of.capacity,
        allocatable=of.allocatable,
        conditions={"Ready": Condition("True")},
        last_pod_event_at=since,
    )
    claim = builders.claim(
        f"{nodepool}-{name}",
        nodepool=nodepool,
        phase=Phase.INITIALIZED,
        phase_since=since,
        created_at=since,
        initialized_at=since,
        provider_id=node.provider_id,
        node_name=name,
        zone=zone,
        capacity_type=capacity_type,
        instance_type=kind,
        labels=node.labels,
        capacity=of.capacity,
        allocatable=of.allocatable,
        expire_after="720h",
    )
    return Worker(node, claim)


def large(
    nodes: int = 5000,
    pods: int = 100_000,
    pools: int = 40,
    slack: float = 0.05,
    budget: str = "10%",
    seed: int = 1,
) -> Inputs:
    """Return an on-demand fleet with one NodePool per team, whose pods leave about `slack` of it free, unevenly.

    Each team has ten Deployments, every third with a spread over zones. No types are cheaper than those of the fleet,
    so only free capacity can be saved.
    """
    dice = random.Random(seed)  # noqa: S311
    each, apps = nodes // pools, 10
    workers: list[Worker] = []
    placed: list[Pod] = []
    manifests = []
    for number in range(pools):
        name = f"team-{number:02d}"
        manifests.append(_pool(name, budget))
        shapes = [_shape(name, app) for app in range(apps)]
        mine = [
            machine(f"{name}-{i:04d}", _KIND, builders.ZONES[i % 3], "on-demand", name, {TEAM: name})
            for i in range(each)
        ]
        workers += mine
        placed += _placed(mine, shapes, pods // pools, slack, dice)
    return fleet(workers, placed, pools=manifests)


def _pool(name: str, budget: str) -> dict[str, object]:
    return pool(
        name,
        budgets=[{"nodes": budget}],
        labels={TEAM: name},
        requirements=[
            builders.expression(CAPACITY_TYPE, "In", "on-demand"),
            builders.expression("karpenter.k8s.aws/instance-family", "In", "m5", "c5", "r5"),
            builders.expression("kubernetes.io/arch", "In", "amd64"),
        ],
    )


def _shape(team: str, app: int) -> Shape:
    cpu, memory = _ASKS[app % len(_ASKS)]
    name = f"{team}-app-{app}"
    spreads = builders.spread(hard=True, app=name, max_skew=5) if app % 3 == 0 else []
    return builders.shape(
        f"{cpu}m", f"{memory}Mi", app=name, nodeSelector={TEAM: team}, topologySpreadConstraints=spreads
    )


def _placed(
    workers: list[Worker], shapes: list[Shape], count: int, slack: float, dice: random.Random
) -> list[Pod]:
    """Fill nodes in turn, each to a share of its own around 1 - slack; return at most `count` pods."""
    found: list[Pod] = []
    order = [shapes[n % len(shapes)] for n in range(count)]
    dice.shuffle(order)
    free = {w.node.name: _room(w.node, 1 - 2 * slack * dice.random()) for w in workers}
    names = list(free)
    for number, shape in enumerate(order):
        asked = (shape.requests.cpu_milli, shape.requests.memory_bytes)
        for turn in range(len(names)):
            name = names[(number + turn) % len(names)]
            cpu, memory = free[name]
            if asked[0] <= cpu and asked[1] <= memory:
                free[name] = cpu - asked[0], memory - asked[1]
                found.append(
                    Pod(
                        f"default/{shape.labels['app']}-{number:05d}",
                        shape,
                        builders.NOW - timedelta(days=2),
                        name,
                    )
                )
                break
    return found


def _room(node: Node, share: float) -> tuple[float, float]:
    return node.allocatable.cpu_milli * share, node.allocatable.memory_bytes * share


def launched(node: PlannedNode, now: datetime) -> Worker:
    """Return the node that a planned node becomes: its cheapest offering, initialized just now."""
    first = min(node.request.overrides, key=lambda o: (o.price_hourly_usd, o.instance_type, o.zone))
    claim = node.claim
    made = machine(claim.name, first.instance_type, first.zone, node.request.capacity_type, claim.nodepool)
    labels = {**claim.labels, **made.node.labels}
    return Worker(
        replace(made.node, labels=labels, created_at=now, last_pod_event_at=now),
        replace(made.claim, name=claim.name, created_at=now, initialized_at=now, phase_since=now),
    )
