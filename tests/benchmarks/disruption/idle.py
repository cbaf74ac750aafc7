"""A search in a large unchanged cluster: it reads the snapshot and the ledger, and makes no other call."""

from __future__ import annotations

import time
from datetime import timedelta
from types import SimpleNamespace

from nodesmith.adapters.dynamodb.ledger import DynamoStore
from nodesmith.adapters.s3 import S3Blobs
from nodesmith.controllers.disruption.disruption import disrupt
from nodesmith.controllers.disruption.moves.runstate import Disruption
from nodesmith.model.policies import NodeSettings
from tests import builders
from tests.benchmarks.aws.ticks import Scene
from tests.benchmarks.figures import Figure, median_ms
from tests.objects.fleets import pool

_REPEATS = 7
_LATER = timedelta(seconds=25)
"""more than the longest interval between two searches"""


def figures(*, nodes: int) -> list[Figure]:
    """Measure the processor time without that of DynamoDB and S3, which run in this process."""
    scene = Scene.of(nodes, 20 * nodes, max(1, nodes // 10))
    settled = scene.state((), pool(policy="WhenEmpty"))
    store = DynamoStore(scene.aws.client("dynamodb"), "nodesmith", builders.CLUSTER, lambda: scene.now)
    ports = store, scene.cloud, scene.cluster, S3Blobs(scene.aws.client("s3"), "nodesmith"), scene.hints
    template_offers = SimpleNamespace(latest=builders.catalog)
    run = Disruption(builders.CLUSTER, *ports, lambda: scene.now, NodeSettings(), template_offers)

    def looked() -> float:
        scene.tick(settled)
        scene.now += _LATER
        for calls in (scene.aws.calls, scene.cluster.calls, scene.cloud.calls, scene.hints.sent):
            calls.clear()
        answering, started = scene.aws.seconds, time.process_time()
        assert disrupt(run) is not None
        return (time.process_time() - started - (scene.aws.seconds - answering)) * 1000

    first_ms = looked()
    middle, note = median_ms(looked, _REPEATS)
    asked = scene.cluster.calls or scene.cloud.calls or scene.hints.sent
    assert not asked, asked
    calls = ", ".join(f"{number} {call}" for call, number in sorted(scene.aws.calls.items()))
    return [
        Figure("idle-pass-ms", middle, "ms", 200, f"{note}; {calls}; the first look took {first_ms:.0f} ms")
    ]
