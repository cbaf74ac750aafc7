"""One tick of lifecycle with 5,000 claims: when there is nothing to do, and when 100 claims have changed.

The processor time is that of a warm function. It includes botocore's work on the snapshot from S3 and the ledger from
DynamoDB, but not the API server's client.
"""

from __future__ import annotations

import gc
import gzip
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from nodesmith.adapters.dynamodb.ledger import DynamoStore
from nodesmith.adapters.s3 import S3Blobs
from nodesmith.controllers.lifecycle import Lifecycle, follow
from nodesmith.keys import partition_key, snapshot_key, unplaced_key
from nodesmith.model.apimachinery.labels import INITIALIZED, REGISTERED, TERMINATION_FINALIZER, UNREGISTERED
from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.karpenter.nodeclaimobjects import manifest, marks_of
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.ledger.items import claim_to_item
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.objects import reduce_custom, reduce_node
from nodesmith.observation.reduction.pods import reduce_pod
from tests import builders
from tests.benchmarks.decisions.answering import Aws, Item
from tests.benchmarks.figures import Figure, reference_ms
from tests.builders import NOW
from tests.fakes.cloud import FakeCloud
from tests.fakes.cluster import FakeCluster
from tests.fakes.hints import FakeHints
from tests.objects.clusters import cluster

Manifest = dict[str, Any]
NODES, PODS, DEPLOYMENTS, CHANGED = 5000, 50_000, 500, 100
IDLE_REPEATS, CHANGED_REPEATS = 7, 3
_STEP = timedelta(seconds=5)
_LAMBDAS_THRESHOLD = 50_000
"""Of the garbage collector, see `collect_seldom`."""


def figures() -> list[Figure]:
    """Measure both ticks."""
    scene = Scene.of(NODES, PODS, DEPLOYMENTS)
    settled, moved = scene.state(()), scene.state(scene.names[:CHANGED])
    with as_on_lambda():
        scene.tick(settled)
        idle = [scene.tick(settled) for _ in range(IDLE_REPEATS)]
        changed = []
        for _ in range(CHANGED_REPEATS):
            changed.append(scene.tick(moved))
            scene.tick(settled)
    return [
        _time("idle-tick-5000-ms", idle, 300),
        _calls("idle-tick-5000-calls", idle, 20),
        _time("changed-tick-5000-ms", changed, 1000),
        _calls("changed-tick-5000-calls", changed, 20 + 6 * CHANGED),
    ]


@dataclass(frozen=True, slots=True)
class Tick:
    """The duration and results of one tick."""

    ms: float
    calls: Counter[str]
    done: Counter[str]


@dataclass(frozen=True, slots=True)
class State:
    """The text of a snapshot, the ledger's items, and the API server's objects."""

    text: bytes
    items: Mapping[str, Item]
    nodes: Mapping[str, Manifest]
    nodeclaims: Mapping[str, Manifest]
    pods: Mapping[str, Manifest]


@dataclass(slots=True)
class Scene:
    """A cluster of initialized nodes, and its lifecycle function."""

    claims: dict[str, NodeClaim]
    nodes: dict[str, Manifest]
    pods: dict[str, list[Manifest]]
    """Pods by the node that they run on."""
    now: datetime = NOW
    aws: Aws = field(default_factory=lambda: Aws(partition_key(builders.CLUSTER)))
    cluster: FakeCluster = field(default_factory=FakeCluster)
    cloud: FakeCloud = field(default_factory=FakeCloud)
    hints: FakeHints = field(default_factory=FakeHints)
    run: Lifecycle = field(init=False)

    @classmethod
    def of(cls, nodes: int, pods: int, deployments: int) -> Scene:
        """Return a scene of this size."""
        made = cluster(nodes, pods, deployments)
        by_node: dict[str, list[Manifest]] = {}
        for pod in made["pods"]:
            by_node.setdefault(pod["spec"].get("nodeName", ""), []).append(pod)
        claims = [claim_on(number, node, by_node) for number, node in enumerate(made["nodes"])]
        shown = (marked(node, claim) for node, claim in zip(made["nodes"], claims, strict=True))
        return cls({c.name: c for c in claims}, {n["metadata"]["name"]: n for n in shown}, by_node)

    def __post_init__(self) -> None:
        """Compose the function as on Lambda, except for its API server and EC2."""
        self.aws.objects[unplaced_key(builders.CLUSTER)] = b'{"at":"%s","unplaced":[]}' % str(NOW).encode()
        store = DynamoStore(self.aws.client("dynamodb"), "nodesmith", builders.CLUSTER, lambda: self.now)
        blobs = S3Blobs(self.aws.client("s3"), "nodesmith")
        ports = (store, self.cloud, self.cluster, blobs, self.hints)
        self.run = Lifecycle(builders.CLUSTER, *ports, lambda: self.now)

    @property
    def names(self) -> list[str]:
        """Return the names of the claims."""
        return sorted(self.claims)

    def state(self, changed: Sequence[str], nodepool: Manifest | None = None) -> State:
        """Return the settled state; half of the `changed` claims have a new Node, and half one that became ready."""
        claims, nodes, by_node = dict(self.claims), dict(self.nodes), dict(self.pods)
        for number, name in enumerate(changed):
            claim, node = claims[name], claims[name].node_name
            phase = Phase.REGISTERED if number % 2 else Phase.LAUNCHED
            claims[name] = _younger(claim, phase)
            nodes[node] = _young(nodes[node], phase)
            by_node[node] = [_pending(pod) for pod in by_node.get(node, ())]
        objects = {claim.name: object_of(claim) for claim in claims.values()}
        pods = {_key(pod): pod for each in by_node.values() for pod in each}
        observed = Observed(
            pods=[reduced for pod in pods.values() if (reduced := reduce_pod(pod)) is not None],
            nodes=[reduce_node(node) for node in nodes.values()],
            nodeclaims=[reduce_custom(each) for each in objects.values()],
            nodepools=[reduce_custom(nodepool or _nodepool())],
            nodeclasses=[reduce_custom(builders.nodeclass_manifest())],
        )
        text = gzip.decompress(encode(builders.CLUSTER, NOW, observed))
        return State(text, {f"CLAIM#{c.name}": item_of(c) for c in claims.values()}, nodes, objects, pods)

    def tick(self, state: State) -> Tick:
        """Have the forwarder write a snapshot and the function run."""
        self.now += _STEP
        then, now = (each.isoformat(timespec="milliseconds").encode() for each in (NOW, self.now))
        self.aws.objects[snapshot_key(builders.CLUSTER)] = gzip.compress(state.text.replace(then, now), 6)
        self.aws.hold(state.items)
        self.cluster.nodes, self.cluster.nodeclaims = dict(state.nodes), dict(state.nodeclaims)
        self.cluster.pods = dict(state.pods)
        for calls in (self.aws.calls, self.cluster.calls, self.cloud.calls, self.hints.sent):
            calls.clear()
        answering, started = self.aws.seconds, time.process_time()
        done = follow(self.run).counts
        spent = time.process_time() - started - (self.aws.seconds - answering)
        calls = self.aws.calls + Counter(call.method for call in [*self.cluster.calls, *self.cloud.calls])
        calls["SendMessage"] += len(self.hints.sent)
        return Tick(spent * 1000, +calls, done)


def claim_on(number: int, node: Manifest, pods: Mapping[str, Sequence[Manifest]]) -> NodeClaim:
    """Return the initialized claim of a Node, bought for its pods."""
    name, provider_id = node["metadata"]["name"], node["spec"]["providerID"]
    capacity = parse_resources(node["status"]["capacity"])
    claim = builders.claim(
        f"default-{number:05}",
        phase=Phase.LAUNCHED,
        nodepool_uid="uid-default",
        instance_id=provider_id.rpartition("/")[2],
        provider_id=provider_id,
        instance_type="m5.xlarge",
        capacity_type="spot",
        launched_at=NOW - timedelta(hours=2),
        capacity=capacity,
        allocatable=parse_resources(node["status"]["allocatable"]),
        requests=parse_resources({"cpu": "3", "memory": "12Gi", "pods": "10"}),
        expire_after="720h",
        nominated=tuple(map(_key, pods.get(name, ()))),
    )
    registered = claim.advanced(Phase.REGISTERED, NOW - timedelta(hours=2))
    initialized = registered.advanced(Phase.INITIALIZED, NOW - timedelta(hours=2))
    return replace(initialized, node_name=name, revision=4)


def marked(node: Manifest, claim: NodeClaim) -> Manifest:
    """Return a Node with the labels and finalizer that registration adds."""
    metadata = node["metadata"]
    labels = {**metadata["labels"], **marks_of(claim)}
    return {**node, "metadata": {**metadata, "labels": labels, "finalizers": [TERMINATION_FINALIZER]}}


def _younger(claim: NodeClaim, phase: Phase) -> NodeClaim:
    since = NOW - timedelta(seconds=40)
    registered = since if phase is Phase.REGISTERED else None
    return replace(
        claim,
        phase=phase,
        phase_since=since,
        created_at=since,
        launched_at=since,
        registered_at=registered,
        initialized_at=None,
        node_name=claim.node_name if registered else "",
        history=claim.history[: 1 if registered else 0],
    )


def _young(node: Manifest, phase: Phase) -> Manifest:
    labels = dict(node["metadata"]["labels"])
    del labels[INITIALIZED]
    if phase is Phase.REGISTERED:
        return {**node, "metadata": {**node["metadata"], "labels": labels}}
    del labels[REGISTERED]
    taints = [{"key": UNREGISTERED.key, "effect": str(UNREGISTERED.effect)}]
    return {
        **node,
        "metadata": {**node["metadata"], "labels": labels},
        "spec": {**node["spec"], "taints": taints},
    }


def _pending(pod: Manifest) -> Manifest:
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    refused = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    return {**pod, "spec": spec, "status": {"phase": "Pending", "conditions": refused}}


def object_of(claim: NodeClaim) -> Manifest:
    """Return the NodeClaim as the API server shows it."""
    shown = manifest(claim)
    shown["metadata"] |= {"uid": f"uid-{claim.name}", "creationTimestamp": format_time(NOW), "generation": 1}
    shown["status"]["lastPodEventTime"] = format_time(NOW + timedelta(days=30))
    return shown


def _key(pod: Manifest) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def item_of(claim: NodeClaim) -> Item:
    """Return the claim as DynamoDB returns it."""
    return {
        "sk": {"S": f"CLAIM#{claim.name}"},
        "doc": {"S": json.dumps(claim_to_item(claim), sort_keys=True, separators=(",", ":"))},
        "revision": {"N": str(claim.revision)},
    }


def _nodepool() -> Manifest:
    pool = builders.nodepool_manifest()
    pool["metadata"]["uid"] = "uid-default"
    return pool


@contextmanager
def as_on_lambda() -> Iterator[None]:
    """Collect garbage as the functions do."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_LAMBDAS_THRESHOLD)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _time(name: str, ticks: Sequence[Tick], at_most: float) -> Figure:
    """Return the fastest time; other processes only add time that says nothing about the code."""
    times = [tick.ms for tick in ticks]
    fastest, reference = min(times), min(reference_ms() for _ in ticks)
    note = (
        f"fastest of {len(times)} runs, median {median(times):.0f} ms of processor time;"
        f" {fastest / reference:.1f} × the reference loop ({reference:.1f} ms); {PODS:,} pods;"
        f" done: {_counts(ticks[-1].done) or 'nothing'}"
    )
    return Figure(name, fastest, "ms", at_most, note)


def _calls(name: str, ticks: Sequence[Tick], at_most: float) -> Figure:
    most = max(ticks, key=lambda tick: tick.calls.total())
    return Figure(name, most.calls.total(), "calls", at_most, _counts(most.calls))


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counter.items()))
