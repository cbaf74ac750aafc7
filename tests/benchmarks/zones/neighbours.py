"""How much longer do pods of 49 clusters wait for CreateFleet while other clusters of the region have a storm?

The storm, of one cluster or of three at once: 200 Spot notices, 5,000 pending pods of 20 Deployments, and for two
minutes the maximum that the forwarder of such a cluster sends (`forwarder/nodesmith_forwarder/windows.py`). Each node
needs its own CreateFleet call, as if no two were alike. (Equal nodes share a call, and then EC2 hardly notices the
storm.) Meanwhile each other cluster gets 20 pods, one cluster after another, at moments drawn from a seed. The measured
time is from that moment to the answer of the last CreateFleet call that one of these pods needs. The simulation is
repeated without the storm at the same moments, and the figure is the ratio.

Provisioning, interruption and routing are nodesmith's own, down to EC2's client. The rest is modelled. Clusters share:

- Lambda's concurrency of the account: 50, as some new accounts have, and 1,000, the default (Lambda Developer Guide,
  "Lambda quotas"). An event without free concurrency is retried after 1, 2, 4 ... seconds. The worse result counts.
- EC2's token buckets, one per action (`nodesmith_local.aws.strict.ec2buckets`): CreateFleet 50 calls and 5 more a
  second, and 1,000 instances and 2 more a second; DescribeInstances 100 and 20.
- DynamoDB, S3 and SQS have no limits here. They, EC2 and Lambda take the durations below, which are those of the other
  benchmarks (`bursts`). A missing execution environment starts in 0.6 to 1.0 s (`coldstart`).

Runs of other concerns take the durations below. Ticks are omitted, because they are the same with and without the
storm. All simulations together take two to three minutes of processor time. With two seeds the ratio was between 1.00
and 1.01 with a concurrency of 1,000, and between 1.01 and 1.15 with 50, where a refused event waits for a second.
"""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

from botocore.exceptions import ClientError

from infra.functions.concerns import CLUSTER_CONCERNS, ROUTING_MEMORY_MIB, ROUTING_TIMEOUT_SECONDS
from nodesmith.adapters.cloud import AwsCloud
from nodesmith.controllers.disruption.interruption import Interruption, handle_notices
from nodesmith.controllers.provisioning import Outcome, Repeats, provision
from nodesmith.controllers.region.routing import Routing, route
from nodesmith.errors import Conflict, RetryScheduled, Transient
from nodesmith.model.ec2.notices import Notice
from nodesmith.model.functions import Concern, Hint, retry_seconds
from nodesmith.model.ledger.region import CallBudget
from nodesmith.settings import Settings
from nodesmith_local.aws.strict.ec2buckets import CODE, MUTATING, Ec2Buckets
from nodesmith_local.aws.strict.refusals import AwsRequest, Refusal
from tests import builders
from tests.benchmarks.aws.bursts import (
    CALL_SECONDS,
    REFUSAL_SECONDS,
    STORE_SECONDS,
    Ec2,
)
from tests.benchmarks.aws.hotpath import mixed_pods, plain_pods
from tests.benchmarks.aws.sharedregion import Kernel, Lambda
from tests.benchmarks.decisions.notices import running
from tests.benchmarks.figures import Figure
from tests.fakes.blobs import FakeBlobs
from tests.fakes.routes import FakeRoutes
from tests.smallworld.world import World

NEIGHBOURS, SEED = 49, 0
NOTICES, NODES, PODS, DEPLOYMENTS = 200, 250, 5000, 20
CONCURRENCY = (50, 1000)
STORMS = (1, 3)
"""How many clusters storm at once."""
BEGIN_SECONDS, STORM_SECONDS, PATIENCE_SECONDS, STEP_SECONDS = 5.0, 120.0, 300, 5
GATHER_SECONDS = 1.0
"""From pending pods to the forwarder's hint."""
RENEWAL_SECONDS = 30.0
"""After which the forwarder renews the hint while pods are pending."""
OBJECT_SECONDS, SEND_SECONDS, ITEM_SECONDS, SESSION_SECONDS = 0.03, 0.02, 0.01, 0.1
"""Duration of a call of S3; of Lambda or SQS; of DynamoDB for one item; until a run has a cluster's session."""
EVERY_SECONDS = {
    Concern.PROVISIONING: 10.0,
    Concern.LIFECYCLE: 2.0,
    Concern.TERMINATION: 0.5,
    Concern.DISRUPTION: 5.0,
}
"""How often the forwarder sends a hint while everything keeps changing."""
RUN_SECONDS = {
    Concern.LIFECYCLE: 1.5,
    Concern.TERMINATION: 3.0,
    Concern.DISRUPTION: 2.0,
    Concern.READINESS: 1.0,
}
TURNED_AWAY_SECONDS = 0.05
"""Duration of a run of termination while another holds the lock."""
_WHOLE_CPU_MIB = 1769
_SPECS = {each.name: each for each in CLUSTER_CONCERNS}


def _at_once(seconds: float) -> None:
    """Let a call take no time."""
    del seconds


class SharedEc2(Ec2):
    """EC2's calls of one cluster's launches. The buckets are the account's. `asked_at` is when each was answered."""

    def __init__(self, kernel: Kernel, buckets: Ec2Buckets) -> None:
        super().__init__(kernel, buckets.bucket("CreateFleet", MUTATING))  # type: ignore[arg-type]
        self._kernel, self._buckets = kernel, buckets

    def create_launch_template(self, **asked: Any) -> dict[str, Any]:
        """Create a launch template."""
        self._ask("CreateLaunchTemplate", asked, CALL_SECONDS)
        return {}

    def create_fleet(self, **asked: Any) -> dict[str, Any]:
        """Launch the whole capacity in the first pool."""
        self._ask("CreateFleet", asked, CALL_SECONDS)
        token = asked["ClientToken"]
        if token not in self.answers:
            self.answers[token] = self._launched(asked, self._kernel.seconds)
        return self.answers[token]

    def paginate(self, Filters: Sequence[Mapping[str, Any]], **_: Any) -> Iterator[dict[str, Any]]:  # noqa: N803
        """Yield instances by the values of tags."""
        self._ask("DescribeInstances", {"Filters": Filters}, REFUSAL_SECONDS)
        yield self.shown(Filters)

    def _ask(self, operation: str, asked: Mapping[str, Any], seconds: float) -> None:
        self.calls += 1
        self._kernel.wait(0)
        try:
            self._buckets.check(AwsRequest("ec2", operation, asked))
        except Refusal:
            self.throttled += 1
            self._kernel.wait(REFUSAL_SECONDS)
            raise ClientError({"Error": {"Code": CODE, "Message": "slower"}}, operation) from None
        self._kernel.wait(seconds)


class SharedCloud(AwsCloud):
    """A cluster's EC2 without scheduled events."""

    def __init__(self, kernel: Kernel, ec2: SharedEc2) -> None:
        settings = Settings(cluster_name=builders.CLUSTER, region=builders.REGION)
        super().__init__(lambda _: ec2, settings, kernel.now, kernel.spread)
        self._kernel = kernel

    def notices(self, *_: Any) -> list[Notice]:
        """Return no notices."""
        self._kernel.wait(REFUSAL_SECONDS)
        return []


@dataclass(slots=True)
class SharedBlobs(FakeBlobs):
    """A bucket whose calls take time."""

    wait: Callable[[float], None] = _at_once

    def get(self, key: str) -> bytes | None:
        self.wait(OBJECT_SECONDS)
        return FakeBlobs.get(self, key)

    def put(self, key: str, data: bytes) -> None:
        self.wait(OBJECT_SECONDS)
        FakeBlobs.put(self, key, data)


class Cluster:
    """One of the region's clusters: its functions' ports, and their invocations."""

    def __init__(self, kernel: Kernel, lambda_: Lambda, buckets: Ec2Buckets, world: World) -> None:
        self._kernel, self._lambda, self.world = kernel, lambda_, world
        self.ec2 = SharedEc2(kernel, buckets)
        self._cloud = SharedCloud(kernel, self.ec2)
        self._blobs = SharedBlobs(objects=world.blobs.objects, wait=kernel.wait)
        self._repeats: list[Repeats] = []
        self._terminates = False
        world.store.raise_before = lambda method: kernel.wait(STORE_SECONDS.get(method, ITEM_SECONDS))
        world.notices.raise_before = lambda _: kernel.wait(ITEM_SECONDS)

    def show(self) -> None:
        """Have the forwarder write the snapshot."""
        self.world.now = self._kernel.now()
        self.world.observe()

    def send(self, concern: Concern, hint: Hint, delay_seconds: int = 0) -> None:
        """Send a hint from one of the cluster's functions, or from routing."""
        self._kernel.wait(SEND_SECONDS)
        self.wake(concern, hint.attempt, delay_seconds)

    def wake(self, concern: Concern, attempt: int = 0, delay_seconds: float = 0) -> None:
        """Have a concern's function invoked."""
        if delay_seconds:
            self._lambda.delay(lambda: self.wake(concern, attempt), delay_seconds)
            return
        spec = _SPECS[concern]
        share = max(1.0, _WHOLE_CPU_MIB / spec.memory_mib)
        self._lambda.invoke(concern, lambda: self._serve(concern, attempt), spec.timeout_seconds, share)

    def notify(self, event: str) -> None:
        """Have EventBridge invoke routing."""
        share = max(1.0, _WHOLE_CPU_MIB / ROUTING_MEMORY_MIB)
        self._lambda.invoke("routing", lambda: self._route(event), ROUTING_TIMEOUT_SECONDS, share)

    def _route(self, event: str) -> None:
        self._kernel.wait(ITEM_SECONDS)
        known = FakeRoutes(lambda: self.world.store.claims.values(), list)
        route(Routing(known, self.world.notices, known, self, self._kernel.now), event, builders.ACCOUNT)

    def _serve(self, concern: Concern, attempt: int) -> None:
        """Run once as the handler does, and retry failures."""
        self._kernel.wait(SESSION_SECONDS)
        try:
            again = self._run(concern)
        except RetryScheduled:
            again = False
        except (Transient, Conflict):
            again = True
        seconds = retry_seconds(attempt) if again else None
        if seconds is not None:
            self._kernel.wait(SEND_SECONDS)
            self.wake(concern, attempt + 1, seconds)

    def _run(self, concern: Concern) -> bool:
        match concern:
            case Concern.PROVISIONING:
                self._provision()
            case Concern.INTERRUPTION:
                store, notices = self.world.store, self.world.notices
                ports = store, self._cloud, self._blobs, self, notices
                return handle_notices(
                    Interruption(builders.CLUSTER, *ports, self._provision, self._kernel.now)
                ).retries_soon
            case Concern.TERMINATION if self._terminates:
                self._kernel.wait(TURNED_AWAY_SECONDS)
            case Concern.TERMINATION:
                self._terminates = True
                self._kernel.wait(RUN_SECONDS[concern])
                self._terminates = False
            case _:
                self._kernel.wait(RUN_SECONDS[concern])
        return False

    def _provision(self) -> Outcome:
        """Provision in the idle process that was used last."""
        repeats = self._repeats.pop() if self._repeats else Repeats()
        plain = self.world.provisioning(stopwatch=lambda: self._kernel.seconds)
        run = replace(plain, cloud=self._cloud, blobs=self._blobs, hints=self, clock=self._kernel.now)
        try:
            return provision(replace(run, repeats=repeats, remaining_seconds=self._kernel.left))
        finally:
            self._repeats.append(repeats)

    def answered_seconds(self, pods: Collection[str]) -> float:
        """Return when EC2 had answered for the last of these pods; infinity if it has not for one of them."""
        answered = {
            pod: self.ec2.asked_at[claim.instance_id]
            for claim in self.world.store.claims.values()
            if claim.instance_id in self.ec2.asked_at
            for pod in claim.nominated
        }
        return max(answered.get(f"default/{pod}", math.inf) for pod in pods)


@dataclass(frozen=True, slots=True)
class Minutes:
    """The result of one simulation: how long each neighbour waited, and what the region did."""

    waits: list[float]
    region: Lambda
    calls: int
    throttled: int
    stormed: list[int]
    """The number of instances that each stormy cluster launched until the last neighbour had its nodes."""


def simulated(seed: int, concurrency: int, storms: int) -> Minutes:
    """Simulate two minutes in which `storms` clusters have a storm, and then until all neighbours are served."""
    kernel, dice = Kernel(), Random(seed)  # noqa: S311
    lambda_ = Lambda(kernel, concurrency, Random(seed))  # noqa: S311
    buckets = Ec2Buckets(kernel.now)
    begun = [BEGIN_SECONDS + STORM_SECONDS * (n + dice.random()) / NEIGHBOURS for n in range(NEIGHBOURS)]
    clusters = [Cluster(kernel, lambda_, buckets, World(plain_pods())) for _ in begun]
    for cluster, at in zip(clusters, begun, strict=True):
        kernel.after(at, partial(_ask, kernel, cluster))
    stormy = [_stormy(kernel, lambda_, buckets) for _ in range(storms)]
    budget = [CallBudget()]
    for number, cluster in enumerate((*clusters, *stormy)):
        cluster.world.store.name, cluster.world.store.budget = str(number), budget
    pods = plain_pods()
    gc.collect()
    gc.disable()
    try:
        with patch("nodesmith.launcheffects.shared", list):  # one call per node, the maximum
            for seconds in range(STEP_SECONDS, PATIENCE_SECONDS + 1, STEP_SECONDS):
                kernel.run(seconds)
                if not any(math.isinf(cluster.answered_seconds(pods)) for cluster in clusters):
                    break
    finally:
        gc.enable()
    waits = [cluster.answered_seconds(pods) - at for cluster, at in zip(clusters, begun, strict=True)]
    all_ec2 = [cluster.ec2 for cluster in (*clusters, *stormy)]
    launched = [len(cluster.ec2.asked_at) for cluster in stormy]
    print(
        f"concurrency {concurrency}, {storms} storming, seed {seed}: {kernel.seconds:.0f} s, neighbours wait up to "
        f"{max(waits):.1f} s; {time.process_time():.0f} s of processor time",
        file=sys.stderr,
        flush=True,
    )
    return Minutes(waits, lambda_, sum(e.calls for e in all_ec2), sum(e.throttled for e in all_ec2), launched)


def _ask(kernel: Kernel, cluster: Cluster) -> None:
    """Act as the forwarder of a neighbour whose pods are pending from now on."""
    kernel.wait(GATHER_SECONDS)
    while kernel.seconds < PATIENCE_SECONDS:
        cluster.show()
        kernel.wait(OBJECT_SECONDS + SEND_SECONDS)
        cluster.wake(Concern.PROVISIONING)
        kernel.wait(RENEWAL_SECONDS)
        if not math.isinf(cluster.answered_seconds(plain_pods())):
            return


def _stormy(kernel: Kernel, lambda_: Lambda, buckets: Ec2Buckets) -> Cluster:
    """Return the stormy cluster."""
    world, claims = running(NODES)
    for name, pod in mixed_pods(PODS, DEPLOYMENTS).items():
        world.cluster.pods[f"default/{name}"] = pod
    world.store.claims = {claim.name: claim for claim in claims}
    cluster = Cluster(kernel, lambda_, buckets, world)
    for claim in claims[:NOTICES]:
        kernel.after(BEGIN_SECONDS, partial(_notify, cluster, builders.spot_warning(claim.instance_id)))
    for concern, seconds in EVERY_SECONDS.items():
        kernel.after(BEGIN_SECONDS + GATHER_SECONDS, partial(_repeat, kernel, cluster, concern, seconds))
    return cluster


def _notify(cluster: Cluster, event: str) -> None:
    cluster.notify(event)


def _repeat(kernel: Kernel, cluster: Cluster, concern: Concern, seconds: float) -> None:
    """Act as the stormy cluster's forwarder for one concern."""
    while kernel.seconds < BEGIN_SECONDS + STORM_SECONDS:
        if concern is Concern.PROVISIONING:
            cluster.show()
        kernel.wait(OBJECT_SECONDS + SEND_SECONDS)
        cluster.wake(concern)
        kernel.wait(seconds)


def figures(concurrency: Sequence[int] = CONCURRENCY) -> list[Figure]:
    """Simulate each concurrency of an account with each number of storms, and return the worst ratio."""
    simulated(SEED, max(concurrency), 0)  # warm up: the catalogue is read and resolved
    found = [each for most in concurrency for each in _ratios(most)]
    note = "; ".join(note for _, note in found)
    return [Figure("noisy-neighbour-p99-ratio", max(ratio for ratio, _ in found), "", 1.5, note)]


def _ratios(concurrency: int) -> Iterator[tuple[float, str]]:
    calm = simulated(SEED, concurrency, 0)
    return (_ratio(calm, simulated(SEED, concurrency, storms), concurrency, storms) for storms in STORMS)


def _ratio(calm: Minutes, stormy: Minutes, concurrency: int, storms: int) -> tuple[float, str]:
    quiet, noisy = _p99(calm.waits), _p99(stormy.waits)
    throttled = sum(n for what, n in stormy.region.seen.items() if what.endswith("throttled"))
    note = (
        f"concurrency {concurrency}, {storms} storming: {noisy:.1f} s with the storm, {quiet:.1f} s without, at most "
        f"{stormy.region.most} runs at once, {throttled} events throttled by Lambda, {stormy.throttled} of "
        f"{stormy.calls} calls by EC2, nodes of the storming clusters {stormy.stormed}"
    )
    return noisy / quiet, note


def _p99(waits: Sequence[float]) -> float:
    return sorted(waits)[math.ceil(0.99 * len(waits)) - 1]
