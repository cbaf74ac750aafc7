"""Events on pods that stay unscheduled, with the reason: once, and not forever."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from nodesmith.controllers.launching.unschedulable import EVENTS_AT_ONCE, publish_unplaced, write_unplaced
from nodesmith.controllers.runs import EventDeduplication
from nodesmith.decisions.provisioning import Plan, Unplaced, decide
from nodesmith.decisions.provisioning.nodepools.tiers import UNREAD
from nodesmith.model.apimachinery.problems import LONGEST_MESSAGE
from nodesmith.model.kubernetes.pods import Reason
from tests.builders import CLUSTER, NOW, bind, expression, inputs, nodepool_manifest, pods, shape, snapshot
from tests.fakes.blobs import FakeBlobs
from tests.fakes.cluster import FakeCluster
from tests.fakes.store import FakeStore

LIMIT = Reason(
    "NodePool a: its limit of 1 cpu is reached", "a", "limit cpu", "raise spec.limits.cpu to at least 2"
)
LARGE = Reason("NodePool a: one pod asks for 10000 cpu", "a", "resource cpu")
MANY = EVENTS_AT_ONCE + 10


class Cluster:
    """A cluster in which a number of pods wait, and their Events from run to run."""

    def __init__(self, waiting: int = MANY) -> None:
        self.blobs, self.objects = FakeBlobs(), FakeCluster()
        self.published: EventDeduplication = {}
        self.seen = snapshot(pods=pods(shape(), waiting))

    def decide(self, *groups: tuple[Reason, int, int], at: datetime = NOW) -> None:
        """Leave the pods with numbers in a range unplaced, for a reason."""
        unplaced = tuple(
            Unplaced(tuple(f"default/web-{number:04}" for number in range(first, last)), why)
            for why, first, last in groups
        )
        write_unplaced(self.blobs, CLUSTER, Plan(unplaced=unplaced), at)

    def publish(self, now: datetime = NOW) -> int:
        return publish_unplaced(self.blobs, self.objects, FakeStore(), self.seen, self.published, now)


def test_each_unplaced_pod_gets_an_event_with_the_reason_and_a_remedy() -> None:
    cluster = Cluster()
    cluster.decide((LIMIT, 0, 2))

    assert cluster.publish() == 2
    event = cluster.objects.events[0]
    assert (event.kind, event.name, event.reason, event.warning) == (
        "Pod",
        "default/web-0000",
        "FailedScheduling",
        True,
    )
    assert event.message == "NodePool a: its limit of 1 cpu is reached; raise spec.limits.cpu to at least 2"


def test_a_reason_that_is_too_long_for_an_event_loses_its_end_and_not_its_remedy() -> None:
    cluster = Cluster()
    cluster.decide((replace(LIMIT, text=f"NodePool a: {'very ' * 300}long"), 0, 1))
    cluster.publish()

    message = cluster.objects.events[0].message

    assert len(message) == LONGEST_MESSAGE
    assert message.startswith("NodePool a: very ")
    assert message.endswith("…; raise spec.limits.cpu to at least 2")


def test_pods_that_no_node_can_satisfy_get_an_event_and_pods_for_other_schedulers_or_nodes_get_none() -> None:
    opted_out = expression("karpenter.sh/nodepool", "DoesNotExist")
    term = {"nodeSelectorTerms": [{"matchExpressions": [opted_out]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
    wrong = shape(app="wrong", nodeSelector={"karpenter.sh/nodepol": "a"})
    seen = snapshot(
        pods=[
            *pods(wrong, 1, prefix="wrong"),
            *pods(shape(app="out", affinity=affinity), 1, prefix="out"),
            *pods(shape(app="early"), 1, prefix="early", unschedulable=False),
        ]
    )
    blobs, objects = FakeBlobs(), FakeCluster()
    write_unplaced(blobs, CLUSTER, decide(inputs(snapshot=seen)), NOW)

    publish_unplaced(blobs, objects, FakeStore(), seen, {}, NOW)

    assert [(event.name, event.reason) for event in objects.events] == [
        ("default/wrong-0000", "FailedScheduling")
    ]
    assert "karpenter.sh/nodepol" in objects.events[0].message


def test_the_same_event_is_published_once_in_five_minutes() -> None:
    cluster = Cluster()
    cluster.decide((LIMIT, 0, 2))
    cluster.publish()
    cluster.decide((LIMIT, 0, 2), at=NOW + timedelta(minutes=4))

    assert cluster.publish(NOW + timedelta(minutes=4)) == 0
    assert cluster.publish(NOW + timedelta(minutes=5)) == 2


def test_another_reason_is_published_at_once() -> None:
    cluster = Cluster()
    cluster.decide((LIMIT, 0, 1))
    cluster.publish()
    cluster.decide((LARGE, 0, 1), at=NOW + timedelta(seconds=5))

    assert cluster.publish(NOW + timedelta(seconds=5)) == 1
    assert [event.message for event in cluster.objects.events][1] == LARGE.text


def test_a_pod_that_got_a_node_meanwhile_gets_no_event() -> None:
    cluster = Cluster()
    cluster.decide((LIMIT, 0, 2))
    cluster.seen = snapshot(pods=bind(shape(), "node-1", 2))

    assert cluster.publish() == 0


@pytest.mark.parametrize("age", [timedelta(), timedelta(hours=1)], ids=["new", "old"])
def test_a_pod_gets_no_event_because_its_nodepool_is_about_to_be_read(age: timedelta) -> None:
    unread = Reason(f"NodePool a: it {UNREAD}")
    cluster = Cluster(1)
    changed_at = cluster.seen.pods[0].created_at + age
    cluster.decide((unread, 0, 1), at=changed_at)
    for seconds, number in ((1, 0), (59, 0), (60, 1)):
        assert cluster.publish(changed_at + timedelta(seconds=seconds)) == number
    cluster.decide((LIMIT, 0, 1), at=changed_at)
    assert cluster.publish(changed_at) == 1


def test_an_old_decision_causes_no_events() -> None:
    cluster = Cluster()
    cluster.decide((LIMIT, 0, 2))

    assert cluster.publish(NOW + timedelta(minutes=20)) == 0


def test_many_pods_with_one_reason_do_not_displace_those_with_another() -> None:
    cluster = Cluster()
    cluster.decide((LIMIT, 0, MANY - 1), (LARGE, MANY - 1, MANY))

    assert cluster.publish() == EVENTS_AT_ONCE
    assert LARGE.text in {event.message for event in cluster.objects.events}
    assert cluster.publish(NOW + timedelta(seconds=30)) == MANY - EVENTS_AT_ONCE


def test_without_unplaced_pods_no_events_are_published() -> None:
    assert Cluster().publish() == 0


def test_a_nodepool_without_compatible_instance_types_gets_an_event_once_in_five_minutes() -> None:
    cluster = Cluster(0)
    cluster.seen = snapshot(nodepools=(nodepool_manifest("picky"), nodepool_manifest()))
    why = "no instance type meets its requirements"
    plan = Plan(without_types={"picky": why, "gone-meanwhile": why})
    write_unplaced(cluster.blobs, CLUSTER, plan, NOW)

    assert [cluster.publish(), cluster.publish(NOW + timedelta(minutes=1))] == [1, 0]
    (event,) = cluster.objects.events
    assert (event.kind, event.name, event.reason, event.warning) == (
        "NodePool",
        "picky",
        "NoCompatibleInstanceTypes",
        True,
    )
    assert event.message == why


def test_pods_for_which_nodes_were_bought_in_vain_get_an_event_with_its_own_reason() -> None:
    cluster = Cluster()
    cluster.decide((Reason("nodes were bought 2 times", blocking="back-off"), 0, 1), (LIMIT, 1, 2))
    cluster.publish()
    reported = {event.name: event.reason for event in cluster.objects.events}
    assert reported == {"default/web-0000": "ProvisioningBackOff", "default/web-0001": "FailedScheduling"}
