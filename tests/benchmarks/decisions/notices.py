"""From notices to CreateFleet requests: warm processor time of nodesmith's code, with routing, on in-memory ports."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from nodesmith.controllers.disruption.interruption import Interruption, handle_notices
from nodesmith.controllers.provisioning import provision
from nodesmith.controllers.region.routing import Routing, route
from nodesmith.model.apimachinery import labels
from nodesmith.model.apimachinery.quantities import format_resources
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.instancetypes import InstanceType, instance_types
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.nodeclasses.nodeclasses import NodeConfiguration
from tests import builders
from tests.benchmarks.aws.hotpath import StampedCloud, WritingStore
from tests.benchmarks.figures import Figure, median_ms
from tests.fakes.routes import FakeRoutes
from tests.smallworld.world import World, pod_manifest

PODS_A_NODE = 10
BATCH = 100
"""Notices that are pending when a run starts."""
_TYPE = "m5.xlarge"


def figures() -> list[Figure]:
    """Measure one notice in a cluster of 30 nodes, and 200 notices in one of 250, run by run."""
    return [
        _figure("notice-to-launch-ms", nodes=30, warned=1, at_most=60, repeats=20),
        _figure("notices-200-last-ms", nodes=250, warned=200, at_most=2000, repeats=3),
    ]


def _figure(name: str, nodes: int, warned: int, at_most: float, repeats: int) -> Figure:
    quality = ""

    def once() -> float:
        nonlocal quality
        world, claims = running(nodes)
        cloud, store = StampedCloud(clock=world.clock), _store(world, claims)
        buying = world.provisioning(store=store, cloud=cloud, stopwatch=time.perf_counter)
        ports = store, cloud, world.blobs, world.hints, world.notices
        run = Interruption(builders.CLUSTER, *ports, lambda: provision(buying), world.clock)
        events = [builders.spot_warning(claim.instance_id) for claim in claims[:warned]]
        spent, launched = 0.0, 0
        for start in range(0, warned, BATCH):
            spent += _routed(events[start : start + BATCH], claims, world)
            started = time.perf_counter()
            report = handle_notices(run)
            done = time.perf_counter() if start + BATCH < warned else cloud.asked_at
            spent += done - started
            launched += report.counts["NodeClaimsLaunched"]
        assert launched, "nothing was bought, so there is nothing to measure"
        quality = f"{warned} of {nodes} nodes with {PODS_A_NODE} pods each, {launched} bought"
        return spent * 1000

    once()  # warm up: the catalogue is read and resolved
    middle, note = median_ms(once, repeats)
    return Figure(name, middle, "ms", at_most, f"{quality}; {note}")


def _routed(events: Sequence[str], claims: Sequence[NodeClaim], world: World) -> float:
    """Route events as the region's function does, and return the seconds that it took."""
    known = FakeRoutes(lambda: claims, list)
    routing = Routing(known, world.notices, known, world.hints, world.clock)
    started = time.perf_counter()
    for event in events:
        route(routing, event, builders.ACCOUNT)
    spent = time.perf_counter() - started
    assert len(world.notices.pending()) == len(events)
    return spent


def _store(world: World, claims: Sequence[NodeClaim]) -> WritingStore:
    known = world.store
    store = WritingStore(nodeclasses=known.nodeclasses, cluster=known.cluster, contents=known.contents)
    store.claims = {claim.name: claim for claim in claims}
    return store


def running(nodes: int) -> tuple[World, list[NodeClaim]]:
    """Return a cluster whose nodes are full, and its claims."""
    kind = next(t for t in instance_types(builders.catalog(), NodeConfiguration()) if t.name == _TYPE)
    world = World({})
    claims = []
    for number in range(nodes):
        claim = claim_of(number, kind)
        claims.append(claim)
        world.cluster.nodes[claim.node_name] = node_of(claim, kind)
        for index in range(PODS_A_NODE):
            app = f"app-{(number + index) % 20}"
            pod = pod_manifest(f"{app}-{number}-{index}", "385m", "700Mi")
            pod["metadata"]["labels"] = {"app": app}
            pod["metadata"]["ownerReferences"][0]["name"] = app
            pod["spec"]["nodeName"] = claim.node_name
            pod["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
            world.cluster.pods[f"default/{pod['metadata']['name']}"] = pod
    world.observe()
    return world, claims


def claim_of(number: int, kind: InstanceType) -> NodeClaim:
    zone = builders.ZONES[number % len(builders.ZONES)]
    return builders.claim(
        f"default-{number:04}",
        phase=Phase.INITIALIZED,
        instance_id=f"i-{number:017x}",
        provider_id=f"aws:///{zone}/i-{number:017x}",
        instance_type=kind.name,
        zone=zone,
        capacity_type="spot",
        node_name=f"node-{number:04}",
        capacity=kind.capacity,
        allocatable=kind.allocatable,
    )


def node_of(claim: NodeClaim, kind: InstanceType) -> dict[str, Any]:
    known = {
        **{key: str(value) for key, value in kind.labels.items()},
        labels.HOSTNAME: claim.node_name,
        labels.INSTANCE_TYPE: kind.name,
        labels.ZONE: claim.zone,
        labels.CAPACITY_TYPE: claim.capacity_type,
        labels.NODEPOOL: claim.nodepool,
        labels.NODECLASS: claim.nodeclass.name,
        labels.REGISTERED: "true",
        labels.INITIALIZED: "true",
    }
    return {
        "metadata": {
            "name": claim.node_name,
            "uid": f"uid-{claim.name}",
            "creationTimestamp": format_time(builders.NOW),
            "labels": known,
        },
        "spec": {"providerID": claim.provider_id},
        "status": {
            "capacity": format_resources(kind.capacity),
            "allocatable": format_resources(kind.allocatable),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
