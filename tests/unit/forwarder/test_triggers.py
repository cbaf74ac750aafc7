"""Which concerns a change wakes."""

from __future__ import annotations

import copy
from collections.abc import Collection
from random import Random
from typing import Any

import pytest

from nodesmith.model.functions import Concern
from nodesmith.observation.mirror import (
    ATTACHMENTS,
    BUDGETS,
    CAPACITY_BUFFERS,
    CLAIM_TEMPLATES,
    DAEMONSETS,
    DEPLOYMENTS,
    DEVICE_CLAIMS,
    NAMESPACES,
    NODE_OVERLAYS,
    NODECLAIMS,
    NODECLASSES,
    NODEPOOLS,
    NODES,
    POD_TEMPLATES,
    PODS,
    REPLICA_SETS,
    REQUESTS,
    SLICES,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
    Mirror,
    WatchedKind,
)
from nodesmith_forwarder.triggers import triggered
from nodesmith_forwarder.windows import Topic
from tests.objects import foreign
from tests.objects.clusters import Manifest, budget, deployment_pod, node, rolled
from tests.objects.storage import attachment, claim, storage_class, volume
from tests.scenarios.gangs import request_manifest


def topics(
    kind: WatchedKind,
    *states: Manifest | None,
    awaited: str = "",
    ending: Collection[str] = (),
    buffers: Collection[Manifest] = (),
) -> set[Concern]:
    """Return the concerns that the last of the states wakes; None is the object's removal.

    A pod waits for the volume claim `awaited`.
    """
    topics = topics_of(kind, *states, awaited=awaited, ending=ending, buffers=buffers)
    assert topics is None or None in topics, "every change must reach the snapshot"
    return {topic for topic in topics or () if topic is not None}


def topics_of(
    kind: WatchedKind,
    *states: Manifest | None,
    awaited: str = "",
    ending: Collection[str] = (),
    buffers: Collection[Manifest] = (),
) -> list[Topic] | None:
    """Return the topics of the last of the states; None if it changes nothing."""
    mirror, change = Mirror(kind), None
    for before, state in zip((None, *states), states, strict=False):
        change = mirror.put(state) if state is not None else mirror.drop(before or {})
    return [topic for topic, _ in triggered(change, awaited.__eq__, ending, buffers)] if change else None


def custom(**spec: Any) -> Manifest:
    return {"apiVersion": "karpenter.sh/v1", "kind": "Any", "metadata": {"name": "x"}, "spec": spec}


def pod(home: str = "", **metadata: Any) -> Manifest:
    manifest = deployment_pod(1, rolled(1), home)
    manifest["metadata"].update(metadata)
    return manifest


def test_a_pod_found_unschedulable_wakes_provisioning() -> None:
    waiting = pod()
    waiting["status"]["conditions"] = []
    assert topics(PODS, waiting) == set()
    assert topics(PODS, waiting, pod()) == {Concern.PROVISIONING}


@pytest.mark.parametrize("after", [pod("n1"), None])
def test_a_pod_that_is_bound_or_gone_wakes_nothing(after: Manifest | None) -> None:
    assert topics(PODS, pod(), after) == set()


def test_a_pod_change_that_no_decision_reads_is_ignored() -> None:
    assert topics(PODS, pod(), pod(annotations={"seen-by": "somebody"})) == set()


def test_daemonset_pods_wake_nothing() -> None:
    owner = {"kind": "DaemonSet", "name": "logs", "uid": "u", "controller": True}
    assert topics(PODS, pod(ownerReferences=[owner])) == set()


def test_nodes_that_appear_change_or_disappear_wake_lifecycle() -> None:
    machine = node(1, rolled(1))
    tainted = copy.deepcopy(machine)
    tainted["spec"]["taints"] = [{"key": "a", "effect": "NoSchedule"}]
    assert topics(NODES, machine) == {Concern.LIFECYCLE}
    assert topics(NODES, machine, tainted) == {Concern.LIFECYCLE}
    assert topics(NODES, machine, None) == {Concern.LIFECYCLE}


def test_a_nodes_heartbeat_wakes_nothing() -> None:
    machine = node(1, rolled(1))
    later = copy.deepcopy(machine)
    later["status"]["conditions"][0]["lastHeartbeatTime"] = "2027-01-01T00:00:00Z"
    assert topics(NODES, machine, later) == set()


def test_a_users_new_nodeclaim_also_wakes_readiness() -> None:
    assert topics(NODECLAIMS, custom(expireAfter="720h")) == {Concern.LIFECYCLE, Concern.READINESS}


def test_a_nodeclaims_spec_wakes_lifecycle_and_its_status_nothing() -> None:
    claim = custom(expireAfter="720h")
    claim["metadata"]["annotations"] = {"nodesmith.dev/decision": "20261121T120000Z-test"}
    status = {"status": {"conditions": [{"type": "Launched", "status": "True"}]}}
    assert topics(NODECLAIMS, claim) == {Concern.LIFECYCLE}
    assert topics(NODECLAIMS, claim, {**claim, **status}) == set()


@pytest.mark.parametrize("kind", [NODEPOOLS, NODECLASSES])
def test_a_pools_or_classs_spec_wakes_readiness_and_its_status_provisioning(
    kind: WatchedKind,
) -> None:
    status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert topics(kind, custom(weight=1), custom(weight=2)) == {Concern.READINESS, Concern.PROVISIONING}
    assert topics(kind, custom(weight=1), {**custom(weight=1), **status}) == {Concern.PROVISIONING}


@pytest.mark.parametrize("status", ["False", "Unknown", "True"])
def test_a_nodeclass_that_is_not_ready_wakes_lifecycle(
    status: str,
) -> None:
    said = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
    found = topics(NODECLASSES, custom(weight=1), {**custom(weight=1), **said})
    assert found == {Concern.PROVISIONING} | ({Concern.LIFECYCLE} if status == "False" else set())


def test_a_deleted_nodeclass_also_wakes_lifecycle() -> None:
    everybody = {Concern.READINESS, Concern.PROVISIONING, Concern.LIFECYCLE}
    assert topics(NODECLASSES, custom(), with_metadata(custom(), **LEAVING)) == everybody
    assert topics(NODECLASSES, custom(), None) == everybody
    assert topics(NODEPOOLS, custom(), None) == {Concern.READINESS, Concern.PROVISIONING}


def test_a_pools_counts_wake_nothing() -> None:
    counted = {"status": {"nodes": 1, "resources": {"cpu": "4"}}}
    assert topics(NODEPOOLS, custom(weight=1), {**custom(weight=1), **counted}) == set()


def test_a_daemonset_only_goes_into_the_snapshot() -> None:
    template = {"spec": {"containers": [{"name": "a"}]}}
    manifest = {"metadata": {"name": "logs", "namespace": "kube-system"}, "spec": {"template": template}}
    assert topics(DAEMONSETS, manifest) == set()


def test_only_a_volume_claim_that_a_pod_waits_for_wakes_provisioning() -> None:
    unbound, bound = claim("data"), claim("data", bound_to="pv-1")
    assert topics(VOLUME_CLAIMS, unbound, awaited="default/data") == {Concern.PROVISIONING}
    assert topics(VOLUME_CLAIMS, unbound, bound, awaited="default/data") == {Concern.PROVISIONING}
    assert topics(VOLUME_CLAIMS, unbound, bound, awaited="default/other") == set()
    assert topics(VOLUME_CLAIMS, unbound, None, awaited="default/data") == set()


def test_a_volume_for_an_awaited_claim_or_for_any_claim_wakes_provisioning() -> None:
    free, kept = volume("pv-1", phase="Available"), volume("pv-1", claim="default/data")
    assert topics(VOLUMES, free) == {Concern.PROVISIONING}
    assert topics(VOLUMES, kept, awaited="default/data") == {Concern.PROVISIONING}
    assert topics(VOLUMES, kept, awaited="default/other") == set()
    assert topics(VOLUMES, free, None) == set()


def test_a_new_or_changed_storage_class_wakes_provisioning() -> None:
    assert topics(STORAGE_CLASSES, storage_class("gp3")) == {Concern.PROVISIONING}
    assert topics(STORAGE_CLASSES, storage_class("gp3"), None) == set()


def test_a_namespace_wakes_provisioning_only_when_its_labels_change() -> None:
    plain, teamed = {"metadata": {"name": "shop"}}, {"metadata": {"name": "shop", "labels": {"team": "a"}}}
    assert topics(NAMESPACES, plain) == set()
    assert topics(NAMESPACES, plain, teamed) == {Concern.PROVISIONING}
    assert topics(NAMESPACES, plain, None) == set()


MACHINE = node(1, rolled(1))
NAME = MACHINE["metadata"]["name"]
LEAVING = {"deletionTimestamp": "2026-11-21T12:00:00Z"}


def with_metadata(manifest: Manifest, **fields: Any) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], **fields}}


def unready(manifest: Manifest) -> Manifest:
    return {**manifest, "status": {"conditions": [{"type": "Ready", "status": "False"}]}}


def allowing(count: int, **spec: Any) -> Manifest:
    made = budget(1, 30)
    made["spec"].update(spec)
    made["status"]["disruptionsAllowed"] = count
    return made


def test_a_node_that_is_deleted_or_disrupted_wakes_termination() -> None:
    taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    disrupted = {**MACHINE, "spec": {**MACHINE["spec"], "taints": [taint]}}
    for after in (with_metadata(MACHINE, **LEAVING), disrupted):
        assert topics(NODES, MACHINE, after) == {Concern.LIFECYCLE, Concern.TERMINATION}
        assert topics(NODES, after) == {Concern.LIFECYCLE, Concern.TERMINATION}, (
            "as a new forwarder first sees it"
        )
        assert topics(NODES, after, None) == {Concern.LIFECYCLE, Concern.TERMINATION}


def test_a_deletion_wakes_lifecycle_only_at_its_beginning_and_its_end() -> None:
    going, claim = with_metadata(MACHINE, **LEAVING), with_metadata(custom(expireAfter="720h"), **LEAVING)
    further = with_metadata(going, labels={"a": "b"})
    assert topics(NODES, going, further) == {Concern.TERMINATION}
    assert topics(NODES, going, None) == {Concern.LIFECYCLE, Concern.TERMINATION}
    assert topics(NODECLAIMS, claim, with_metadata(claim, labels={"a": "b"})) == {Concern.TERMINATION}


def test_any_change_of_a_node_whose_claim_ends_wakes_termination() -> None:
    labelled = with_metadata(MACHINE, labels={"a": "b"})
    assert topics(NODES, MACHINE, labelled) == {Concern.LIFECYCLE}
    assert topics(NODES, MACHINE, labelled, ending=[NAME]) == {Concern.LIFECYCLE, Concern.TERMINATION}


def test_a_nodeclaims_deletion_wakes_termination_and_its_status_nothing() -> None:
    before = custom(expireAfter="720h")
    deleting = with_metadata(before, **LEAVING)
    status = {"conditions": [{"type": "Drained", "status": "Unknown"}]}
    assert topics(NODECLAIMS, before, deleting) == {Concern.LIFECYCLE, Concern.TERMINATION}
    assert topics(NODECLAIMS, deleting, {**deleting, "status": status}) == set()


@pytest.mark.parametrize(
    "after",
    [None, pod(NAME, **LEAVING), {**pod(NAME), "status": {"phase": "Succeeded"}}, unready(pod(NAME))],
    ids=["gone", "being deleted", "at its end", "not ready"],
)
def test_a_pod_that_leaves_an_ending_node_wakes_termination(after: Manifest | None) -> None:
    assert topics(PODS, pod(NAME), after, ending=[NAME]) == {Concern.TERMINATION}
    assert Concern.TERMINATION not in (topics_of(PODS, pod(NAME), after, ending=["another"]) or ())


def test_a_pod_that_loses_do_not_disrupt_wakes_termination() -> None:
    kept = pod(NAME, annotations={"karpenter.sh/do-not-disrupt": "true"})
    assert topics(PODS, kept, pod(NAME), ending=[NAME]) == {Concern.TERMINATION}
    assert topics(PODS, kept, pod(NAME), ending=["another"]) == {Concern.DISRUPTION}


def test_a_terminating_pod_that_becomes_unready_can_wait() -> None:
    ends = pod(NAME, **LEAVING)
    assert topics_of(PODS, ends, unready(ends), ending=[NAME]) == []


def test_a_pod_that_becomes_ready_can_wait_for_the_next_snapshot() -> None:
    assert topics_of(PODS, unready(pod(NAME)), pod(NAME)) == []
    moved = pod(NAME, deletionTimestamp="2026-11-21T12:00:00Z")
    assert topics_of(PODS, unready(pod(NAME)), moved) == [None, Concern.DISRUPTION]


def test_a_pod_whose_containers_start_can_wait_for_the_next_snapshot() -> None:
    bound = unready(pod(NAME))
    bound["status"]["phase"] = "Pending"
    started = unready(pod(NAME))
    assert topics_of(PODS, bound, started) == []
    assert topics_of(PODS, bound, started, ending=[NAME]) == [None, Concern.TERMINATION]


def test_a_budget_that_allows_more_wakes_termination_while_a_node_ends() -> None:
    fewer, more = allowing(0), allowing(1)
    assert topics(BUDGETS, fewer, more, ending=[NAME]) == {Concern.TERMINATION}
    assert topics(BUDGETS, fewer, None, ending=[NAME]) == {Concern.TERMINATION}
    assert topics(BUDGETS, fewer, allowing(0, maxUnavailable="50%"), ending=[NAME]) == {Concern.TERMINATION}
    assert topics_of(BUDGETS, more, fewer, ending=[NAME]) == []
    assert topics(BUDGETS, more, ending=[NAME]) == set()


def test_a_budgets_counts_can_wait_while_no_node_ends() -> None:
    assert topics_of(BUDGETS, allowing(1), allowing(2)) == []
    assert topics_of(BUDGETS, allowing(1), allowing(0)) == []
    assert topics_of(BUDGETS, allowing(0), allowing(0, maxUnavailable="50%")) == [None]


@pytest.mark.parametrize("after", [allowing(1), None])
def test_a_budget_that_begins_to_allow_disruptions_wakes_disruption(after: Manifest | None) -> None:
    assert topics_of(BUDGETS, allowing(0), after) == [None, Concern.DISRUPTION]


@pytest.mark.parametrize(
    "after",
    [None, pod(NAME, **LEAVING), {**pod(NAME), "status": {"phase": "Succeeded"}}],
    ids=["gone", "being deleted", "at its end"],
)
def test_a_pod_that_leaves_a_remaining_node_wakes_disruption(after: Manifest | None) -> None:
    assert topics(PODS, pod(NAME), after) == {Concern.DISRUPTION}


def test_a_pod_with_smaller_requests_wakes_disruption() -> None:
    smaller = copy.deepcopy(pod(NAME))
    smaller["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1m"}}
    assert topics(PODS, pod(NAME), smaller) == {Concern.DISRUPTION}


def test_a_daemonsets_pod_and_an_already_deleted_pod_free_no_node() -> None:
    owner = {"kind": "DaemonSet", "name": "logs", "uid": "u", "controller": True}
    assert topics(PODS, pod(NAME, ownerReferences=[owner]), None) == set()
    assert topics(PODS, pod(NAME, **LEAVING), pod(NAME, **LEAVING, labels={"a": "b"})) == set()


def test_a_node_that_loses_do_not_disrupt_or_is_ready_again_wakes_disruption() -> None:
    kept = with_metadata(MACHINE, annotations={"karpenter.sh/do-not-disrupt": "true"})
    assert topics(NODES, kept, MACHINE) == {Concern.LIFECYCLE, Concern.DISRUPTION}
    assert topics(NODES, MACHINE, kept) == {Concern.LIFECYCLE}
    assert topics(NODES, unready(MACHINE), MACHINE) == {Concern.LIFECYCLE, Concern.DISRUPTION}
    assert Concern.DISRUPTION not in topics(NODES, kept, MACHINE, ending=[NAME])


def test_a_node_whose_move_is_abandoned_wakes_disruption() -> None:
    taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    disrupted = {**MACHINE, "spec": {**MACHINE["spec"], "taints": [taint]}}
    assert topics(NODES, disrupted, MACHINE) == {Concern.LIFECYCLE, Concern.TERMINATION, Concern.DISRUPTION}
    assert Concern.DISRUPTION not in topics(NODES, MACHINE, disrupted)


def test_a_volume_detached_from_an_ending_node_wakes_termination() -> None:
    held = attachment("pv-1", NAME)
    assert topics(ATTACHMENTS, held, None, ending=[NAME]) == {Concern.TERMINATION}
    assert topics_of(ATTACHMENTS, held, ending=[NAME]) == [None]


def test_volumes_of_remaining_nodes_wake_nothing() -> None:
    held = attachment("pv-1", NAME)
    assert topics_of(ATTACHMENTS, held) == []
    assert topics_of(ATTACHMENTS, held, None, ending=["another"]) == []


def test_auto_modes_nodepools_and_nodeclaims_wake_nothing_and_cause_no_snapshot() -> None:
    pool = foreign.auto_mode_nodepool("system")
    other = {**pool, "status": {}, "spec": {**pool["spec"], "weight": 1}}
    mirror, claims = Mirror(NODEPOOLS), Mirror(NODECLAIMS)
    changes = [mirror.put(pool), mirror.put(other), mirror.drop(other)]
    assert [list(triggered(change, lambda _: False, ())) for change in changes if change] == [[], [], []]
    assert claims.put(foreign.nodeclaim("a", "system", instance="i-1")) is None


def test_a_nodepool_that_changes_to_another_nodeclass_group_wakes_readiness() -> None:
    assert Concern.READINESS in topics(
        NODEPOOLS,
        custom(template={"spec": {"nodeClassRef": {"group": "karpenter.k8s.aws"}}}),
        custom(template={"spec": {"nodeClassRef": {"group": "eks.amazonaws.com"}}}),
    )


def test_an_overlays_spec_wakes_who_compares_prices_and_its_status_nobody() -> None:
    before, after = custom(requirements=[], price="1"), custom(requirements=[], price="2")
    concerned = {Concern.PROVISIONING, Concern.DISRUPTION}
    assert topics(NODE_OVERLAYS, before) == concerned
    assert topics(NODE_OVERLAYS, before, after) == concerned
    assert topics(NODE_OVERLAYS, before, None) == concerned
    reported = {**before, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert topics(NODE_OVERLAYS, before, reported) == set()


def buffer_for(**spec: Any) -> Manifest:
    return {"metadata": {"name": "room", "namespace": "default"}, "spec": spec}


FOR_TEMPLATE = buffer_for(podTemplateRef={"name": "room"}, replicas=1)
FOR_DEPLOYMENT = buffer_for(scalableRef={"kind": "Deployment", "name": "web"}, percentage=10)


def of_template(name: str, cpu: str) -> Manifest:
    containers = [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]
    about = {"name": name, "namespace": "default"}
    return {"metadata": about, "template": {"spec": {"containers": containers}}}


def deployment(name: str, replicas: int) -> Manifest:
    template = of_template(name, "1")
    return {
        "metadata": template["metadata"],
        "spec": {"replicas": replicas, "template": template["template"]},
    }


def test_a_buffer_wakes_provisioning_and_disruption_but_its_status_wakes_nothing() -> None:
    both = {Concern.PROVISIONING, Concern.DISRUPTION}
    shown = {**FOR_TEMPLATE, "status": {"replicas": 1}}
    larger = buffer_for(podTemplateRef={"name": "room"}, replicas=2)
    assert topics(CAPACITY_BUFFERS, FOR_TEMPLATE) == both
    assert topics(CAPACITY_BUFFERS, FOR_TEMPLATE, larger) == both
    assert topics(CAPACITY_BUFFERS, FOR_TEMPLATE, None) == both
    assert topics(CAPACITY_BUFFERS, FOR_TEMPLATE, shown) == set()


def test_templates_and_workloads_wake_something_only_if_a_buffer_refers_to_them() -> None:
    both = {Concern.PROVISIONING, Concern.DISRUPTION}
    template, workload = of_template("room", "1"), deployment("web", 3)
    assert topics(POD_TEMPLATES, template, buffers=[FOR_TEMPLATE]) == both
    assert topics(POD_TEMPLATES, template, buffers=[FOR_DEPLOYMENT]) == set()
    assert topics(POD_TEMPLATES, template) == set()
    assert topics(DEPLOYMENTS, workload, deployment("web", 4), buffers=[FOR_DEPLOYMENT]) == both
    assert topics(DEPLOYMENTS, deployment("api", 3), buffers=[FOR_DEPLOYMENT]) == set()


def test_a_workload_wakes_something_if_a_buffer_refers_to_the_custom_resource_that_controls_it() -> None:
    rollout = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web", "controller": True}
    mine = with_metadata(
        deployment("web-1", 3), ownerReferences=[rollout], creationTimestamp="2026-11-21T10:00:00Z"
    )
    reference = {"kind": "Rollout", "apiGroup": "argoproj.io", "name": "web"}
    for_rollout = buffer_for(scalableRef=reference, percentage=10)
    assert topics(REPLICA_SETS, mine, buffers=[for_rollout]) == {Concern.PROVISIONING, Concern.DISRUPTION}
    assert topics(REPLICA_SETS, deployment("api", 3), buffers=[for_rollout]) == set()


def test_a_pod_that_comes_to_a_node_wakes_provisioning_while_there_are_buffers() -> None:
    waiting, bound = (deployment_pod(1, Random(1), name) for name in ("", "n1"))  # noqa: S311
    assert topics(PODS, waiting, bound, buffers=[FOR_TEMPLATE]) == {Concern.PROVISIONING}
    assert topics(PODS, bound, buffers=[FOR_TEMPLATE]) == {Concern.PROVISIONING}
    assert topics(PODS, waiting, bound) == set()


def test_a_change_of_a_node_wakes_provisioning_while_there_are_buffers() -> None:
    there = node(1, rolled(1))
    cordoned = {**there, "spec": {**(there.get("spec") or {}), "unschedulable": True}}
    assert Concern.PROVISIONING in topics(NODES, there, cordoned, buffers=[FOR_TEMPLATE])
    assert Concern.PROVISIONING in topics(NODES, there, None, buffers=[FOR_TEMPLATE])
    assert Concern.PROVISIONING not in topics(NODES, there, cordoned)


def test_a_new_provisioning_request_wakes_provisioning_and_its_status_lifecycle() -> None:
    new = request_manifest("job", 3)
    reported = {**new, "status": {"conditions": [{"type": "Accepted", "status": "True"}]}}
    assert topics(REQUESTS, new) == {Concern.PROVISIONING}
    assert topics(REQUESTS, new, reported) == {Concern.LIFECYCLE}
    assert topics(REQUESTS, reported, None) == {Concern.PROVISIONING, Concern.LIFECYCLE}


def test_claims_and_devices_wake_who_waits_for_them() -> None:
    about = {"name": "gpu", "namespace": "default"}
    asked = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
    made = {"metadata": about, "spec": asked}
    results = [{"request": "r", "driver": "d", "pool": "p", "device": "x"}]
    allocated = {**made, "status": {"allocation": {"devices": {"results": results}}}}
    assert topics(DEVICE_CLAIMS, made) == {Concern.PROVISIONING}
    assert topics(DEVICE_CLAIMS, made, allocated) == set()
    assert topics(CLAIM_TEMPLATES, {"metadata": about, "spec": {"spec": asked}}) == {Concern.PROVISIONING}
    piece = {"metadata": {"name": "s"}, "spec": {"driver": "d", "nodeName": "n", "pool": {"name": "n"}}}
    assert topics(SLICES, piece) == {Concern.PROVISIONING, Concern.LIFECYCLE}
