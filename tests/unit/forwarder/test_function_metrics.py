"""The functions' metrics in the forwarder: read from their objects on request, and kept while S3 is unreachable."""

from __future__ import annotations

import logging
import time
from collections import Counter
from datetime import timedelta
from threading import Event

import pytest

from nodesmith.keys import metrics_key, on_sale_key
from nodesmith.model.functions import MEASURED, Concern
from nodesmith.model.metrics.metrics import SERIES, Metrics, labelled
from nodesmith.model.metrics.objects import MetricsObject
from nodesmith.ports import NONE_THERE, Version
from nodesmith_forwarder.metrics import FunctionMetrics, exposition_text
from nodesmith_forwarder.metrics.functions import LARGEST_BYTES, OFTEN, SELDOM
from tests.builders import NOW
from tests.clocks import StillClock
from tests.fakes.blobs import FakeBlobs

DECISIONS = "voluntary_disruption_decisions_total"
ELIGIBLE = "voluntary_disruption_eligible_nodes"
ERRORS = "cloudprovider_errors_total"
EMPTY = {"decision": "delete", "reason": "empty", "consolidation_type": "empty"}
LINE = 'karpenter_voluntary_disruption_decisions_total{consolidation_type="empty",decision="delete",reason="empty"}'


class Bucket(FakeBlobs):
    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()
        self.whole: Counter[str] = Counter()
        self.hangs: Event | None = None

    def read(self, key: str, known: str = NONE_THERE, largest_bytes: int = 2**26) -> Version:
        self.asked[key] += 1
        if self.hangs:
            self.hangs.wait(10)
        version = super().read(key, known, largest_bytes)
        self.whole[key] += version.data is not None
        return version


class Scene(StillClock):
    """A bucket, and a forwarder that reads from it."""

    def __init__(self) -> None:
        super().__init__(NOW)
        self.bucket = Bucket()
        self.functions = FunctionMetrics(self.bucket, "east", self)

    def hold(self, concern: Concern, metrics: Metrics) -> None:
        """Store these metrics as the object of a concern."""
        self.bucket.objects[metrics_key("east", concern)] = MetricsObject(metrics.take()).to_bytes()

    def decided(self, times: int) -> None:
        metrics = Metrics()
        metrics.count(DECISIONS, times, **EMPTY)
        self.hold(Concern.DISRUPTION, metrics)

    def text(self) -> str:
        return exposition_text(self.functions.families()).decode()

    def asked(self, concern: Concern) -> int:
        return self.bucket.asked[metrics_key("east", concern)]


def test_before_any_function_has_run_every_series_exists_and_counts_nothing() -> None:
    text = Scene().text()
    assert [line.split()[2] for line in text.splitlines() if "# TYPE" in line] == [
        f"karpenter_{name}" for name in SERIES
    ]
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        'karpenter_voluntary_disruption_consolidation_timeouts_total{consolidation_type="multi"} 0.0',
        'karpenter_voluntary_disruption_consolidation_timeouts_total{consolidation_type="single"} 0.0',
    ]


def test_what_a_function_has_written_is_exposed_and_grows() -> None:
    scene = Scene()
    scene.decided(3)
    assert f"{LINE} 3.0\n" in scene.text()
    scene.decided(4)
    scene.time += OFTEN
    assert f"{LINE} 4.0\n" in scene.text()


def test_objects_are_read_only_on_request_and_not_on_every_request() -> None:
    scene = Scene()
    assert not scene.bucket.asked
    for _ in range(10):
        scene.text()
    assert set(scene.bucket.asked.values()) == {1}
    keys = {metrics_key("east", concern) for concern in MEASURED}
    assert set(scene.bucket.asked) == {*keys, on_sale_key("east")}
    scene.time += OFTEN - timedelta(seconds=1)
    scene.text()
    assert scene.asked(Concern.DISRUPTION) == 1
    scene.time += timedelta(seconds=1)
    scene.text()
    assert (scene.asked(Concern.DISRUPTION), scene.asked(Concern.REPAIR)) == (2, 1)
    scene.time += SELDOM
    scene.text()
    assert (scene.asked(Concern.DISRUPTION), scene.asked(Concern.REPAIR)) == (3, 2)


def test_an_object_that_has_not_changed_is_not_sent_again() -> None:
    scene = Scene()
    scene.decided(3)
    for _ in range(5):
        scene.text()
        scene.time += OFTEN
    assert scene.bucket.whole[metrics_key("east", Concern.DISRUPTION)] == 1
    assert f"{LINE} 3.0\n" in scene.text()


def test_one_metric_of_several_concerns_is_merged() -> None:
    scene = Scene()
    for concern, controller in ((Concern.PROVISIONING, "provisioner"), (Concern.DISRUPTION, "disruption")):
        metrics = Metrics()
        call = {"controller": controller, "method": "Create", "provider": "aws"}
        metrics.count(ERRORS, error="InsufficientCapacityError", **call)
        scene.hold(concern, metrics)
    (errors,) = (family for family in scene.functions.families() if family.name == ERRORS)
    assert sorted(dict(labels)["controller"] for labels in errors.series) == ["disruption", "provisioner"]


def test_a_gauge_shows_the_latest_measurement() -> None:
    scene = Scene()
    for nodes in (4, 2):
        metrics = Metrics()
        metrics.show(ELIGIBLE, {labelled(reason="empty"): nodes}, scene.time)
        scene.hold(Concern.DISRUPTION, metrics)
        scene.time += OFTEN
        assert f'eligible_nodes{{reason="empty"}} {nodes}.0\n' in scene.text()


@pytest.mark.parametrize(
    "trouble",
    [
        lambda scene: setattr(scene.bucket, "down", True),
        lambda scene: scene.bucket.objects.clear(),
        lambda scene: scene.bucket.objects.update(dict.fromkeys(scene.bucket.objects, b"garbage")),
        lambda scene: scene.bucket.objects.update(
            dict.fromkeys(scene.bucket.objects, b"[" * LARGEST_BYTES * 2)
        ),
    ],
    ids=["S3 is away", "the object is gone", "the object is garbage", "the object is too large"],
)
def test_the_last_content_is_exposed_whatever_happens_to_an_object(trouble: object) -> None:
    scene = Scene()
    scene.decided(3)
    scene.text()
    assert callable(trouble)
    trouble(scene)
    for _ in range(3):
        scene.time += SELDOM
        assert f"{LINE} 3.0\n" in scene.text()
    scene.bucket.down = False
    scene.decided(5)
    scene.time += OFTEN
    assert f"{LINE} 5.0\n" in scene.text()


def test_trouble_with_an_object_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.bucket.objects[metrics_key("east", Concern.DISRUPTION)] = b"garbage"
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            scene.text()
            scene.time += SELDOM
    assert len(caplog.records) == 1
    assert "metrics of disruption: " in caplog.text


def test_an_answer_does_not_wait_long_for_s3_and_reads_do_not_overlap() -> None:
    scene = Scene()
    scene.decided(3)
    scene.bucket.hangs = released = Event()
    began = time.monotonic()
    assert LINE not in scene.text()
    assert time.monotonic() - began < 5
    scene.time += SELDOM
    scene.text()
    assert sum(scene.bucket.asked.values()) == 1
    scene.bucket.hangs = None
    released.set()
    assert f"{LINE} 3.0\n" in scene.text()
