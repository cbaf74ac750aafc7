from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from nodesmith.model.apimachinery.labels import Taint
from nodesmith.model.apimachinery.quantities import parse_resources
from nodesmith.model.kubernetes.nodes import REGISTERED_UNSCHEDULABLE, Condition, parse_node
from nodesmith.observation.reduction.objects import reduce_node


def manifest(**parts: Any) -> dict[str, Any]:
    about = {"name": "n1", "creationTimestamp": "2026-11-21T12:00:00Z", **parts.pop("metadata", {})}
    return {"metadata": about, **parts}


def test_all_fields_of_a_node_are_read() -> None:
    node = parse_node(
        manifest(
            metadata={"labels": {"a": "1"}, "annotations": {"b": "2"}},
            spec={
                "providerID": "aws:///us-east-1a/i-1",
                "taints": [
                    {"key": "gpu", "effect": "NoSchedule"},
                    {"key": "x", "value": "y", "effect": "NoExecute"},
                ],
            },
            status={
                "capacity": {"cpu": "4", "memory": "16Gi", "pods": "58"},
                "allocatable": {"cpu": "3920m", "memory": "15Gi", "pods": "58"},
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "reason": "KubeletReady",
                        "lastTransitionTime": "2026-11-21T12:01:00Z",
                    }
                ],
            },
        )
    )

    assert (node.name, node.provider_id, node.labels, node.annotations) == (
        "n1",
        "aws:///us-east-1a/i-1",
        {"a": "1"},
        {"b": "2"},
    )
    assert node.created_at == datetime(2026, 11, 21, 12, tzinfo=UTC)
    assert node.taints == (Taint("gpu", "NoSchedule"), Taint("x", "NoExecute", "y"))
    assert node.capacity == parse_resources({"cpu": "4", "memory": "16Gi", "pods": "58"})
    assert node.allocatable.cpu_milli == 3920
    assert node.conditions["Ready"] == Condition(
        "True", "KubeletReady", datetime(2026, 11, 21, 12, 1, tzinfo=UTC)
    )
    assert node.is_ready
    assert not node.deleting


def test_a_node_that_has_just_joined_offers_nothing_and_is_not_ready() -> None:
    node = parse_node(manifest())

    assert not node.is_ready
    assert node.provider_id == ""
    assert not node.allocatable.nonzero()


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_only_ready_true_is_ready(status: str) -> None:
    conditions = [{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": status}]

    assert not parse_node(manifest(status={"conditions": conditions})).is_ready


def test_a_cordoned_node_has_the_taint_once_whether_or_not_it_shows_it() -> None:
    shown = [{"key": REGISTERED_UNSCHEDULABLE.key, "effect": "NoSchedule"}]

    assert parse_node(manifest(spec={"unschedulable": True})).taints == (REGISTERED_UNSCHEDULABLE,)
    assert parse_node(manifest(spec={"unschedulable": True, "taints": shown})).taints == (
        REGISTERED_UNSCHEDULABLE,
    )


def test_a_node_with_a_deletion_timestamp_is_deleting() -> None:
    assert parse_node(manifest(metadata={"deletionTimestamp": "2026-11-21T12:00:00Z"})).deleting


def test_the_nodeclaims_that_own_a_node_are_kept() -> None:
    owners = [
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "name": "a",
            "uid": "uid-a",
            "controller": True,
        },
        {"apiVersion": "example.com/v1", "kind": "Machine", "name": "m", "uid": "uid-m"},
    ]
    shown = manifest(metadata={"ownerReferences": owners})
    assert parse_node(reduce_node(shown)).owners == parse_node(shown).owners == {"a": "uid-a"}
    assert reduce_node(shown)["metadata"]["ownerReferences"] == [
        {"kind": "NodeClaim", "name": "a", "uid": "uid-a"}
    ]


def test_a_node_keeps_the_names_of_its_finalizers() -> None:
    found = parse_node(manifest(metadata={"finalizers": ["karpenter.sh/termination"]}))

    assert found.finalizers == ("karpenter.sh/termination",)
    assert parse_node(manifest()).finalizers == ()
