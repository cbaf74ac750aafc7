"""What happens to 100 clusters of one account when an Availability Zone is lost?

Cluster sizes are drawn from 50 to 2,000 nodes, 24,827 together, all nodes full. A third of them are in the zone that is
lost. Within five minutes EC2 sends a notice for each of its 5,123 Spot nodes, with 10 pods each, and takes the instance
two minutes after that. From the start EC2 launches nothing in that zone. One pod in 50 may run only there.

Provisioning, interruption and routing are nodesmith's own, down to EC2's client, on the region of `neighbours`:
Lambda's concurrency, EC2's token buckets and durations of calls are modelled there. Clusters also share the budget of
calls and the document of launches, whose writers collide. A new node joins 45 seconds after its launch, takes the pods
that it was bought for, and then others that are pending. The forwarder reports changes once a second.

In theory EC2's buckets allow every notice to be served in time (`attainable`): a call may buy for all notices of a
cluster that wait, and each cluster is entitled to three calls a minute.

A notice is served once each of its node's pods that may run elsewhere has a place on a node that runs or is launched.

The goals:

- 99 % of the notices are served within a minute, and 99 % within their two minutes.
- No cluster starves: of each cluster's notices, 90 % are served within a minute.
- Clusters share EC2's rates fairly: in no cluster do notices wait, on average, twice as long as in all.
- Lambda's concurrency is enough: no event is refused with the default of 1,000.

The loss with a concurrency of 50, and the loss in one cluster after another, are measured with a tenth of the clusters
and a tenth of all limits. All together takes about ten minutes of processor time.
"""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from statistics import fmean
from unittest.mock import patch

from nodesmith.model.apimachinery import labels
from nodesmith.model.ledger.region import (
    CALLS_PER_SECOND,
    MOST_CALLS,
    SHORT_CALLS_PER_SECOND,
    CallBudget,
    Region,
)
from nodesmith_local.aws.strict.ec2buckets import MUTATING, RESOURCES, Ec2Buckets, Rate
from tests.benchmarks.aws.sharedregion import Kernel, KnownReader, Lambda
from tests.benchmarks.figures import Figure
from tests.benchmarks.zones.zoneworld import (
    LOST,
    WARNING_SECONDS,
    Shared,
    ZoneCluster,
    kinds_by_name,
    slots_of,
)

CLUSTERS, SMALLEST, LARGEST, SKEW, SEED = 100, 50, 2000, 3, 1
STORM_SECONDS, PATIENCE_SECONDS, SERVED_SECONDS = 300.0, 180.0, 60.0
STEPS = 20
"""How often a simulation prints how far it is."""
IN_TURN_SECONDS, EACH_SECONDS = 10.0, 15.0
"""One cluster's notices, when clusters lose the zone one after another; the time between two clusters."""

_STAGES = ("to its record", "for a call", "for EC2")


@dataclass(frozen=True, slots=True)
class Loss:
    """The result of a simulation."""

    clusters: Sequence[ZoneCluster]
    region: Lambda
    shared: Shared


def simulated(concurrency: int, clusters: int = CLUSTERS, *, in_turn: bool = False) -> Loss:
    """Simulate the loss of a zone in all clusters at once, or in one after another."""
    kernel, dice = Kernel(), Random(SEED)  # noqa: S311
    sizes = [round(SMALLEST * (LARGEST / SMALLEST) ** (dice.random() ** SKEW)) for _ in range(clusters)]
    lambda_ = Lambda(kernel, concurrency, Random(SEED))  # noqa: S311
    buckets, shared = Ec2Buckets(kernel.now), Shared()
    names = [f"cluster-{number:03}" for number in range(clusters)]
    region, budget = [Region("", clusters=tuple(names))], [CallBudget()]
    all_ = [
        ZoneCluster(kernel, lambda_, buckets, name, size, shared, region, budget)
        for name, size in zip(names, sizes, strict=True)
    ]
    last = 0.0
    for number, cluster in enumerate(all_):
        begin = EACH_SECONDS * number if in_turn else 0.0
        for claim in cluster.world.store.claims.values():
            if claim.zone == LOST and claim.capacity_type == labels.SPOT:
                at = 5.0 + begin + dice.random() * (IN_TURN_SECONDS if in_turn else STORM_SECONDS)
                last = max(last, at)
                kernel.after(at, partial(cluster.lose, claim))
    loss, end = Loss(all_, lambda_, shared), last + PATIENCE_SECONDS
    gc.collect()
    gc.disable()
    try:
        with patch("nodesmith.controllers.observation._READER", KnownReader(kernel)):
            for step in range(1, STEPS + 1):
                kernel.run(end * step / STEPS)
                print(_progress(loss, kernel.seconds, end), file=sys.stderr, flush=True)
    finally:
        gc.enable()
    return loss


def _progress(loss: Loss, seconds: float, end: float) -> str:
    waits = [wait for each in loss.clusters for wait in each.waits()]
    late = sum(SERVED_SECONDS < wait < math.inf for wait in waits)
    bought = sum(len(each.bought) for each in loss.clusters)
    return (
        f"{len(loss.clusters)} clusters: {seconds:.0f} of {end:.0f} s, {time.process_time():.0f} s of processor time; "
        f"{len(waits)} notices, {sum(map(math.isinf, waits))} open, {late} served late, {bought} nodes bought"
    )


def figures(clusters: int = CLUSTERS, others: int = CLUSTERS // 10) -> list[Figure]:
    """Lose the zone in all of `clusters` at once; and of `others`, with a small concurrency, and in one after another.

    Fewer than 100 clusters share as much less of EC2's buckets, the budget of calls and Lambda's concurrency.
    """
    with limits(clusters / CLUSTERS) as part:
        usual = max(4, round(1000 * part))
        together = simulated(usual, clusters)
        possible, why = attainable(together, part)
    with limits(others / CLUSTERS) as part:
        few, small = (max(4, round(concurrency * part)) for concurrency in (1000, 50))
        scarce = simulated(small, others)
        in_turn = simulated(few, others, in_turn=True)
    return [
        Figure("az-loss-attainable-share", possible, "", note=why),
        Figure("az-loss-served-share", _served(together), "", note=_note(together, usual), at_least=0.99),
        Figure("az-loss-in-time-share", _in_time(together), "", note="within two minutes", at_least=0.99),
        Figure("az-loss-worst-cluster-share", _worst(together), "", at_least=0.9),
        Figure(
            "az-loss-fairness-ratio", _unfairness(together), "", 2, "mean wait of a cluster, to that of all"
        ),
        Figure("az-loss-refused-events", _refused(together), "events", 0, f"with a concurrency of {usual}"),
        Figure("az-loss-concurrency", together.region.most, "runs", usual, "at most at once"),
        Figure("az-loss-room-ratio", _room(together), "", 1.1, "room of the nodes bought, per displaced pod"),
        Figure("az-loss-served-share-50", _served(scarce), "", note=_note(scarce, small)),
        Figure("az-loss-in-turn-served-share", _served(in_turn), "", note=_note(in_turn, few), at_least=0.99),
        Figure("az-loss-in-turn-worst-cluster-share", _worst(in_turn), "", at_least=0.9),
    ]


@contextmanager
def limits(part: float) -> Iterator[float]:
    """Let the account have this part of EC2's buckets and of the budget of calls."""
    rates = {
        "nodesmith.model.ledger.region.MOST_CALLS": max(2, round(MOST_CALLS * part)),
        "nodesmith.model.ledger.region.CALLS_PER_SECOND": CALLS_PER_SECOND * part,
        "nodesmith.model.ledger.region.SHORT_CALLS_PER_SECOND": SHORT_CALLS_PER_SECOND * part,
        "nodesmith_local.aws.strict.ec2buckets.MUTATING": _part(MUTATING, part),
        "tests.benchmarks.zones.neighbours.MUTATING": _part(MUTATING, part),
        "nodesmith_local.aws.strict.ec2buckets.RESOURCES": {
            name: _part(rate, part) for name, rate in RESOURCES.items()
        },
    }
    with ExitStack() as patched:
        for name, value in rates.items():
            patched.enter_context(patch(name, value))
        yield part


def attainable(loss: Loss, part: float) -> tuple[float, str]:
    """Return the largest share of notices that EC2's buckets allow to be served within a minute, and why.

    Each call launches one node at least. Within the storm and a minute both buckets allow so many nodes, and each holds
    as many pods as the largest type. And a cluster whose notices have come within a minute needs one call in the next.
    """
    seconds = STORM_SECONDS + SERVED_SECONDS
    calls, instances = (
        part * (rate.burst + rate.refill_per_second * seconds)
        for rate in (MUTATING, RESOURCES["RunInstances"])
    )
    each = part * MUTATING.refill_per_second * SERVED_SECONDS / len(loss.clusters)
    pods, largest = sum(c.displaced for c in loss.clusters), max(map(slots_of, kinds_by_name().values()))
    share = min(1.0, min(calls, instances) * largest / pods, each)
    nodes = min(calls, instances)
    return share, (
        f"{calls:.0f} calls and {instances:.0f} instances in {seconds:.0f} s, so {pods / nodes:.0f} pods a node; "
        f"{each:.1f} calls a minute for each cluster"
    )


def _part(rate: Rate, part: float) -> Rate:
    return Rate(max(5.0, rate.burst * part), rate.refill_per_second * part)


def _served(loss: Loss) -> float:
    return _share([wait for each in loss.clusters for wait in each.waits()])


def _in_time(loss: Loss) -> float:
    waits = [wait for each in loss.clusters for wait in each.waits()]
    return sum(wait <= WARNING_SECONDS for wait in waits) / len(waits)


def _worst(loss: Loss) -> float:
    return min(_share(each.waits()) for each in loss.clusters if each.noticed)


def _unfairness(loss: Loss) -> float:
    """Return the mean wait in the cluster where it is longest, as a multiple of that of all notices."""
    waits = [[min(wait, PATIENCE_SECONDS) for wait in each.waits()] for each in loss.clusters if each.noticed]
    return max(map(fmean, waits)) / fmean(wait for each in waits for wait in each)


def _refused(loss: Loss) -> int:
    return sum(n for what, n in loss.region.seen.items() if what.endswith("throttled"))


def _room(loss: Loss) -> float:
    """Return how many pods the bought nodes hold, for each pod of a lost node that may run elsewhere."""
    kinds = kinds_by_name()
    slots = sum(slots_of(kinds[claim.instance_type]) for each in loss.clusters for claim in each.bought)
    return slots / sum(each.displaced for each in loss.clusters)


def _share(waits: Sequence[float]) -> float:
    return sum(wait <= SERVED_SECONDS for wait in waits) / max(1, len(waits))


def _note(loss: Loss, concurrency: int) -> str:
    waits = sorted(wait for each in loss.clusters for wait in each.waits())
    p50, p99 = waits[len(waits) // 2], waits[math.ceil(0.99 * len(waits)) - 1]
    ec2 = [each.ec2 for each in loss.clusters]
    left = sum(
        not pod.node and "nodeSelector" not in pod.shape
        for each in loss.clusters
        for pod in each.pods.values()
    )
    bought, calls = sum(len(each.bought) for each in loss.clusters), sum(each.calls for each in ec2)
    stages = zip(*(stage for each in loss.clusters for stage in each.stages()), strict=True)
    means = ", ".join(
        f"{sum(stage) / len(stage):.1f} s {what}" for stage, what in zip(stages, _STAGES, strict=True)
    )
    return (
        f"{len(loss.clusters)} clusters, {len(waits)} notices, concurrency {concurrency} (at most {loss.region.most} "
        f"runs at once, {_refused(loss)} events throttled); half within {p50:.0f} s, p99 {p99:.0f} s, "
        f"{_in_time(loss):.1%} within their two minutes; on average {means}; {bought} nodes; {calls} calls, "
        f"{sum(len(e.answers) for e in ec2)} of them CreateFleet that EC2 has answered, "
        f"{sum(e.throttled for e in ec2)} throttled, {sum(e.lessons for e in ec2)} that found nothing; "
        f"{loss.shared.conflicts} commits repeated; {left} pods left without a node"
    )
