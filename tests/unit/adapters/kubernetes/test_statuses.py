"""Fields of an object that are written, and fields that stay unchanged."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from nodesmith.adapters.kubernetes.writes import difference, merged_status, patched_node
from nodesmith.model.kubernetes.nodes import NodePatch

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
EARLIER = "2026-11-21T07:00:00Z"


def ready(status: str, **more: str) -> dict[str, Any]:
    return {"type": "Ready", "status": status, "reason": "Ready", "message": "", **more}


def test_a_condition_keeps_its_transition_time_while_its_status_is_unchanged() -> None:
    current = {"conditions": [ready("False", reason="Old", lastTransitionTime=EARLIER)]}
    merged = merged_status(current, {"conditions": [ready("False", reason="New")]}, NOW)
    assert merged["conditions"] == [ready("False", reason="New", lastTransitionTime=EARLIER)]


def test_a_condition_gets_a_new_transition_time_when_its_status_changes() -> None:
    current = {"conditions": [ready("False", lastTransitionTime=EARLIER)]}
    merged = merged_status(current, {"conditions": [ready("True")]}, NOW)
    assert merged["conditions"] == [ready("True", lastTransitionTime="2026-11-21T08:00:00Z")]


def test_a_condition_may_have_its_own_transition_time() -> None:
    wanted = {"conditions": [ready("True", lastTransitionTime=EARLIER)]}
    assert merged_status({}, wanted, NOW)["conditions"][0]["lastTransitionTime"] == EARLIER


def test_a_condition_without_a_reason_repeats_its_type() -> None:
    (condition,) = merged_status(
        {}, {"conditions": [{"type": "Ready", "status": "True", "reason": ""}]}, NOW
    )["conditions"]
    assert (condition["reason"], condition["message"]) == ("Ready", "")


def test_conditions_are_sorted_by_transition_time_with_ready_last() -> None:
    current = {"conditions": [ready("False", lastTransitionTime=EARLIER)]}
    since = {"Launched": "2026-11-21T07:30:00Z", "Registered": "2026-11-21T07:20:00Z"}
    wanted = [{"type": t, "status": "True", "lastTransitionTime": at} for t, at in since.items()]
    merged = merged_status(current, {"conditions": wanted}, NOW)
    assert [c["type"] for c in merged["conditions"]] == ["Registered", "Launched", "Ready"]


def test_conditions_of_other_writers_and_other_fields_are_kept() -> None:
    current = {
        "nodeName": "n1",
        "conditions": [{"type": "Drifted", "status": "True", "lastTransitionTime": EARLIER}],
    }
    merged = merged_status(current, {"imageID": "ami-1", "conditions": [ready("True")]}, NOW)
    assert merged["nodeName"] == "n1"
    assert merged["imageID"] == "ami-1"
    assert [condition["type"] for condition in merged["conditions"]] == ["Drifted", "Ready"]


def test_a_late_refusal_does_not_undo_launched() -> None:
    launched = {"conditions": [{"type": "Launched", "status": "True", "lastTransitionTime": EARLIER}]}
    refused = {"conditions": [{"type": "Launched", "status": "Unknown", "reason": "LaunchFailed"}]}
    assert merged_status(launched, refused, NOW) == launched
    again = {"conditions": [{"type": "Launched", "status": "True"}]}
    assert merged_status(merged_status({}, refused, NOW), again, NOW)["conditions"][0]["status"] == "True"


@pytest.mark.parametrize("kind", ["Drifted", "Consolidatable", "DisruptionReason"])
def test_a_condition_shown_only_while_true_is_removed_and_the_others_are_kept(kind: str) -> None:
    current = {"conditions": [ready("True", lastTransitionTime=EARLIER), {"type": kind, "status": "True"}]}
    merged = merged_status(current, {"conditions": [{"type": kind, "status": "False"}]}, NOW)
    assert merged["conditions"] == current["conditions"][:1]
    assert merged_status(merged, {"conditions": [{"type": kind, "status": "False"}]}, NOW) == merged


@pytest.mark.parametrize(
    ("current", "wanted", "patch"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1, "b": 2}, {"a": 1}, {"b": None}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"x": 1, "y": 3, "z": 4}}, {"a": {"y": 3, "z": 4}}),
        ({"a": [1, 2]}, {"a": [2]}, {"a": [2]}),
        ({}, {"a": {}}, {"a": {}}),
    ],
)
def test_a_difference_is_the_merge_patch_between_two_objects(
    current: dict[str, Any], wanted: dict[str, Any], patch: dict[str, Any]
) -> None:
    assert difference(current, wanted) == patch


THEIRS = {"apiVersion": "example.com/v1", "kind": "Machine", "name": "default-a", "uid": "uid-theirs"}
OURS = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodeClaim",
    "name": "default-a",
    "uid": "uid-1",
    "blockOwnerDeletion": True,
}


@pytest.mark.parametrize(
    ("owners", "after"),
    [
        ([], [OURS]),
        ([THEIRS], [THEIRS, OURS]),
        ([OURS, THEIRS], [OURS, THEIRS]),
        ([{**OURS, "uid": "uid-0"}, THEIRS], [THEIRS, OURS]),
        (
            [{**OURS, "name": "default-b", "uid": "uid-b"}],
            [{**OURS, "name": "default-b", "uid": "uid-b"}, OURS],
        ),
    ],
    ids=["none", "another's", "it has it", "an earlier object of that name", "another NodeClaim"],
)
def test_a_nodeclaim_becomes_an_owner_of_its_node_next_to_other_owners(
    owners: list[dict[str, Any]], after: list[dict[str, Any]]
) -> None:
    node = {"metadata": {"name": "n1", **({"ownerReferences": owners} if owners else {})}, "spec": {}}
    patch, nodeclaim = NodePatch({}, owner="default-a"), {"metadata": {"name": "default-a", "uid": "uid-1"}}
    patched = patched_node(node, patch, nodeclaim)
    assert patched is not None
    assert patched["metadata"]["ownerReferences"] == after
    gone = patched_node(node, patch, None)
    assert gone is not None
    assert gone["metadata"].get("ownerReferences", []) == owners
