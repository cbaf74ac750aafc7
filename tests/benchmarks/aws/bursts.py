"""A thousand nodes at once, with 2.5 seconds per EC2 call and EC2's limits for mutating calls.

Functions run one after another, each for as long as Lambda allows, and each wakes the next. The time is this machine's
plus that of simulated calls. Concurrent calls take the time of the longest.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any
from unittest.mock import patch

from botocore.exceptions import ClientError

from nodesmith.adapters.cloud import AwsCloud
from nodesmith.controllers.provisioning import provision
from nodesmith.errors import Transient
from nodesmith.model.ec2.launches import LaunchRequest
from nodesmith.model.functions import Concern
from nodesmith.settings import Settings
from nodesmith_local.aws.ratelimits import TokenBucket
from tests import builders
from tests.benchmarks.figures import Figure
from tests.fakes.hints import FakeHints
from tests.fakes.store import FakeStore
from tests.smallworld.world import World, pod_manifest

NODES = 1000
CALL_SECONDS, REFUSAL_SECONDS = 2.5, 0.1
BURST, REFILL_PER_SECOND = 50, 5
"""EC2's token bucket for mutating calls (devguide, ec2-api-throttling)."""
RUN_SECONDS, TICK_SECONDS = 60, 60
COMMIT_SECONDS = 0.04
STORE_SECONDS = {"load": 0.05, "commit": COMMIT_SECONDS, "save": 0.008}
"""Durations of DynamoDB's calls."""
PATIENCE_SECONDS = 1200


@dataclass
class Clock:
    """The time: real seconds on this machine, plus those that calls would have taken."""

    waited: float = 0.0
    begun: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """Return the seconds since the start."""
        return time.perf_counter() - self.begun + self.waited

    def now(self) -> datetime:
        """Return the time of day."""
        return builders.NOW + timedelta(seconds=self.seconds)


class Workers(Executor):
    """Workers that process one item each at a time, like threads that wait for EC2."""

    def __init__(self, clock: Clock, count: int) -> None:
        self._clock, self._count = clock, count

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], **_: Any) -> Iterator[Any]:
        """Process each item as soon as a worker is free."""
        free = [self._clock.waited] * self._count
        heapify(free)
        found = []
        for item in iterables[0]:
            self._clock.waited = heappop(free)
            found.append(fn(item))
            heappush(free, self._clock.waited)
        self._clock.waited = max(free)
        return iter(found)


@dataclass
class Ec2:
    """EC2's calls of a launch: slow, limited, and idempotent by client token."""

    clock: Clock
    bucket: TokenBucket
    asked_at: dict[str, float] = field(default_factory=dict)
    """When each instance was requested, in seconds."""
    calls: int = 0
    throttled: int = 0
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    instances: dict[str, dict[str, Any]] = field(default_factory=dict)

    def create_launch_template(self, **_: Any) -> dict[str, Any]:
        """Create a launch template."""
        self._mutate("CreateLaunchTemplate")
        return {}

    def create_fleet(self, **asked: Any) -> dict[str, Any]:
        """Launch the whole capacity in the first pool."""
        asked_at = self.clock.seconds
        self._mutate("CreateFleet")
        token = asked["ClientToken"]
        if token not in self.answers:
            self.answers[token] = self._launched(asked, asked_at)
        return self.answers[token]

    def get_paginator(self, operation: str) -> Ec2:
        """Return a paginator that describes instances in one page."""
        assert operation == "describe_instances", operation
        return self

    def paginate(self, Filters: Sequence[Mapping[str, Any]], **_: Any) -> Iterator[dict[str, Any]]:  # noqa: N803
        """Yield instances by the values of tags."""
        self.clock.waited += REFUSAL_SECONDS
        yield self.shown(Filters)

    def shown(self, filters: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the page of the instances whose tags have these values."""
        found = [
            one
            for one in self.instances.values()
            if all(_tag(one, each["Name"].removeprefix("tag:")) in each["Values"] for each in filters)
        ]
        return {"Reservations": [{"Instances": found}]}

    def _mutate(self, operation: str) -> None:
        self.calls += 1
        if not self.bucket.take():
            self.throttled += 1
            self.clock.waited += REFUSAL_SECONDS
            raise ClientError({"Error": {"Code": "RequestLimitExceeded", "Message": "slower"}}, operation)
        self.clock.waited += CALL_SECONDS

    def _launched(self, asked: Mapping[str, Any], asked_at: float) -> dict[str, Any]:
        override = asked["LaunchTemplateConfigs"][0]["Overrides"][0]
        size = asked["TargetCapacitySpecification"]["TotalTargetCapacity"]
        seed = asked["ClientToken"]
        ids = [f"i-{hashlib.sha256(f'{seed}/{n}'.encode()).hexdigest()[:17]}" for n in range(size)]
        (tags,) = (s["Tags"] for s in asked["TagSpecifications"] if s["ResourceType"] == "instance")
        for id_ in ids:
            self.asked_at[id_] = asked_at
            self.instances[id_] = {
                "InstanceId": id_,
                "InstanceType": override["InstanceType"],
                "Placement": {"AvailabilityZone": override["AvailabilityZone"]},
                "ImageId": "ami-amd64",
                "State": {"Name": "pending"},
                "LaunchTime": self.clock.now(),
                "Tags": tags,
            }
        reported = {"LaunchTemplateAndOverrides": {"Overrides": override}, "InstanceIds": ids}
        return {"FleetId": f"fleet-{seed[:8]}", "Instances": [reported], "Errors": []}


@dataclass(slots=True)
class SlowStore(FakeStore):
    """A ledger whose calls take as long as DynamoDB's."""

    elapsed: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.raise_before = self._wait

    def _wait(self, call: str) -> None:
        self.elapsed.waited += STORE_SECONDS.get(call, 0.0)


def figures(nodes: int = NODES) -> list[Figure]:
    """Measure with equal requests in one call, and with one call per node."""
    return [
        _figure(f"burst-{nodes}-nodes-s", nodes, 30, alone=False),
        _figure(f"burst-{nodes}-nodes-singly-s", nodes, float("inf"), alone=True),
    ]


def _figure(name: str, nodes: int, at_most: float, *, alone: bool) -> Figure:
    with patch("nodesmith.launcheffects.shared", _alone) if alone else patch.dict({}):
        ec2, runs, longest = asked_for(nodes)
    note = (
        f"{ec2.calls} calls of {CALL_SECONDS} s, {ec2.throttled} of them throttled ({BURST} at once and"
        f" {REFILL_PER_SECOND} a second); {runs} runs, the longest {longest:.0f} s"
    )
    return Figure(name, max(ec2.asked_at.values()), "s", at_most, note)


def _alone(requests: Sequence[LaunchRequest]) -> list[LaunchRequest]:
    return list(requests)


def asked_for(nodes: int) -> tuple[Ec2, int, float]:
    """Provision pods that need a node each. Return EC2, the number of runs, and the longest run in seconds."""
    small = [*builders.EXPRESS, builders.expression("karpenter.k8s.aws/instance-cpu", "In", "4")]
    pods = {f"big-{n}": pod_manifest(f"big-{n}", cpu="3") for n in range(nodes)}
    world = World(pods, nodepool=builders.nodepool_manifest(requirements=small))
    world.observe()
    clock = Clock()
    ec2 = Ec2(clock, TokenBucket(BURST, REFILL_PER_SECOND, clock.now))
    hints = FakeHints(clock=clock.now)
    known = world.store
    store = SlowStore(
        nodeclasses=known.nodeclasses, cluster=known.cluster, contents=known.contents, elapsed=clock
    )
    settings = Settings(cluster_name=builders.CLUSTER, region=builders.REGION)
    cloud = AwsCloud(lambda _: ec2, settings, clock.now, lambda count: Workers(clock, count))
    plain = replace(world.provisioning(store=store, cloud=cloud), clock=clock.now, hints=hints)
    runs, longest = 0, 0.0
    while len(ec2.asked_at) < nodes:
        begun = clock.seconds
        _run(replace(plain, remaining_seconds=partial(_left, clock, begun + RUN_SECONDS)))
        runs, longest = runs + 1, max(longest, clock.seconds - begun)
        if clock.seconds > PATIENCE_SECONDS or longest > RUN_SECONDS:
            raise AssertionError(f"{len(ec2.asked_at)} of {nodes} nodes after {clock.seconds:.0f} s")
        _wait(clock, hints)
    ids = [claim.instance_id for claim in store.claims.values()]
    if len(set(ids)) != nodes or set(ids) != ec2.asked_at.keys():
        raise AssertionError("an instance belongs to two claims or to none")
    return ec2, runs, longest


def _left(clock: Clock, end: float) -> float:
    return end - clock.seconds


def _run(run: Any) -> None:
    try:
        provision(run)
    except Transient:
        return  # the run that it has woken does the rest


def _wait(clock: Clock, hints: FakeHints) -> None:
    """Advance the time to the next hint or tick for provisioning."""
    due = [m.due_at for m in hints.waiting if m.concern is Concern.PROVISIONING]
    tick = builders.NOW + timedelta(seconds=(clock.seconds // TICK_SECONDS + 1) * TICK_SECONDS)
    clock.waited += max(0.0, (min([*due, tick]) - clock.now()).total_seconds())
    hints.receive(Concern.PROVISIONING)


def _tag(instance: Mapping[str, Any], key: str) -> str:
    return next((str(tag["Value"]) for tag in instance["Tags"] if tag["Key"] == key), "")
