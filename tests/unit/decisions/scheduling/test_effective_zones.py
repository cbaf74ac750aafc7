"""In which zones pods that wait may run: told by the only one, or that there are several, or none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodesmith.decisions.scheduling.demands import waiting_by_zone
from nodesmith.model.apimachinery.labels import ZONE
from nodesmith.model.kubernetes.pods import NOT_ALL_VOLUMES, Shape
from tests.builders import bind, daemon, expression, node_affinity, pods, shape


def asking(*expressions: dict[str, Any]) -> Shape:
    return shape(affinity=node_affinity(*[[each] for each in expressions]))


@pytest.mark.parametrize(
    ("asked", "zone"),
    [
        (shape(), "flexible"),
        (shape(nodeSelector={ZONE: "us-east-1a"}), "us-east-1a"),
        (asking(expression(ZONE, "In", "us-east-1a", "us-east-1b")), "flexible"),
        (asking(expression(ZONE, "In", "us-east-1a"), expression(ZONE, "In", "us-east-1b")), "flexible"),
        (asking(expression(ZONE, "In", "us-east-1a"), expression(ZONE, "In", "us-east-1a")), "us-east-1a"),
        (asking(expression(ZONE, "In", "us-east-1a"), expression("arch", "Exists")), "flexible"),
        (asking(expression(ZONE, "NotIn", "us-east-1a")), "flexible"),
    ],
)
def test_a_pods_zone_is_what_all_alternatives_leave_of_it(asked: Shape, zone: str) -> None:
    assert waiting_by_zone(pods(asked, 2)) == ({zone: 2}, 0)


def test_a_pod_whose_volumes_are_in_different_zones_has_none() -> None:
    (pod,) = pods(shape())
    apart = replace(pod, refusal=f"{NOT_ALL_VOLUMES}: persistentvolumeclaim 'a' needs …")
    assert waiting_by_zone([apart]) == ({"none": 1}, 1)


def test_a_selector_and_an_affinity_that_exclude_each_other_leave_no_zone() -> None:
    contradiction = node_affinity([expression(ZONE, "In", "us-east-1b")])
    both = shape(nodeSelector={ZONE: "us-east-1a"}, affinity=contradiction)
    assert waiting_by_zone(pods(both)) == ({"none": 1}, 1)


def test_pods_that_run_that_the_scheduler_decides_about_or_of_daemonsets_are_not_told() -> None:
    (pod,) = pods(shape())
    others = [
        *bind(shape(), "n1"),
        *pods(daemon()),
        *pods(shape(), unschedulable=False),
        replace(pod, nominated_node="n1"),
        replace(pod, deleting=True),
    ]
    assert waiting_by_zone(others) == ({}, 0)
