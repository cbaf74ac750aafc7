"""A cluster of 15,000 nodes and 300,000 pods: a run of provisioning for 50 new pods, and a run of disruption.

Each size is measured in a process of its own, which reads snapshot and ledger as a function does, so that its memory is
that of a function. Times are of a warm process: it has served the cluster before.
"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from math import log
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nodesmith.adapters.dynamodb.ledger import DynamoStore
from nodesmith.adapters.s3 import S3Blobs
from nodesmith.controllers.disruption.disruption import disrupt
from nodesmith.controllers.disruption.moves.runstate import Disruption
from nodesmith.controllers.observation import own_snapshot
from nodesmith.controllers.provisioning import Provisioning, provision
from nodesmith.keys import partition_key, snapshot_key
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ledger.items import cluster_item
from nodesmith.model.nodeclasses.status import nodeclass_item
from nodesmith.model.policies import NodeSettings
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.objects import reduce_budget, reduce_custom, reduce_node
from nodesmith.observation.reduction.pods import ReducedPod, reduce_pod
from tests import builders
from tests.benchmarks.aws.hotpath import StampedCloud
from tests.benchmarks.aws.ticks import as_on_lambda, claim_on, item_of, marked
from tests.benchmarks.decisions.answering import Aws, Item
from tests.benchmarks.disruption.passes import most_memory_mib
from tests.benchmarks.figures import Figure, reference_ms
from tests.fakes.cluster import FakeCluster
from tests.fakes.hints import FakeHints
from tests.objects import clusters
from tests.objects.fleets import pool

SIZES = (1500, 5000, 15_000)
PODS_PER_NODE, NEW_PODS, RUNS = 20, 50, 5
_MILLIS, _NEW_MILLIS = (100, 125, 150, 225, 275), 1000
"""cpu of the pods of each Deployment, in turn: 21 such pods fill 94 % of a node, and 19 fill 85 %; and of new pods"""
_PRICE = 0.192
"""USD an hour, of an m5.xlarge on demand in us-east-1"""
_LONG_AGO = timedelta(hours=1)
"""when the ledger changed last"""
_LATER = timedelta(minutes=1)


def figures(sizes: Sequence[int] = SIZES) -> list[Figure]:
    """Measure each size; the figures are those of the largest."""
    found = [_apart(nodes) for nodes in sizes]
    last = found[-1]
    run, read, passed, mib = (
        ", ".join(f"{each[key]:.2f}" for each in found) for key in ("run", "read", "pass", "mib")
    )
    about = f"at {', '.join(f'{nodes:,}' for nodes in sizes)} nodes"
    notes = {
        "run": f"{run} {about}{_growth('run', found, sizes)}; {last['run_note']}; with the snapshot decoded: {read}",
        "pass": f"{passed} {about}{_growth('pass', found, sizes)}; {last['pass_note']}",
        "mib": f"{mib} {about}{_growth('mib', found, sizes)}; the whole process, Python and catalogue included",
    }
    return [
        Figure("run-15000-s", last["run"], "s of cpu", 1.5, notes["run"]),
        Figure("pass-15000-s", last["pass"], "s of cpu", 25, notes["pass"]),
        Figure("pass-15000-mib", last["mib"], "MiB", 1536, notes["mib"]),
    ]


def _growth(key: str, found: Sequence[Mapping[str, Any]], sizes: Sequence[int]) -> str:
    """Return between which exponents a figure grows with the number of nodes."""
    steps = [
        log(after[key] / before[key]) / log(larger / smaller)
        for before, after, smaller, larger in zip(found, found[1:], sizes, sizes[1:], strict=False)
    ]
    return "".join(
        (", growing as n to the power of ", " and ".join(f"{step:.2f}" for step in steps)) * bool(steps)
    )


def _apart(nodes: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, Any] = {}
        for step in ("write_cluster", "measure_run", "measure_pass"):
            program = (
                f"from pathlib import Path; from {__name__} import {step}; {step}({nodes}, Path({folder!r}))"
            )
            done = subprocess.run(
                [sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True
            )
            found |= json.loads(done.stdout or "{}")
        return found


def write_cluster(nodes: int, folder: Path) -> None:
    """Write the ledger and two snapshots: with the pods that run, and with new ones as well."""
    dice = clusters.rolled(nodes)
    machines = [clusters.node(number, dice) for number in range(nodes)]
    for machine in machines:
        machine["metadata"]["labels"]["karpenter.sh/capacity-type"] = "on-demand"
    apps = max(1, nodes // 10)
    homes = [n for n in range(nodes) for _ in range(PODS_PER_NODE + (1 if n % 2 else -1))]
    pods = [_pod(n % apps, _MILLIS[n % len(_MILLIS)], dice, machines[home]) for n, home in enumerate(homes)]
    new = [_pod(n % apps, _NEW_MILLIS, dice, None) for n in range(NEW_PODS)]
    bought_for: dict[str, list[Any]] = {}
    for pod in pods:
        names = {"metadata": {"namespace": pod.namespace, "name": pod.name}}
        bought_for.setdefault(pod.node, []).append(names)
    claims = [
        replace(claim_on(number, node, bought_for), capacity_type="on-demand", price_hourly_usd=_PRICE)
        for number, node in enumerate(machines)
    ]
    shown = [reduce_node(marked(node, claim)) for node, claim in zip(machines, claims, strict=True)]
    budgets = [reduce_budget(clusters.budget(app, nodes * PODS_PER_NODE // apps)) for app in range(apps)]
    for number in range(2):
        observed = Observed(
            pods=[*pods, *new] if number else pods,
            nodes=shown,
            nodepools=[reduce_custom(pool())],
            nodeclasses=[reduce_custom(builders.nodeclass_manifest())],
            poddisruptionbudgets=budgets,
        )
        at = builders.NOW + number * _LATER
        (folder / f"snapshot-{number}").write_bytes(encode(builders.CLUSTER, at, observed))
    items = {f"CLAIM#{claim.name}": item_of(claim) for claim in claims} | _further()
    (folder / "ledger").write_bytes(gzip.compress(json.dumps(items).encode(), 1))


def _pod(app: int, millis: int, dice: random.Random, machine: Mapping[str, Any] | None) -> ReducedPod:
    requests = {"cpu": f"{millis}m", "memory": "256Mi"}
    container = {"name": "main", "image": "registry.example/app:1", "resources": {"requests": requests}}
    name = machine["metadata"]["name"] if machine else ""
    found = reduce_pod(clusters.deployment_pod(app, dice, name, containers=[container]))
    assert found is not None, "these pods run"
    return found


def _further() -> dict[str, Item]:
    changed = builders.NOW - _LONG_AGO
    documents: dict[str, Any] = {
        "META": cluster_item(builders.cluster_info()),
        "NODECLASS#default": nodeclass_item(builders.nodeclass_status()),
        "CONTENT#NodePool/default": builders.content_of(pool()),
    }
    items = {sk: {"sk": {"S": sk}, "doc": {"S": json.dumps(found)}} for sk, found in documents.items()}
    items["META"] |= {"version": {"N": "7"}, "changed": {"S": format_time(changed)}}
    return items


class _Cloud(StampedCloud):
    """Records the processor time at which the last CreateFleet request was built."""

    watch = staticmethod(time.process_time)


class _Function:
    """The ports of a function that has the files' cluster."""

    def __init__(self, folder: Path, *, shares: bool = False) -> None:
        self.now = builders.NOW + _LATER
        self.aws = Aws(partition_key(builders.CLUSTER))
        self.snapshots = [(folder / f"snapshot-{number}").read_bytes() for number in range(2)]
        self.items = json.loads(gzip.decompress((folder / "ledger").read_bytes()))
        self.cloud = _Cloud(clock=self.clock)
        store = DynamoStore(
            self.aws.client("dynamodb"), "nodesmith", builders.CLUSTER, self.clock, shares=shares
        )
        blobs = S3Blobs(self.aws.client("s3"), "nodesmith")
        self.ports = store, self.cloud, blobs, FakeHints(clock=self.clock)
        self.catalogs = SimpleNamespace(latest=builders.catalog)
        self.show(0)

    def clock(self) -> datetime:
        """Return the time."""
        return self.now

    def show(self, number: int) -> None:
        """Make one of the snapshots the newest, and the ledger as it was at first."""
        self.aws.hold(self.items)
        self.aws.objects[snapshot_key(builders.CLUSTER)] = self.snapshots[number]


def measure_run(_: int, folder: Path) -> None:
    """Print how long provisioning takes from loading until CreateFleet, without and with decoding the snapshot."""
    there = _Function(folder, shares=True)
    store, cloud, blobs, hints = there.ports
    ports = store, cloud, blobs, hints, there.catalogs, there.clock, time.perf_counter
    run = Provisioning(builders.CLUSTER, NodeSettings(), *ports)
    with as_on_lambda():
        provision(run)
        found = [_asked(there, run) for _ in range(RUNS)]
    decided, decoded, launched = min(found)
    note = f"{launched} nodes for {NEW_PODS} pods, {decided * 1000 / reference_ms():.0f} × the reference loop"
    print(json.dumps({"run": decided, "read": decided + decoded, "run_note": note}))


def _asked(there: _Function, run: Provisioning) -> tuple[float, float, int]:
    """Return the seconds until CreateFleet is called for new pods, those of decoding, and the number of nodes."""
    there.show(1)
    started = time.process_time()
    own_snapshot(there.snapshots[1], builders.CLUSTER)
    decoding = time.process_time() - started
    there.now += timedelta(seconds=1)
    answering, started = there.aws.seconds, time.process_time()
    outcome = provision(run)
    found = there.cloud.asked_at - started - (there.aws.seconds - answering), decoding, len(outcome.launched)
    there.show(0)
    own_snapshot(there.snapshots[0], builders.CLUSTER)
    return found


def measure_pass(_: int, folder: Path) -> None:
    """Print the processor time of a run of disruption that searches, and the memory of the process."""
    there = _Function(folder)
    store, cloud, blobs, hints = there.ports
    cluster = FakeCluster()
    run = Disruption(
        builders.CLUSTER, store, cloud, cluster, blobs, hints, there.clock, NodeSettings(), there.catalogs
    )
    before, started = reference_ms(), time.process_time()
    with as_on_lambda():
        look = disrupt(run)
    seconds = time.process_time() - started - there.aws.seconds
    assert look is not None, "there is a snapshot"
    note = (
        f"{look.done['MovesProposed']} moves, {len(run.memory.looked_at):,} nodes considered,"
        f" {seconds * 1000 / ((before + reference_ms()) / 2):.0f} × the reference loop"
    )
    print(json.dumps({"pass": seconds, "mib": most_memory_mib(), "pass_note": note}))
