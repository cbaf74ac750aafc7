"""A snapshot of 1,000 nodes and 20,000 pods with their budgets: its size, and the time to write and to read it."""

from __future__ import annotations

import time

from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.objects import reduce_budget, reduce_node
from nodesmith.observation.reduction.pods import reduce_pod
from tests.benchmarks.figures import Figure, median_ms
from tests.builders import NOW
from tests.clusters import cluster

NODES, PODS, DEPLOYMENTS = 1000, 20_000, 200
REPEATS = 9


def figures() -> list[Figure]:
    """Measure one cluster."""
    made = cluster(NODES, PODS, DEPLOYMENTS)
    reduced = [reduce_pod(pod) for pod in made["pods"]]
    observed = Observed(
        pods=[pod for pod in reduced if pod is not None],
        nodes=[reduce_node(node) for node in made["nodes"]],
        poddisruptionbudgets=[reduce_budget(budget) for budget in made["poddisruptionbudgets"]],
    )
    data = encode("bench", NOW, observed)

    def write() -> float:
        started = time.perf_counter()
        encode("bench", NOW, observed)
        return (time.perf_counter() - started) * 1000

    def read() -> float:
        started = time.perf_counter()
        decode(data)
        return (time.perf_counter() - started) * 1000

    written, _ = median_ms(write, REPEATS)
    middle, note = median_ms(read, REPEATS)
    shapes = len({pod.shape for pod in decode(data).pods})
    about = f"{NODES} nodes, {PODS} pods, {shapes} shapes; written in {written:.0f} ms"
    return [
        Figure("snapshot-1000-bytes", len(data), "bytes", 2_000_000, about),
        Figure("snapshot-1000-read-ms", middle, "ms", 300, note),
    ]
