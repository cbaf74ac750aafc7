"""The startup time of pods is read from their status, kept if it is long, and counts when they are moved."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.decisions.disruption.costs import EVICTION_MINUTES, lost_usd, startups
from nodesmith.decisions.disruption.search.search import propose
from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.pods import reduce_pod, startup_minutes
from tests import builders
from tests.builders import NOW, shape
from tests.objects.clusters import deployment_pod, rolled
from tests.objects.fleets import fleet, pool, running, worker

MADE = {"creationTimestamp": "2026-11-21T08:00:00Z"}


def status(ready_at: str, *, restarts: int = 0, began: str = "", ready: str = "True") -> dict[str, Any]:
    """Return the status of a pod that started at 8 o'clock."""
    state = {"running": {"startedAt": began}} if began else {}
    return {
        "startTime": "2026-11-21T08:00:00Z",
        "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": ready_at}],
        "containerStatuses": [{"name": "main", "restartCount": restarts, "state": state}],
    }


@pytest.mark.parametrize(
    ("shown", "minutes"),
    [
        (status("2026-11-21T08:00:20Z"), 0),
        (status("2026-11-21T08:10:00Z"), 0),
        (status("2026-11-21T08:30:00Z"), 30),
        (status("2026-11-21T08:30:00Z", ready="False"), 0),
        (status("2026-11-21T09:00:00Z", restarts=3, began="2026-11-21T08:55:00Z"), 20),
        (status("2026-12-01T08:30:00Z", restarts=3, began="2026-12-01T08:25:00Z"), 0),
        (status("2026-11-21T20:00:00Z"), 360),
        ({}, 0),
    ],
    ids=["quick", "usual", "slow", "not-ready", "restarts", "restarts-of-a-long-life", "at-most", "unknown"],
)
def test_a_long_startup_counts_once_for_each_start(shown: dict[str, Any], minutes: int) -> None:
    assert startup_minutes(MADE, shown) == minutes


def test_the_startup_time_is_in_the_snapshot() -> None:
    pod = deployment_pod(1, rolled(7), "n1")
    pod["metadata"] |= MADE
    pod["status"] = {**pod["status"], **status("2026-11-21T08:30:00Z")}
    reduced = reduce_pod(pod)
    assert reduced is not None
    (seen,) = decode(encode(builders.CLUSTER, NOW, Observed(pods=[reduced]))).pods
    assert seen.startup_minutes == 30


def test_the_usual_startup_time_of_similar_pods_is_learned() -> None:
    web = running(shape("1"), {"a": 5})
    odd = [replace(web[0], startup_minutes=300), *web[1:]]
    slow = [replace(pod, startup_minutes=25 + n) for n, pod in enumerate(web)]
    assert startups(odd) == {}
    assert startups(slow) == {web[0].shape: 27}
    assert startups([replace(pod, ready=False) for pod in slow]) == {}


def test_slow_pods_cost_the_time_beyond_the_eviction_cost() -> None:
    node = worker("a").node
    (pod,) = running(shape("2", "1Gi"), {"a": 1})
    lost = lost_usd([pod], node, 0.4, NOW, {pod.shape: EVICTION_MINUTES + 60})
    assert lost == pytest.approx(0.4 * 2000 / node.allocatable.cpu_milli)
    assert lost_usd([pod], node, 0.4, NOW, {pod.shape: EVICTION_MINUTES - 1}) == 0


def test_slow_pods_stay_if_the_saving_does_not_pay_for_their_startup() -> None:
    busy = [worker(name, last_pod_event_at=NOW - timedelta(hours=1)) for name in "ab"]
    pods = running(shape("500m", "1Gi"), {"a": 3, "b": 2})
    slow = [replace(pod, startup_minutes=360) for pod in pods]
    pools = [pool(requirements=[builders.expression("node.kubernetes.io/instance-type", "In", "m5.xlarge")])]
    assert propose(fleet(busy, pods, pools=pools)).proposals
    assert not propose(fleet(busy, slow, pools=pools)).proposals


HALF = timedelta(minutes=30)


@pytest.mark.parametrize(
    ("pod_shape", "age", "minutes", "usd"),
    [
        (shape("1", "1Gi"), HALF, 70, 0.1),  # an hour beyond the ten minutes, for a quarter of the node
        (shape("100m", "8Gi"), HALF, 70, 0.2),
        (shape("1", "1Gi"), HALF, EVICTION_MINUTES, 0.0),
        (shape("1", "1Gi"), HALF, None, 0.0),
        (shape("1", "1Gi", owner="Job/x"), HALF, None, 0.05),
        (shape("1", "1Gi", owner="Job/x"), HALF, 70, 0.15),
        (shape("1", "1Gi", owner="Job/x"), -HALF, None, 0.0),
    ],
)
def test_what_a_move_loses_is_a_pods_share_of_the_nodes_price_for_the_time_it_takes_again(
    pod_shape: Any, age: timedelta, minutes: int | None, usd: float
) -> None:
    pods = [replace(pod, created_at=NOW - age) for pod in builders.pods(pod_shape, 2)]
    learned = {} if minutes is None else {pod_shape: minutes}
    found = lost_usd(pods, builders.node(cpu="4", memory="16Gi"), 0.4, NOW, learned)
    assert found == pytest.approx(2 * usd)
