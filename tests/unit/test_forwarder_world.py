"""What the watches have seen wakes provisioning for a volume if a pending pod waits for it, and only then."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from nodesmith.model.events import Concern
from nodesmith.observation.mirror import PODS, STORAGE_CLASSES, VOLUME_CLAIMS, VOLUMES, WATCHED, WatchedKind
from nodesmith_forwarder.windows import Pace, Topic
from nodesmith_forwarder.world import World
from tests.storage import Manifest, claim, pod_with, storage_class, volume


class StillClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def wall_seconds(self, seconds: float) -> float:
        return seconds


class Seen:
    """A world of which everything is current, and whom what happens in it wakes."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.world = World(self.clock, Pace())
        for kind in WATCHED:
            self.world.mark(kind, current=True)

    def put(self, kind: WatchedKind, *manifests: Manifest) -> None:
        self.world.put(kind, manifests)

    def woken(self) -> Mapping[Topic, int]:
        """Give the topics of the windows that have closed since the last time, and forget them."""
        self.clock.time += timedelta(seconds=30)
        taken = self.world.take()
        assert taken is not None
        return {topic: count for topic, count in taken[0].items() if topic is not None}


@pytest.fixture
def seen() -> Seen:
    made = Seen()
    made.put(STORAGE_CLASSES, storage_class(mode="Immediate"))
    made.put(PODS, pod_with("data"))
    made.put(VOLUME_CLAIMS, claim("data"), claim("other"))
    made.woken()
    return made


def test_binding_the_claim_of_a_pending_pod_wakes_provisioning(seen: Seen) -> None:
    seen.put(VOLUME_CLAIMS, claim("data", bound_to="pv"))
    assert seen.woken() == {Concern.PROVISIONING: 1}


def test_binding_a_claim_that_no_pending_pod_mounts_wakes_nobody(seen: Seen) -> None:
    seen.put(VOLUME_CLAIMS, claim("other", bound_to="pv"))
    assert seen.woken() == {}


@pytest.mark.parametrize("end", ["bound", "gone"])
def test_a_claim_wakes_nobody_once_its_pod_is_bound_or_gone(seen: Seen, end: str) -> None:
    if end == "bound":
        seen.put(PODS, pod_with("data", nodeName="n1"))
    else:
        seen.world.keep_only(PODS, ())
    seen.put(VOLUME_CLAIMS, claim("data", bound_to="pv"))
    assert seen.woken() == {}


def test_a_claim_wakes_as_long_as_one_of_its_pods_is_pending(seen: Seen) -> None:
    seen.put(PODS, pod_with("data", name="web-1"))
    seen.put(PODS, pod_with("data", nodeName="n1"))
    seen.woken()
    seen.put(VOLUME_CLAIMS, claim("data", bound_to="pv"))
    assert seen.woken() == {Concern.PROVISIONING: 1}


def test_a_volume_made_for_the_node_that_the_scheduler_chose_wakes_nobody_on_its_way(seen: Seen) -> None:
    chosen = {"volume.kubernetes.io/selected-node": "n1"}
    seen.put(VOLUME_CLAIMS, claim("data", annotations=chosen))
    seen.put(VOLUMES, volume("pv", "us-east-1a", claim="default/data"))
    seen.put(VOLUME_CLAIMS, claim("data", annotations=chosen, bound_to="pv"))
    assert seen.woken() == {}


def test_a_volume_that_could_not_be_made_on_the_chosen_node_wakes_provisioning(seen: Seen) -> None:
    seen.put(VOLUME_CLAIMS, claim("data", annotations={"volume.kubernetes.io/selected-node": "n1"}))
    seen.put(VOLUME_CLAIMS, claim("data"))
    assert seen.woken() == {Concern.PROVISIONING: 1}
