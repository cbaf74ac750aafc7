"""Lifecycle's runs send notifications at their end, and no run depends on that."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nodesmith.controllers.lifecycle import Lifecycle, follow
from nodesmith.controllers.notifying import Notifier
from nodesmith.model.policies import NodeSettings
from tests.builders import CLUSTER
from tests.fakes.bus import FakeBus
from tests.integration.controllers.test_controllers import Scene, joined


class Notified(Scene):
    """A scene whose lifecycle sends notifications."""

    def __init__(self) -> None:
        super().__init__()
        self.bus = FakeBus()
        self.notifier = Notifier(self.bus, self.blobs, CLUSTER, NodeSettings())

    def run(self) -> dict[str, int]:
        self.see()
        parts = (self.store, self.cloud, self.cluster, self.blobs, self.hints, self.clock)
        return dict(follow(Lifecycle(CLUSTER, *parts, notifier=self.notifier)).counts)


@pytest.fixture
def scene() -> Notified:
    return Notified()


def test_a_run_that_registers_a_node_also_reports_its_launch(scene: Notified) -> None:
    joined(scene, "a")
    assert scene.run() == {"Open": 1, "Register": 1, "Notified": 1}
    assert [each.key for each in scene.bus.sent] == ["a"]


def test_a_bus_that_is_down_delays_the_report_and_nothing_else(scene: Notified) -> None:
    joined(scene, "a")
    scene.bus.down = True
    assert scene.run() == {"Open": 1, "Register": 1}
    scene.bus.down = False
    scene.now += timedelta(minutes=5)
    assert scene.run()["Notified"] == 1


def test_a_process_that_ends_while_it_reports_has_done_everything_else(scene: Notified) -> None:
    joined(scene, "a")
    scene.bus.dies_after = 1
    with pytest.raises(SystemExit):
        scene.run()
    assert scene.phases() == {"a": "Registered"}
