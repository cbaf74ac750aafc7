"""The API server's responses to evictions, and the outcomes that the adapter derives from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from threading import Barrier, Event, Lock
from time import sleep
from typing import Any

import pytest

from nodesmith.adapters.kubernetes.apiserver import ApiServer, Manifest, Method
from nodesmith.adapters.kubernetes.cluster import ApiCluster
from nodesmith.adapters.kubernetes.events import EventRecorder
from nodesmith.adapters.kubernetes.evictions import delete, evict
from nodesmith.decisions.reporting.events import of_evictions
from nodesmith.errors import Transient
from nodesmith.model.kubernetes.evictions import (
    BUDGET,
    DENIED,
    Evicted,
    EvictionRefused,
    Gone,
    PodOnNode,
    Postponed,
)
from nodesmith.model.metrics.metrics import Metrics
from tests.builders import NOW, claim

PODS = [PodOnNode(f"default/web-{number}", "n1") for number in range(100)]
REFUSED = {
    "message": "Cannot evict pod as it would violate the pod's disruption budget.",
    "details": {"causes": [{"reason": "DisruptionBudget", "message": "web needs 2 and has 2"}]},
}


class Answering(ApiServer):
    """An API server where all pods run on n1. It records requests and returns a given response for one pod."""

    def __init__(self, status: int = 201, said: Mapping[str, Any] | None = None, pod: str = "web-7") -> None:
        self._told = (pod, status, dict(said or {}))
        self.asked: list[tuple[str, str, Manifest]] = []
        self.read = 0

    def get(self, path: str, **how: Any) -> dict[str, Any] | None:
        del how
        self.read += 1
        return {"metadata": {"uid": f"uid of {path.rpartition('/')[2]}"}, "spec": {"nodeName": "n1"}}

    def ask(
        self, method: Method, path: str, body: Manifest, *, read_seconds: float
    ) -> tuple[int, dict[str, Any]]:
        del read_seconds
        self.asked.append((method, path, body))
        pod, status, said = self._told
        return (status, said) if f"/{pod}/" in f"{path}/" else (201, {})


def test_the_pods_uid_is_a_precondition_and_the_grace_period_is_optional() -> None:
    server = Answering()
    evict(server, [PodOnNode("default/a", "n1"), PodOnNode("default/b", "n1", 5)])
    options = {body["metadata"]["name"]: body["deleteOptions"] for _, _, body in server.asked}
    assert options == {
        "a": {"preconditions": {"uid": "uid of a"}},
        "b": {"preconditions": {"uid": "uid of b"}, "gracePeriodSeconds": 5},
    }
    server.asked.clear()
    delete(server, [PodOnNode("default/b", "n1", 5)])
    ((method, path, body),) = server.asked
    assert (method, path) == ("DELETE", "/api/v1/namespaces/default/pods/b")
    assert (body["preconditions"], body["gracePeriodSeconds"]) == ({"uid": "uid of b"}, 5)


def test_the_event_of_an_evicted_pod_is_written_without_reading_the_pod_again() -> None:
    """A drain writes one Event per pod, and its next round waits for that."""
    server, now = Answering(), datetime(2026, 11, 21, 8, tzinfo=UTC)
    pods = PODS[:3]
    answers = evict(server, pods)
    server.asked.clear()
    server.read = 0
    EventRecorder(server).publish(of_evictions(claim(cause="Deleted"), pods, answers), now)
    uids = {body["involvedObject"]["name"]: body["involvedObject"]["uid"] for _, _, body in server.asked}
    assert (server.read, uids) == (0, {f"web-{number}": f"uid of web-{number}" for number in range(3)})


@pytest.mark.parametrize("status", [404, 409])
def test_a_pod_that_was_replaced_before_its_eviction_counts_as_gone(status: int) -> None:
    assert evict(Answering(status), PODS)["default/web-7"] == Gone()


def test_a_refusal_quotes_the_server_and_does_not_affect_other_pods() -> None:
    answers = evict(Answering(429, REFUSED), PODS)
    assert list(answers) == [each.pod for each in PODS]
    refused = answers.pop("default/web-7")
    assert refused == EvictionRefused(BUDGET, f"{REFUSED['message']} web needs 2 and has 2")
    assert set(answers.values()) == {Evicted()}


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, 'admission webhook "guard.example.com" denied the request: not on Fridays'),
        (403, 'admission webhook "guard.example.com" denied the request: not on Fridays'),
        (500, 'admission webhook "guard.example.com" denied the request without explanation'),
        (422, "ValidatingAdmissionPolicy 'guard' with binding 'all' denied request: not on Fridays"),
        (405, "the server does not allow this method on the requested resource"),
    ],
)
def test_a_denial_by_an_admission_webhook_or_policy_is_quoted_and_does_not_affect_other_pods(
    status: int, message: str
) -> None:
    answers = evict(Answering(status, {"message": message}), PODS)
    assert answers.pop("default/web-7") == EvictionRefused(DENIED, message)
    assert set(answers.values()) == {Evicted()}


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (429, "Too many requests, please try again later."),
        (500, 'Internal error occurred: failed calling webhook "guard.example.com": connection refused'),
        (504, "Timeout: request did not complete within requested timeout"),
        (403, 'User "nodesmith" cannot create resource "pods/eviction"'),
    ],
)
def test_a_transient_error_is_retried_once_and_raised_after_all_others_are_done(
    status: int, message: str
) -> None:
    server = Answering(status, {"message": message})
    with pytest.raises(Transient, match=r"1 pods not evicted, default/web-7 first: POST .*" + message[:20]):
        evict(server, PODS)
    paths = [path for _, path, _ in server.asked]
    assert len(set(paths)) == 100
    assert len(paths) == 101


class Counting(Answering):
    """An API server that records how many evictions are in progress at once, per budget and in total."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = Lock()
        self.under_way: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    def ask(
        self, method: Method, path: str, body: Manifest, *, read_seconds: float
    ) -> tuple[int, dict[str, Any]]:
        budgets = [path.rpartition("/web-")[2][:1], "all"]
        with self.lock:
            self.under_way.update(budgets)
            self.most |= self.under_way
        sleep(0.005)
        with self.lock:
            self.under_way.subtract(budgets)
        return super().ask(method, path, body, read_seconds=read_seconds)


def test_one_pod_is_evicted_at_a_time_per_budget() -> None:
    server = Counting()
    pods = [
        PodOnNode(f"default/web-{number % 4}-{number}", "n1", budget=str(number % 4)) for number in range(32)
    ]
    assert list(evict(server, pods)) == [pod.pod for pod in pods]
    assert server.most["all"] > 1
    assert {server.most[budget] for budget in "0123"} == {1}


class Reluctant(Answering):
    """An API server that evicts no pod of a large budget before the pods without a budget have been requested."""

    def __init__(self, others: Collection[str]) -> None:
        super().__init__()
        self.left, self.lock, self.done = set(others), Lock(), Event()

    def ask(
        self, method: Method, path: str, body: Manifest, *, read_seconds: float
    ) -> tuple[int, dict[str, Any]]:
        name = body["metadata"]["name"]
        with self.lock:
            self.left.discard(name)
            if not self.left:
                self.done.set()
        if name.startswith("large"):
            assert self.done.wait(60)
            sleep(0.01)  # until those have their response
        return super().ask(method, path, body, read_seconds=read_seconds)


def test_many_pods_of_one_budget_do_not_block_others() -> None:
    large = [PodOnNode(f"default/large-{number}", "n1", budget="large") for number in range(50)]
    small = [PodOnNode(f"default/small-{number}", "n1", budget=f"small-{number}") for number in range(3)]
    free = [PodOnNode(f"default/free-{number}", "n1") for number in range(3)]
    others = [pod.pod.partition("/")[2] for pod in [*small, *free]]
    assert len(evict(Reluctant(others), [*large, *small, *free])) == 56


def test_pods_of_twenty_budgets_do_not_wait_for_each_other() -> None:
    """The API server may delay each of them by half a second."""
    together = Barrier(20, timeout=60)

    class Waiting(Answering):
        """An API server that responds only once the first evictions of all budgets are in progress."""

        def ask(self, *asked: Any, **options: Any) -> tuple[int, dict[str, Any]]:
            together.wait()
            return super().ask(*asked, **options)

    pods = [PodOnNode(f"default/web-{n}", "n1", budget=str(n % 20)) for n in range(100)]
    assert set(evict(Waiting(), pods).values()) == {Evicted()}


def test_slow_budgets_are_left_to_the_next_run_once_half_are_done() -> None:
    slow = [PodOnNode(f"default/large-{n}", "n1", budget="large") for n in range(10)]
    quick = [PodOnNode(f"default/small-{n}", "n1", budget="small") for n in range(10)]
    server = Reluctant([pod.pod.partition("/")[2] for pod in quick])
    answers = evict(server, [*slow, *quick], patience_seconds=0)
    assert [answers[pod.pod] for pod in quick] == [Evicted()] * 10
    left = Counter(answers[pod.pod] for pod in slow)
    assert left[Evicted()] >= 1, "one of each budget, however late it is"
    assert left[Postponed()] == 10 - left[Evicted()] > 0
    assert len(server.asked) == 10 + left[Evicted()]


def test_a_single_slow_budget_is_left_to_the_next_run() -> None:
    pods = [PodOnNode(f"default/web-{n}", "n1", budget="web") for n in range(10)]
    assert set(evict(Answering(), pods, patience_seconds=0).values()) == {Evicted()}


def test_a_failed_eviction_is_raised_and_not_postponed() -> None:
    server = Answering(504, {"message": "Timeout: request did not complete"})
    pods = [PodOnNode(f"default/{name}", "n1", budget=name) for name in ("web-7", "web-8")]
    with pytest.raises(Transient, match="1 pods not evicted"):
        evict(server, pods, patience_seconds=0)
    assert len(server.asked) == 3


def test_two_runs_start_with_different_pods() -> None:
    begun = set()
    for _ in range(20):
        server = Answering()
        evict(server, PODS)
        begun.add(server.asked[0][1])
    assert len(begun) > 1


@pytest.mark.parametrize(
    ("status", "said", "counted"),
    [(201, {}, {"200": 3}), (429, REFUSED, {"200": 2, "429": 1}), (404, {}, {"200": 2, "404": 1})],
)
def test_evictions_are_counted_by_status_code(
    status: int, said: Mapping[str, Any], counted: Mapping[str, int]
) -> None:
    metrics = Metrics()
    cluster = ApiCluster(Answering(status, said), lambda: NOW, metrics)
    cluster.evict(PODS[6:9])
    found = metrics.take().counters["pods_eviction_requests_total"]
    assert {code: times for ((_, code),), times in found.items()} == counted
    cluster.delete_pods(PODS[6:9])
    assert metrics.delay is None, "a deletion is no eviction"


def test_each_attempt_of_a_failing_eviction_is_counted() -> None:
    metrics = Metrics()
    with pytest.raises(Transient):
        ApiCluster(Answering(500), lambda: NOW, metrics).evict(PODS[6:9])
    found = metrics.take().counters["pods_eviction_requests_total"]
    assert {code: times for ((_, code),), times in found.items()} == {"200": 2, "500": 2}
