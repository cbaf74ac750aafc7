"""The forwarder's metrics with 500 nodes and 5,000 pods: time and size of a scrape, and memory for offerings."""

from __future__ import annotations

import time
import tracemalloc

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.decisions.provisioning.nodepools.onsale import on_sale
from nodesmith.keys import on_sale_key
from nodesmith.model.metrics.objects import write_on_sale
from nodesmith.observation.mirror import NODES, PODS
from nodesmith_forwarder.metrics import FunctionMetrics, exposition_text, gauges
from nodesmith_forwarder.metrics.offerings import OfferingMetrics
from nodesmith_forwarder.windows import Pace
from nodesmith_forwarder.world import World
from tests import builders
from tests.benchmarks.figures import Figure, median_ms
from tests.clocks import StillClock
from tests.fakes.blobs import FakeBlobs
from tests.objects.clusters import cluster

MOST_NODES, MOST_PODS, DEPLOYMENTS = 500, 5000, 100
REPEATS = 7
_MIB = 2**20


def figures() -> list[Figure]:
    """Measure scrapes, with a NodePool that allows every type of the largest region."""
    made = cluster(MOST_NODES, MOST_PODS, DEPLOYMENTS)
    world = World(StillClock(), Pace())
    world.put(NODES, made["nodes"])
    world.put(PODS, made["pods"])
    bucket, key = FakeBlobs(), on_sale_key(builders.CLUSTER)
    every_type = builders.snapshot(nodepools=(builders.nodepool_manifest(requirements=()),))
    inputs = builders.inputs(catalog=embedded_catalog("us-east-1"), snapshot=every_type)
    bucket.put(key, write_on_sale(on_sale(inputs)))
    functions = FunctionMetrics(bucket, builders.CLUSTER, StillClock())
    functions.text()

    def answer() -> bytes:
        counted, observed = world.measured()
        return exposition_text([*counted, *gauges(observed, builders.NOW)]) + functions.text()

    def once() -> float:
        started = time.process_time()
        answer()
        return (time.process_time() - started) * 1000

    text = answer().decode()
    middle, note = median_ms(once, REPEATS)
    kept, peak, samples = _memory(bucket)
    return [
        Figure("scrape-500-ms", middle, "ms", 600, note),
        Figure("scrape-500-mb", len(text) / 1e6, "MB", 10, f"{text.count(chr(10))} lines"),
        Figure("offerings-kept-mib", kept, "MiB", 8, f"{samples} lines"),
        Figure("offerings-peak-mib", peak, "MiB", 25, "while they are read again"),
    ]


def _memory(bucket: FakeBlobs) -> tuple[float, float, int]:
    tracemalloc.start()
    try:
        metrics = OfferingMetrics(bucket, builders.CLUSTER)
        metrics.read()
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return kept / _MIB, peak / _MIB, metrics.text.count(b"\n")
