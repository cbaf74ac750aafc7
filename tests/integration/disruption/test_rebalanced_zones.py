"""Zone rebalancing in the small world, from one crowded zone to pods in all zones."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from datetime import timedelta

from nodesmith.decisions.disruption.search.search import replay
from nodesmith.decisions.provisioning import canonical
from nodesmith.keys import decision_key, decision_snapshot_key
from nodesmith.model.apimachinery.labels import ZONE
from nodesmith.model.karpenter.disruption import REBALANCE_ZONES
from nodesmith.observation.decoding import decode
from tests import builders
from tests.scenarios.moves import MOVING, ON_DEMAND
from tests.smallworld.world import World, catalog, pod_manifest

SMALL = builders.expression("karpenter.k8s.aws/instance-cpu", "In", "4")
SPREAD = {
    "topologyKey": ZONE,
    "maxSkew": 1,
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": {"app": "web"}},
}


def in_one_zone() -> World:
    """Return six pods in one zone, which was the only allowed one. Now all zones are allowed and must be rebalanced."""
    names = [f"web-{n}" for n in range(6)]
    pods = {name: pod_manifest(name, topologySpreadConstraints=[SPREAD]) for name in names}
    one_zone = builders.expression(ZONE, "In", builders.ZONES[0])
    world = World(pods, nodepool=builders.nodepool_manifest(requirements=[*ON_DEMAND, SMALL, one_zone]))
    world.concerns = MOVING
    world.settle()
    pool = world.cluster.nodepools["default"]
    pool["spec"]["template"]["spec"]["requirements"].remove(one_zone)
    pool["spec"]["disruption"] = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}
    pool["metadata"]["annotations"] = {REBALANCE_ZONES: "On"}
    pool["metadata"]["generation"] = 2
    return world


def by_zone(world: World) -> list[int]:
    zones = {name: node["metadata"]["labels"][ZONE] for name, node in world.cluster.nodes.items()}
    counted = Counter(zones[pod["spec"]["nodeName"]] for pod in world.pods.values())
    return sorted((counted[zone] for zone in builders.ZONES), reverse=True)


def test_after_a_quiet_hour_pods_are_moved_out_of_the_crowded_zone_once() -> None:
    world = in_one_zone()
    world.live(timedelta(minutes=5))
    assert (by_zone(world), world.store.moves) == ([6, 0, 0], {})
    for _ in range(3):
        world.now += timedelta(hours=1)
        world.observe()
        world.live(timedelta(minutes=6))
        world.settle()
    assert by_zone(world) == [2, 2, 2]
    assert world.violations() == []
    assert world.store.moves == {}
    begun = [e.message for e in world.cluster.events if e.reason == "DisruptionTerminating"]
    assert begun
    assert all(message.startswith("disrupted: Unbalanced: ") for message in begun)


def test_the_record_of_a_rebalancing_replays_to_the_same_bytes() -> None:
    world = in_one_zone()
    world.now += timedelta(hours=1)
    world.observe()
    world.live(timedelta(minutes=6))
    prefix, suffix = decision_key(builders.CLUSTER, "|").split("|")
    keys = [k for k in world.blobs.objects if k.startswith(prefix) and k.endswith(suffix)]
    written = [json.loads(gzip.decompress(world.blobs.objects[k])) for k in keys if ".snapshot." not in k]
    found = [each for each in written if each["concern"] == "disruption"]
    assert "Unbalanced" in {move["reason"] for each in found for move in each["plan"]["moves"]}
    for each in found:
        data = world.blobs.objects[decision_snapshot_key(builders.CLUSTER, each["id"])]
        assert replay(each, decode(data), catalog()) == canonical(each["plan"])
