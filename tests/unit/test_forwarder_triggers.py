"""Whom a change wakes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from nodesmith.model.events import Concern
from nodesmith.observation.mirror import (
    DAEMONSETS,
    NODECLAIMS,
    NODECLASSES,
    NODEPOOLS,
    NODES,
    PODS,
    Mirror,
    WatchedKind,
)
from nodesmith_forwarder.triggers import triggered
from tests.clusters import Manifest, deployment_pod, node, rolled


def woken(kind: WatchedKind, *states: Manifest | None) -> set[Concern]:
    """Say who is woken by the last of the states; None is the object's removal."""
    mirror, change = Mirror(kind), None
    for before, state in zip((None, *states), states, strict=False):
        change = mirror.put(state) if state is not None else mirror.drop(before or {})
    topics = [topic for topic, _ in triggered(change)] if change else []
    assert (None in topics) == (change is not None), "whatever changed must reach the snapshot"
    return {topic for topic in topics if topic is not None}


def custom(**spec: Any) -> Manifest:
    return {"apiVersion": "karpenter.sh/v1", "kind": "Any", "metadata": {"name": "x"}, "spec": spec}


def pod(home: str = "", **metadata: Any) -> Manifest:
    manifest = deployment_pod(1, rolled(1), home)
    manifest["metadata"].update(metadata)
    return manifest


def test_a_pod_found_unschedulable_wakes_provisioning() -> None:
    waiting = pod()
    waiting["status"]["conditions"] = []
    assert woken(PODS, waiting) == set()
    assert woken(PODS, waiting, pod()) == {Concern.PROVISIONING}


@pytest.mark.parametrize("after", [pod("n1"), None])
def test_a_pod_that_is_bound_or_gone_wakes_nobody(after: Manifest | None) -> None:
    assert woken(PODS, pod(), after) == set()


def test_a_pod_that_changes_nothing_a_decision_reads_is_no_change() -> None:
    assert woken(PODS, pod(), pod(annotations={"seen-by": "somebody"})) == set()


def test_daemon_pods_wake_nobody() -> None:
    owner = {"kind": "DaemonSet", "name": "logs", "uid": "u", "controller": True}
    assert woken(PODS, pod(ownerReferences=[owner])) == set()


def test_nodes_that_come_change_or_go_wake_lifecycle() -> None:
    machine = node(1, rolled(1))
    tainted = copy.deepcopy(machine)
    tainted["spec"]["taints"] = [{"key": "a", "effect": "NoSchedule"}]
    assert woken(NODES, machine) == {Concern.LIFECYCLE}
    assert woken(NODES, machine, tainted) == {Concern.LIFECYCLE}
    assert woken(NODES, machine, None) == {Concern.LIFECYCLE}


def test_a_nodes_heartbeat_wakes_nobody() -> None:
    machine = node(1, rolled(1))
    later = copy.deepcopy(machine)
    later["status"]["conditions"][0]["lastHeartbeatTime"] = "2027-01-01T00:00:00Z"
    assert woken(NODES, machine, later) == set()


def test_a_claims_deletion_wakes_lifecycle_and_its_status_nobody() -> None:
    claim = custom(expireAfter="720h")
    status = {"status": {"conditions": [{"type": "Launched", "status": "True"}]}}
    deleting = {**claim, "metadata": {"name": "x", "deletionTimestamp": "2026-11-21T08:00:00Z"}}
    assert woken(NODECLAIMS, claim) == {Concern.LIFECYCLE}
    assert woken(NODECLAIMS, claim, {**claim, **status}) == set()
    assert woken(NODECLAIMS, claim, deleting) == {Concern.LIFECYCLE}


@pytest.mark.parametrize("kind", [NODEPOOLS, NODECLASSES])
def test_a_spec_of_a_pool_or_class_wakes_readiness_and_its_status_what_waits_for_it(
    kind: WatchedKind,
) -> None:
    status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert woken(kind, custom(weight=1), custom(weight=2)) == {Concern.READINESS, Concern.PROVISIONING}
    assert woken(kind, custom(weight=1), {**custom(weight=1), **status}) == {Concern.PROVISIONING}


def test_what_a_pool_counts_wakes_nobody() -> None:
    counted = {"status": {"nodes": 1, "resources": {"cpu": "4"}}}
    assert woken(NODEPOOLS, custom(weight=1), {**custom(weight=1), **counted}) == set()


def test_a_daemonset_is_only_for_the_snapshot() -> None:
    template = {"spec": {"containers": [{"name": "a"}]}}
    manifest = {"metadata": {"name": "logs", "namespace": "kube-system"}, "spec": {"template": template}}
    assert woken(DAEMONSETS, manifest) == set()
