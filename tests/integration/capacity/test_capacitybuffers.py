"""The life of a CapacityBuffer's room: bought, used, refilled, kept and given back, through crashes and duplicates."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nodesmith.model.functions import Concern
from nodesmith.model.kubernetes.pods import is_planned
from tests import builders
from tests.objects.capacitybuffers import TEMPLATE, capacitybuffer
from tests.samples import sampled
from tests.smallworld.world import CONCERNS, STEP, Boundaries, Manifest, Messages, World, pod_manifest

MINUTE = timedelta(minutes=1)
ROOM = "default/room"


def buffer(replicas: int = 2, **annotations: str) -> Manifest:
    """Return a CapacityBuffer; keywords are the ends of its annotations' names."""
    named = {f"nodesmith.dev/buffer-{name}": text for name, text in annotations.items()}
    return capacitybuffer(annotations=named, **TEMPLATE, replicas=replicas)


class Buffered(World):
    """A world with a buffer for pods of one cpu, in which disruption works."""

    def __init__(self, room: Manifest | None = None, **fields: Any) -> None:
        super().__init__({}, **fields)
        self.concerns = (*CONCERNS, Concern.DISRUPTION)
        self.podtemplates = [
            {
                "metadata": {"namespace": "default", "name": "room", "generation": 1},
                "template": {"spec": pod_manifest("room")["spec"], "metadata": {"labels": {"app": "web"}}},
            }
        ]
        self.cluster.capacitybuffers[ROOM] = room or buffer()
        self.observe()

    def condition(self, kind: str = "Provisioning") -> str:
        """Return the reason of a condition that the buffer shows."""
        shown = self.cluster.capacitybuffers[ROOM].get("status", {}).get("conditions", ())
        return next((str(c["reason"]) for c in shown if c["type"] == kind), "")

    def until(self, reason: str, minutes: int = 10) -> None:
        """Let time pass until the buffer shows a reason of Provisioning."""
        for _ in range(minutes * MINUTE // STEP):
            if self.condition() == reason:
                return
            self.step()
        raise AssertionError(f"after {minutes} minutes it shows {self.condition()!r} and not {reason!r}")

    @property
    def nodes(self) -> int:
        """The number of instances that live."""
        return sum(self.is_alive(name) for name in self.cluster.nodes)


def test_room_is_bought_used_refilled_and_given_back() -> None:
    world = Buffered()
    world.until("RequiresNewCapacity", 1)
    world.until("FitsExistingCapacity")
    before = len(world.cloud.instances)
    assert before == 1

    world.add("user", cpu="2")
    world.until("RequiresNewCapacity", 1)
    assert world.pods["user"]["spec"].get("nodeName"), "it took the room at once"
    world.until("FitsExistingCapacity")
    assert len(world.cloud.instances) == before + 1

    del world.cluster.capacitybuffers[ROOM]
    world.remove(["user"])
    world.live(20 * MINUTE)
    assert world.nodes == 0
    assert world.harm == []


@pytest.mark.exhaustive
def test_a_cluster_with_enough_room_buys_and_removes_nothing_and_writes_no_status_again() -> None:
    world = Buffered()
    world.until("FitsExistingCapacity")
    world.live(5 * MINUTE)
    bought, written = len(world.cloud.instances), _statuses(world)
    world.live(sampled(40, whole=120) * MINUTE)
    assert (len(world.cloud.instances), _statuses(world), world.nodes) == (bought, written, 1)


def _statuses(world: World) -> int:
    return sum(call.about[:1] == ("CapacityBuffer",) for call in world.cluster.calls)


def test_no_planned_pod_is_ever_nominated_or_evicted() -> None:
    world = Buffered()
    world.until("FitsExistingCapacity")
    world.add("user", cpu="2")
    world.live(5 * MINUTE)
    world.remove(["user"])
    del world.cluster.capacitybuffers[ROOM]
    world.live(20 * MINUTE)
    reported = [each for call in world.cluster.calls for each in call.about]
    assert not any(is_planned(str(each)) for each in reported)


def test_nodes_that_larger_daemons_fill_are_not_bought_without_end() -> None:
    class Filled(Buffered):
        def _bind(self) -> None:
            for name, node in self.cluster.nodes.items():
                if not node["spec"].get("taints") and f"filler-{name}" not in self.pods:
                    cpu = node["status"]["allocatable"]["cpu"]
                    filler = pod_manifest(f"filler-{name}", cpu=cpu, nodeName=name)
                    filler["metadata"]["ownerReferences"] = [
                        {"kind": "DaemonSet", "name": "filler", "controller": True}
                    ]
                    self.cluster.pods[f"default/filler-{name}"] = {**filler, "status": {}}

    world = Filled()
    world.live(timedelta(hours=1))
    assert 2 <= len(world.cloud.instances) <= 7


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(sampled(2, whole=12)))
def test_a_crash_at_any_moment_neither_doubles_nor_loses_room(part: int) -> None:
    counted = Buffered(boundaries=Boundaries())
    counted.until("FitsExistingCapacity")
    moments = counted.boundaries.distinct()[part :: 12 if sampled(2, whole=12) == 12 else 29]
    for moment in moments:
        world = Buffered(boundaries=Boundaries(frozenset({moment}), look=None))
        world.until("FitsExistingCapacity", 20)
        assert len(world.cloud.instances) == 1, f"after a crash at moment {moment}"


def test_duplicated_and_late_messages_buy_room_once() -> None:
    for seed in range(3):
        world = Buffered(messages=Messages(lost=0.2, doubled=0.5, delayed=0.5, seed=seed))
        world.until("FitsExistingCapacity", 20)
        world.live(10 * MINUTE)
        assert (len(world.cloud.instances), world.nodes) == (1, 1)


def test_room_on_a_schedule_comes_with_its_window_and_goes_after_it() -> None:
    at = builders.NOW + 30 * MINUTE
    world = Buffered(buffer(schedule=f"{at.minute} {at.hour} * * *", duration="1h", timezone="UTC"))
    world.until("BufferEmpty", 1)
    world.live(28 * MINUTE)
    assert len(world.cloud.instances) == 0
    world.until("FitsExistingCapacity", 6)
    world.live(50 * MINUTE)
    assert world.nodes == 1
    world.until("BufferEmpty", 15)
    world.live(15 * MINUTE)
    assert world.nodes == 0


def test_a_buffer_with_a_limit_in_dollars_buys_no_more_because_of_another_buffer() -> None:
    world = Buffered(buffer(4))
    second = buffer(4, **{"limit-usd-per-hour": "0.05"})
    second["metadata"]["name"] = "second"
    world.cluster.capacitybuffers["default/second"] = second
    world.live(10 * MINUTE)
    bought = [claim.nominated for claim in world.store.claims.values()]
    assert len(world.cloud.instances) == len(bought) == 3, (
        "c5.xlarge and c5.large for room, c5.large for second"
    )
    assert [keys for keys in bought if any("second" in key for key in keys)] == [
        ("default/capacitybuffer~second~0",)
    ]


def test_a_buffer_that_refers_to_nothing_says_so_and_is_served_once_it_can_be() -> None:
    world = Buffered()
    templates, world.podtemplates = world.podtemplates, []
    world.observe()
    world.until("NotReadyForProvisioning", 1)
    assert world.condition("ReadyForProvisioning") == "PodTemplateNotFound"
    assert len(world.cloud.instances) == 0
    world.podtemplates = templates
    world.until("FitsExistingCapacity")
