"""A mirror follows lists and events, and returns the changes that matter to decisions."""

from __future__ import annotations

import copy
from datetime import UTC, datetime

from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.mirror import NODES, PODS, WATCHED, Mirror, key_of, observed
from tests.objects.clusters import deployment_pod, node, rolled


def test_a_new_object_is_a_change_and_an_equal_one_is_not() -> None:
    mirror, manifest = Mirror(NODES), node(1, rolled(1))
    change = mirror.put(manifest)
    assert change is not None
    assert change.before is None
    assert change.after["metadata"]["name"] == manifest["metadata"]["name"]
    assert mirror.put(copy.deepcopy(manifest)) is None


def test_objects_that_a_new_list_lacks_are_removed() -> None:
    mirror = Mirror(NODES)
    first, second = node(1, rolled(1)), node(2, rolled(2))
    mirror.put(first)
    mirror.put(second)
    (change,) = mirror.keep_only({key_of(second)})
    assert (change.key, change.after) == (first["metadata"]["name"], None)


def test_a_terminal_pod_is_removed_before_it_is_deleted() -> None:
    mirror, pod = Mirror(PODS), deployment_pod(1, rolled(1), "n1")
    mirror.put(pod)
    pod["status"]["phase"] = "Succeeded"
    change = mirror.put(pod)
    assert change is not None
    assert change.after is None
    assert mirror.drop(pod) is None


def test_an_unreadable_object_is_a_problem_until_it_can_be_read() -> None:
    mirror, pod = Mirror(PODS), deployment_pod(1, rolled(1))
    broken = copy.deepcopy(pod)
    broken["spec"]["containers"] = "none"
    assert mirror.put(broken) is None
    (problem,) = decode(encode("c", datetime.now(UTC), observed([mirror]))).problems
    assert f"Pod/team-1/{pod['metadata']['name']}" in problem
    assert mirror.put(pod) is not None
    assert mirror.problems == {}


def test_every_watched_kind_has_a_field_in_observed() -> None:
    gathered = observed(Mirror(kind) for kind in WATCHED)
    assert {kind.name: list(getattr(gathered, kind.name)) for kind in WATCHED} == {
        kind.name: [] for kind in WATCHED
    }
