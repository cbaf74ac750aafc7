"""Metrics of EC2 calls, as Karpenter records them for its CloudProvider: by controller, method and error."""

from __future__ import annotations

from typing import Any, cast

import pytest

from nodesmith.adapters.cloud import MeasuredCloud
from nodesmith.errors import Transient
from nodesmith.model.ec2.launches import Deferred, Launched, LaunchOutcome, LaunchRequest, NoCapacity, Refused
from nodesmith.model.metrics.metrics import Metrics, labelled
from nodesmith.ports import Cloud

ABOUT = {"controller": "provisioner", "provider": "aws"}


class Seconds:
    def __init__(self) -> None:
        self.passed = 0.0


class Ec2:
    """A Cloud that returns given outcomes and takes two seconds per call."""

    def __init__(self, seconds: Seconds, *outcomes: LaunchOutcome) -> None:
        self.seconds, self.outcomes, self.fails = seconds, list(outcomes), False

    def launch(self, *_: object, **__: object) -> Any:
        return self._answer(self.outcomes)

    def terminate(self, _: object) -> None:
        self._answer(None)

    def owned_instances(self) -> Any:
        return self._answer([])

    def instances_of(self, *_: object) -> Any:
        return self._answer({})

    def _answer(self, answer: Any) -> Any:
        self.seconds.passed += 2
        if self.fails:
            raise Transient("throttled")
        return answer


def measured(*outcomes: LaunchOutcome) -> tuple[MeasuredCloud, Ec2, Metrics]:
    seconds = Seconds()
    metrics, ec2 = Metrics(lambda: seconds.passed), Ec2(seconds, *outcomes)
    return MeasuredCloud(cast("Cloud", ec2), metrics, "provisioner"), ec2, metrics


def durations(metrics: Metrics) -> dict[str, tuple[int, float]]:
    found = metrics.take().histograms["cloudprovider_duration_seconds"]
    return {dict(labels)["method"]: (sum(h.counts), h.total_seconds) for labels, h in found.items()}


def requests(number: int) -> list[LaunchRequest]:
    return [LaunchRequest(f"c{n}", "spot", (), {}) for n in range(number)]


def test_each_launch_of_a_call_counts_and_failed_ones_are_errors() -> None:
    outcomes: list[LaunchOutcome] = [
        Launched("c0", cast("Any", None)),
        NoCapacity("c1", ()),
        Refused("c2", "LaunchFailed", "?"),
        Deferred("c3", "Throttled", "?"),
    ]
    cloud, _, metrics = measured(*outcomes)
    assert cloud.launch(requests(4)) == outcomes
    recorded = metrics.take()
    (histogram,) = recorded.histograms["cloudprovider_duration_seconds"].values()
    assert (sum(histogram.counts), histogram.total_seconds) == (4, 8)
    assert recorded.counters["cloudprovider_errors_total"] == {
        labelled(**ABOUT, method="Create", error="InsufficientCapacityError"): 1,
        labelled(**ABOUT, method="Create", error=""): 2,
    }


def test_methods_have_karpenters_names() -> None:
    cloud, _, metrics = measured()
    cloud.owned_instances()
    cloud.terminate(["i-1", "i-2"])
    cloud.instances_of(["c1"])
    assert durations(metrics) == {"List": (1, 2), "Delete": (2, 4), "Get": (1, 2)}


def test_a_failing_call_is_timed_and_counted() -> None:
    cloud, ec2, metrics = measured()
    ec2.fails = True
    with pytest.raises(Transient):
        cloud.owned_instances()
    recorded = metrics.take()
    assert recorded.counters["cloudprovider_errors_total"] == {labelled(**ABOUT, method="List", error=""): 1}
    assert len(recorded.histograms["cloudprovider_duration_seconds"]) == 1


def test_an_empty_request_does_not_count_as_a_call() -> None:
    cloud, _, metrics = measured()
    cloud.launch([])
    cloud.terminate([])
    assert metrics.delay is None
