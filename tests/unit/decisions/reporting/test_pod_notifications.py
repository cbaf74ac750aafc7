"""Events on pods that do not announce an action: which claim was bought for them, how long they are protected."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nodesmith.controllers.launching.unschedulable import PODS_AT_ONCE, publish_pods
from nodesmith.decisions.reporting.events import LATELY, pod_events
from nodesmith.model.apimachinery.labels import DO_NOT_DISRUPT
from nodesmith.model.apimachinery.problems import ObjectEvent
from nodesmith.model.karpenter.nodeclaims import Phase
from tests.builders import NOW, bind, claim, pods, shape, snapshot
from tests.fakes.cluster import FakeCluster

WAITING = pods(shape(), 2)
COMING = claim(nominated=(WAITING[0].key,))
STANDING = claim("default-y1", phase=Phase.INITIALIZED, node_name="n1", phase_since=NOW - timedelta(days=1))


def annotated(value: str, **fields: Any) -> list[ObjectEvent]:
    """Return the Events on an hour-old pod on nodesmith's node whose annotation has a value."""
    of = replace(shape(), annotations={DO_NOT_DISRUPT: value})
    (pod,) = bind(of, fields.pop("node", "n1"))
    old = replace(pod, **{"started_at": NOW - timedelta(hours=1), **fields})
    return list(pod_events([STANDING], [old], NOW))


def test_a_nominated_pod_gets_an_event_with_its_claim() -> None:
    (reported,) = pod_events([COMING], WAITING, NOW)
    assert reported == ObjectEvent(
        "Pod", WAITING[0].key, "Nominated", "Pod should schedule on: nodeclaim/default-x1"
    )


def test_a_pod_that_runs_or_terminates_gets_no_event_on_a_claim() -> None:
    (bound,) = bind(shape(), "n2")
    going = replace(WAITING[0], deleting=True)
    assert list(pod_events([replace(COMING, nominated=(bound.key,))], [bound, going], NOW)) == []


@pytest.mark.parametrize(
    ("value", "reason", "said"),
    [
        ("2h", "DoNotDisruptUntil", "2026-11-21T13:00:00Z"),
        ("55m", "DoNotDisruptGracePeriodElapsed", "2026-11-21T11:55:00Z"),
        ("yes", "InvalidDoNotDisruptAnnotation", "must be true, or a duration such as 30m"),
        ("-5m", "InvalidDoNotDisruptAnnotation", "'-5m'"),
        ("99999999h", "InvalidDoNotDisruptAnnotation", "'99999999h'"),
    ],
)
def test_a_pod_gets_an_event_on_the_effect_of_its_annotation(value: str, reason: str, said: str) -> None:
    (reported,) = annotated(value)
    assert (reported.kind, reported.reason) == ("Pod", reason)
    assert said in reported.message
    assert reported.warning is (reason == "InvalidDoNotDisruptAnnotation")


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        ("true", {}),
        ("5m", {}),
        ("2h", {"started_at": None}),
        ("2h", {"node": "somebody-elses"}),
        ("2h", {"deleting": True}),
    ],
    ids=["for ever", "over for long", "not started", "not on our node", "going"],
)
def test_obvious_annotations_and_foreign_pods_cause_no_events(value: str, fields: dict[str, Any]) -> None:
    assert timedelta(hours=1) - timedelta(minutes=5) > LATELY
    assert annotated(value, **fields) == []


def test_pod_events_are_published_once_an_hour_and_ten_at_a_time() -> None:
    many = pods(shape(), PODS_AT_ONCE + 5)
    seen, bought = snapshot(pods=many), [claim(nominated=tuple(pod.key for pod in many))]
    cluster, reported = FakeCluster(), dict[ObjectEvent, Any]()

    def publish_after(minutes: int) -> int:
        return publish_pods(cluster, bought, seen, reported, NOW + timedelta(minutes=minutes))

    assert [publish_after(0), publish_after(1), publish_after(2), publish_after(59), publish_after(60)] == [
        10,
        5,
        0,
        0,
        10,
    ]
    assert len(cluster.events) == len(many)
