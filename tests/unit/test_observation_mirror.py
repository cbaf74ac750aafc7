"""A mirror follows lists and events, and tells what changed for a decision."""

from __future__ import annotations

import copy
from datetime import UTC, datetime

from nodesmith.observation.decoding import decode, encode
from nodesmith.observation.mirror import NODES, PODS, WATCHED, Mirror, key_of, observed
from tests.clusters import deployment_pod, node, rolled


def test_a_new_object_is_a_change_and_the_same_again_is_none() -> None:
    mirror, manifest = Mirror(NODES), node(1, rolled(1))
    change = mirror.put(manifest)
    assert change is not None
    assert change.before is None
    assert change.after["metadata"]["name"] == manifest["metadata"]["name"]
    assert mirror.put(copy.deepcopy(manifest)) is None


def test_what_a_new_list_does_not_hold_is_gone() -> None:
    mirror = Mirror(NODES)
    first, second = node(1, rolled(1)), node(2, rolled(2))
    mirror.put(first)
    mirror.put(second)
    (change,) = mirror.keep_only({key_of(second)})
    assert (change.key, change.after) == (first["metadata"]["name"], None)


def test_a_pod_that_ends_is_gone_before_it_is_deleted() -> None:
    mirror, pod = Mirror(PODS), deployment_pod(1, rolled(1), "n1")
    mirror.put(pod)
    pod["status"]["phase"] = "Succeeded"
    change = mirror.put(pod)
    assert change is not None
    assert change.after is None
    assert mirror.drop(pod) is None


def test_an_object_that_cannot_be_read_is_a_problem_until_it_can() -> None:
    mirror, pod = Mirror(PODS), deployment_pod(1, rolled(1))
    broken = copy.deepcopy(pod)
    broken["spec"]["containers"] = "none"
    assert mirror.put(broken) is None
    (problem,) = decode(encode("c", datetime.now(UTC), observed([mirror]))).problems
    assert f"Pod/team-1/{pod['metadata']['name']}" in problem
    assert mirror.put(pod) is not None
    assert mirror.problems == {}


def test_every_watched_kind_has_its_place_in_the_snapshot() -> None:
    gathered = observed(Mirror(kind) for kind in WATCHED)
    assert {kind.name: list(getattr(gathered, kind.name)) for kind in WATCHED} == {
        kind.name: [] for kind in WATCHED
    }
