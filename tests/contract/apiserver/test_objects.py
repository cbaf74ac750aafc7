"""Creating, reading, updating and deleting objects with the official client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes.client import ApiException

from tests.patience import eventually


def pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "registry.test/app:1", "resources": {"requests": {"cpu": "1"}}}
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": [container], **spec}}


def refusal(error: pytest.ExceptionInfo[ApiException]) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(error.value.body or "")
    return body


def test_a_new_pod_gets_the_defaults_of_a_real_server(core: Any, ns: str) -> None:
    created = core.create_namespaced_pod(ns, pod("web"))

    assert created.metadata.uid
    assert int(created.metadata.resource_version) > 0
    assert created.status.phase == "Pending"
    assert created.status.qos_class == "Burstable"
    assert created.spec.restart_policy == "Always"
    assert created.spec.scheduler_name == "default-scheduler"
    assert created.spec.priority == 0
    waits = {each.key: each.toleration_seconds for each in created.spec.tolerations}
    assert waits == {"node.kubernetes.io/not-ready": 300, "node.kubernetes.io/unreachable": 300}


def test_limits_become_requests_on_pods(core: Any, ns: str) -> None:
    given = pod("web")
    given["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "2", "memory": "1Gi"}}

    created = core.create_namespaced_pod(ns, given)

    assert created.spec.containers[0].resources.requests == {"cpu": "2", "memory": "1Gi"}
    assert created.status.qos_class == "Guaranteed"


def test_a_priority_class_becomes_a_priority(core: Any, ns: str) -> None:
    created = core.create_namespaced_pod(ns, pod("dns", priorityClassName="system-node-critical"))
    assert created.spec.priority == 2_000_001_000

    with pytest.raises(ApiException) as error:
        core.create_namespaced_pod(ns, pod("lost", priorityClassName="nobody"))
    assert error.value.status == 403
    assert "no PriorityClass with name nobody was found" in refusal(error)["message"]


def test_a_new_node_keeps_its_status_and_has_the_not_ready_taint(core: Any, node_name: str) -> None:
    node = {
        "metadata": {"name": node_name},
        "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3900m"}},
    }

    created = core.create_node(node)

    assert created.status.allocatable == {"cpu": "3900m"}
    assert [(t.key, t.effect) for t in created.spec.taints] == [
        ("node.kubernetes.io/not-ready", "NoSchedule")
    ]


def test_generated_names_are_unique_and_start_with_the_given_prefix(core: Any, ns: str) -> None:
    given = pod("ignored")
    given["metadata"] = {"generateName": "web-"}

    names = {core.create_namespaced_pod(ns, given).metadata.name for _ in range(20)}

    assert len(names) == 20
    assert all(name.startswith("web-") and len(name) == 9 for name in names)


def test_a_missing_object_is_404_with_a_status(core: Any, ns: str) -> None:
    with pytest.raises(ApiException) as error:
        core.read_namespaced_pod("ghost", ns)

    assert error.value.status == 404
    status = refusal(error)
    assert status["reason"] == "NotFound"
    assert status["message"] == 'pods "ghost" not found'
    assert status["details"] == {"name": "ghost", "kind": "pods"}


def test_a_name_that_is_taken_is_409(core: Any, ns: str) -> None:
    core.create_namespaced_pod(ns, pod("web"))

    with pytest.raises(ApiException) as error:
        core.create_namespaced_pod(ns, pod("web"))

    assert (error.value.status, refusal(error)["reason"]) == (409, "AlreadyExists")


def test_a_namespace_that_does_not_exist_is_404(core: Any) -> None:
    with pytest.raises(ApiException) as error:
        core.create_namespaced_pod("nowhere", pod("web"))

    assert refusal(error)["message"] == 'namespaces "nowhere" not found'


def test_an_update_with_an_old_resource_version_is_409_and_changes_nothing(core: Any, ns: str) -> None:
    old = core.create_namespaced_pod(ns, pod("web"))
    core.patch_namespaced_pod("web", ns, {"metadata": {"labels": {"tier": "a"}}})

    old.metadata.labels = {"tier": "b"}
    with pytest.raises(ApiException) as error:
        core.replace_namespaced_pod("web", ns, old)

    assert (error.value.status, refusal(error)["reason"]) == (409, "Conflict")
    assert core.read_namespaced_pod("web", ns).metadata.labels == {"app": "web", "tier": "a"}


def test_an_update_without_changes_keeps_the_resource_version(core: Any, ns: str) -> None:
    before = core.create_namespaced_pod(ns, pod("web"))

    after = core.patch_namespaced_pod("web", ns, {"metadata": {"labels": {"app": "web"}}})

    assert after.metadata.resource_version == before.metadata.resource_version


def test_generation_counts_spec_changes_only(apps: Any, ns: str) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("web")["spec"]}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    apps.create_namespaced_deployment(ns, {"metadata": {"name": "web"}, "spec": spec})

    apps.patch_namespaced_deployment("web", ns, {"metadata": {"labels": {"a": "b"}}})
    apps.patch_namespaced_deployment_status("web", ns, {"status": {"replicas": 1}})
    assert apps.read_namespaced_deployment("web", ns).metadata.generation == 1

    apps.patch_namespaced_deployment("web", ns, {"spec": {"replicas": 3}})
    assert apps.read_namespaced_deployment("web", ns).metadata.generation == 2


def test_status_and_spec_are_updated_separately(core: Any, node_name: str) -> None:
    core.create_node({"metadata": {"name": node_name}})

    core.patch_node_status(node_name, {"status": {"phase": "Running"}, "spec": {"unschedulable": True}})
    core.patch_node(node_name, {"status": {"phase": "Terminated"}, "spec": {"providerID": "aws:///a/i-1"}})

    node = core.read_node(node_name)
    assert node.status.phase == "Running"
    assert node.spec.unschedulable is None
    assert node.spec.provider_id == "aws:///a/i-1"


def test_a_dry_run_returns_the_result_and_stores_nothing(core: Any, ns: str) -> None:
    created = core.create_namespaced_pod(ns, pod("web"), dry_run="All")

    assert created.metadata.uid
    assert core.list_namespaced_pod(ns).items == []


def test_a_scheduled_pod_is_deleted_gracefully_and_an_unscheduled_one_at_once(
    core: Any, ns: str, node_name: str
) -> None:
    core.create_namespaced_pod(ns, pod("waiting"))
    core.create_namespaced_pod(ns, pod("placed", nodeName=node_name))

    core.delete_namespaced_pod("waiting", ns)
    core.delete_namespaced_pod("placed", ns)

    left = core.list_namespaced_pod(ns).items
    assert [each.metadata.name for each in left] == ["placed"]
    assert left[0].metadata.deletion_timestamp is not None
    assert left[0].metadata.deletion_grace_period_seconds == 30
    core.delete_namespaced_pod("placed", ns, grace_period_seconds=0)
    assert core.list_namespaced_pod(ns).items == []


def test_finalizers_hold_an_object_until_they_are_gone(core: Any, node_name: str) -> None:
    core.create_node({"metadata": {"name": node_name, "finalizers": ["karpenter.sh/termination"]}})

    core.delete_node(node_name)
    assert core.read_node(node_name).metadata.deletion_timestamp is not None

    core.patch_node(node_name, {"metadata": {"finalizers": None}})
    with pytest.raises(ApiException) as error:
        core.read_node(node_name)
    assert error.value.status == 404


def test_a_delete_with_another_uid_in_its_precondition_is_409(core: Any, ns: str) -> None:
    core.create_namespaced_pod(ns, pod("web"))

    with pytest.raises(ApiException) as error:
        core.delete_namespaced_pod("web", ns, body={"preconditions": {"uid": "somebody-else"}})

    assert error.value.status == 409
    assert core.read_namespaced_pod("web", ns)


def test_dependents_are_deleted_with_their_last_owner(core: Any, ns: str) -> None:
    owner = core.create_namespaced_config_map(ns, {"metadata": {"name": "owner"}})
    other = core.create_namespaced_config_map(ns, {"metadata": {"name": "other"}})

    def reference(of: Any) -> dict[str, str]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "name": of.metadata.name, "uid": of.metadata.uid}

    for name, owners in (("one", [owner]), ("two", [owner, other])):
        given = pod(name)
        given["metadata"]["ownerReferences"] = [reference(each) for each in owners]
        core.create_namespaced_pod(ns, given)

    core.delete_namespaced_config_map("owner", ns)
    eventually(lambda: [each.metadata.name for each in core.list_namespaced_pod(ns).items] == ["two"])

    core.delete_namespaced_config_map("other", ns)
    eventually(lambda: core.list_namespaced_pod(ns).items == [])


def test_orphaned_dependents_stay_without_an_owner(core: Any, ns: str) -> None:
    owner = core.create_namespaced_config_map(ns, {"metadata": {"name": "owner"}})
    given = pod("web")
    given["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}
    ]
    core.create_namespaced_pod(ns, given)

    core.delete_namespaced_config_map("owner", ns, propagation_policy="Orphan")

    eventually(lambda: not core.read_namespaced_pod("web", ns).metadata.owner_references)


def test_deleting_a_namespace_deletes_its_objects_first(core: Any, ns: str) -> None:
    core.create_namespaced_pod(ns, pod("web"))

    core.delete_namespace(ns)

    eventually(lambda: core.list_namespaced_pod(ns).items == [])
    eventually(lambda: ns not in {each.metadata.name for each in core.list_namespace().items})


def test_a_terminating_namespace_accepts_no_new_objects(core: Any, ns: str) -> None:
    held = pod("held")
    held["metadata"]["finalizers"] = ["example.com/wait"]
    core.create_namespaced_pod(ns, held)

    core.delete_namespace(ns)

    eventually(lambda: core.read_namespaced_pod("held", ns).metadata.deletion_timestamp is not None)
    assert core.read_namespace(ns).status.phase == "Terminating"
    with pytest.raises(ApiException) as error:
        core.create_namespaced_pod(ns, pod("late"))
    assert error.value.status == 403
    words = f"unable to create new content in namespace {ns} because it is being terminated"
    assert words in refusal(error)["message"]
    core.patch_namespaced_pod("held", ns, {"metadata": {"finalizers": None}})


def test_binding_places_a_pod_once(core: Any, ns: str, node_name: str) -> None:
    core.create_namespaced_pod(ns, pod("web"))
    binding = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": node_name}}

    core.create_namespaced_binding(ns, binding, _preload_content=False)

    placed = core.read_namespaced_pod("web", ns)
    assert placed.spec.node_name == node_name
    assert [(each.type, each.status) for each in placed.status.conditions] == [("PodScheduled", "True")]
    with pytest.raises(ApiException) as error:
        core.create_namespaced_binding(ns, binding, _preload_content=False)
    assert error.value.status == 409
    assert "already assigned" in refusal(error)["message"]


def test_the_scale_subresource_reads_and_sets_replicas(apps: Any, ns: str) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("web")["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    apps.create_namespaced_deployment(ns, {"metadata": {"name": "web"}, "spec": spec})

    scale = apps.read_namespaced_deployment_scale("web", ns)
    assert (scale.spec.replicas, scale.status.selector) == (2, "app=web")
    apps.patch_namespaced_deployment_scale("web", ns, {"spec": {"replicas": 7}})

    assert apps.read_namespaced_deployment("web", ns).spec.replicas == 7
