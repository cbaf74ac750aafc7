"""Long drains, holds and repeated launches: how often functions run, and which hints they send to themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from itertools import pairwise

from nodesmith.model.ec2.launches import LaunchOutcome, LaunchRequest
from nodesmith.model.functions import WOKEN, Concern
from nodesmith.model.kubernetes.evictions import DENIED, Eviction, EvictionRefused, PodOnNode
from nodesmith_local.functions.loopdetection import RecursiveLoop
from tests import builders
from tests.fakes.cluster import FakeCluster
from tests.scenarios.crashes import throttled
from tests.smallworld.world import Manifest, World, pod_manifest

DRAIN = timedelta(minutes=40)


class WatchedWorld(World):
    """A world that records the runs of termination, and the most pending hints from a concern to itself."""

    def __init__(self, pods: Mapping[str, Manifest], *, nodepool: Manifest | None = None) -> None:
        super().__init__(pods, nodepool=nodepool)
        self.looks: list[datetime] = []
        self.most_pending: Counter[Concern] = Counter()

    def run(self, concern: Concern) -> None:
        if concern is Concern.TERMINATION:
            self.looks.append(self.now)
        super().run(concern)
        self.most_pending |= Counter(m.concern for m in self.hints.waiting if m.sender is m.concern)


class DenyingCluster(FakeCluster):
    """A cluster with an admission webhook that denies every eviction."""

    def evict(self, pods: Sequence[PodOnNode]) -> dict[str, Eviction]:
        return {each.pod: EvictionRefused(DENIED, "not now") for each in pods}


def long_drain(recursive_loop: RecursiveLoop = "Allow") -> WatchedWorld:
    """Return the world after a drain of 40 minutes without progress, because a webhook denies every eviction."""
    world = WatchedWorld({"web-0": pod_manifest("web-0")})
    world.recursive_loops = dict.fromkeys(WOKEN, recursive_loop)
    world.settle()
    world.cluster = DenyingCluster(
        **{each.name: getattr(world.cluster, each.name) for each in fields(world.cluster)}
    )
    (claim,) = world.store.claims.values()
    world.cluster.delete("NodeClaim", claim.name)
    world.looks = []
    world.live(DRAIN)
    assert claim.name in world.store.claims, "the drain was shorter"
    return world


def longest_stall(world: WatchedWorld) -> timedelta:
    """Return the longest time between two runs of termination."""
    return max(later - sooner for sooner, later in pairwise([*world.looks, world.now]))


def throttled_launches(span: timedelta) -> WatchedWorld:
    """Return the world after a time in which EC2 throttles every launch."""
    world = WatchedWorld({"web-0": pod_manifest("web-0")})

    def throttle(request: LaunchRequest) -> LaunchOutcome:
        world.cloud.script.append(throttle)
        return throttled(request)

    world.cloud.script.append(throttle)
    world.observe()
    world.live(span)
    assert not world.cloud.instances
    return world


def held_nodes(span: timedelta) -> WatchedWorld:
    """Return the world after a time in which a node waits for a DaemonSet's pod that is never created."""
    pool = builders.nodepool_manifest()
    pool["metadata"]["annotations"] = {"nodesmith.dev/hold-until-daemonsets": "true"}
    world = WatchedWorld({"web-0": pod_manifest("web-0")}, nodepool=pool)
    container = {"name": "main", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    world.daemonsets = [
        {
            "metadata": {"name": "agent", "namespace": "kube-system"},
            "spec": {"template": {"spec": {"containers": [container]}}},
        }
    ]
    world.observe()
    world.live(span)
    return world
