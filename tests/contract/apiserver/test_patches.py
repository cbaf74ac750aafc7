"""Results of merge patches, strategic merge patches, JSON patches and server-side apply."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.servers import Call

JSON, MERGE = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


def deployment(**spec: Any) -> dict[str, Any]:
    container = {
        "name": "web",
        "image": "app:1",
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
    }
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    base = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {**base, **spec},
    }


def web(ns: str) -> str:
    return f"/apis/apps/v1/namespaces/{ns}/deployments/web"


def test_a_strategic_merge_merges_containers_by_name_and_env_by_name(apps: Any, call: Call, ns: str) -> None:
    apps.create_namespaced_deployment(ns, deployment())
    sidecar = {"name": "log", "image": "log:1"}
    change = {"name": "web", "env": [{"name": "B", "value": "3"}, {"name": "A", "$patch": "delete"}]}

    _, after = call(
        "PATCH", web(ns), {"spec": {"template": {"spec": {"containers": [sidecar, change]}}}}, STRATEGIC
    )

    containers = {each["name"]: each for each in after["spec"]["template"]["spec"]["containers"]}
    assert set(containers) == {"web", "log"}
    assert containers["web"]["image"] == "app:1"
    assert containers["web"]["env"] == [{"name": "B", "value": "3"}]


def test_a_strategic_merge_replaces_lists_without_a_key(core: Any, node_name: str) -> None:
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoSchedule"}]
    core.create_node({"metadata": {"name": node_name}, "spec": {"taints": taints}})

    after = core.patch_node(node_name, {"spec": {"taints": taints[:1]}})

    assert [each.key for each in after.spec.taints] == ["a"]


def test_a_strategic_merge_of_conditions_keeps_the_others(core: Any, node_name: str) -> None:
    core.create_node(
        {"metadata": {"name": node_name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    )

    after = core.patch_node_status(
        node_name, {"status": {"conditions": [{"type": "DiskPressure", "status": "False"}]}}
    )

    assert {each.type: each.status for each in after.status.conditions} == {
        "Ready": "True",
        "DiskPressure": "False",
    }


def test_a_strategic_merge_follows_set_element_order_and_retain_keys_directives(
    apps: Any, call: Call, ns: str
) -> None:
    apps.create_namespaced_deployment(ns, deployment())
    spec = {
        "$setElementOrder/containers": [{"name": "first"}, {"name": "web"}],
        "containers": [{"name": "first", "image": "first:1"}],
    }
    change = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}, "template": {"spec": spec}}}

    _, after = call("PATCH", web(ns), change, STRATEGIC)

    assert [each["name"] for each in after["spec"]["template"]["spec"]["containers"]] == ["first", "web"]
    assert after["spec"]["strategy"] == {"type": "Recreate"}


def test_a_merge_patch_replaces_lists_and_drops_nulls(apps: Any, call: Call, ns: str) -> None:
    apps.create_namespaced_deployment(
        ns, {**deployment(), "metadata": {"name": "web", "labels": {"a": "1", "b": "2"}}}
    )

    _, after = call("PATCH", web(ns), {"metadata": {"labels": {"a": None, "c": "3"}}}, MERGE)

    assert after["metadata"]["labels"] == {"b": "2", "c": "3"}


def test_a_json_patch_applies_all_operations_in_order_or_none(apps: Any, call: Call, ns: str) -> None:
    apps.create_namespaced_deployment(ns, deployment())
    good = [
        {"op": "test", "path": "/spec/replicas", "value": 2},
        {"op": "replace", "path": "/spec/replicas", "value": 5},
        {"op": "add", "path": "/metadata/labels", "value": {}},
        {"op": "add", "path": "/metadata/labels/example.com~1team", "value": "a"},
        {"op": "add", "path": "/spec/template/spec/containers/-", "value": {"name": "two", "image": "two:1"}},
        {"op": "remove", "path": "/spec/template/spec/containers/0/env/0"},
    ]

    _, after = call("PATCH", web(ns), good, JSON)

    assert after["spec"]["replicas"] == 5
    assert after["metadata"]["labels"] == {"example.com/team": "a"}
    containers = after["spec"]["template"]["spec"]["containers"]
    assert [each["name"] for each in containers] == ["web", "two"]
    assert containers[0]["env"] == [{"name": "B", "value": "2"}]

    stale = [
        {"op": "remove", "path": "/metadata/labels"},
        {"op": "test", "path": "/spec/replicas", "value": 2},
    ]
    code, _ = call("PATCH", web(ns), stale, JSON)
    assert code == 422
    assert apps.read_namespaced_deployment("web", ns).metadata.labels == {"example.com/team": "a"}


def test_a_json_patch_treats_an_absent_field_as_null(apps: Any, call: Call, ns: str) -> None:
    apps.create_namespaced_deployment(ns, deployment())
    absent = {"op": "test", "path": "/metadata/annotations", "value": None}
    set_once = [absent, {"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}]

    assert call("PATCH", web(ns), set_once, JSON)[0] == 200
    assert call("PATCH", web(ns), set_once, JSON)[0] == 422
    nowhere = {"op": "test", "path": "/metadata/nothing/here", "value": None}
    assert call("PATCH", web(ns), [nowhere], JSON)[0] == 422


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ("/spec/replicas", 2, 200),
        ("/spec/replicas", True, 422),
        ("/spec/replicas", 2.0, 422),
        ("/spec/replicas", "2", 422),
        ("/spec/template/spec/containers/00/name", "web", 200),
        ("/spec/template/spec/containers/-1/name", "web", 200),
    ],
)
def test_a_json_patch_tests_a_value_as_it_is_written(
    apps: Any, call: Call, ns: str, path: str, value: object, code: int
) -> None:
    apps.create_namespaced_deployment(ns, deployment())
    assert call("PATCH", web(ns), [{"op": "test", "path": path, "value": value}], JSON)[0] == code


def test_a_json_patch_counts_negative_indices_from_the_end(apps: Any, call: Call, ns: str) -> None:
    apps.create_namespaced_deployment(ns, deployment())
    env = "/spec/template/spec/containers/0/env"
    changes = [
        {"op": "remove", "path": f"{env}/-2"},
        {"op": "add", "path": f"{env}/-1", "value": {"name": "C", "value": "3"}},
    ]
    _, after = call("PATCH", web(ns), changes, JSON)
    (web_container,) = after["spec"]["template"]["spec"]["containers"]
    assert [each["name"] for each in web_container["env"]] == ["B", "C"]
    assert call("PATCH", web(ns), [{"op": "remove", "path": f"{env}/-3"}], JSON)[0] == 422


def test_an_unknown_patch_type_is_415(apps: Any, call: Call, ns: str) -> None:
    apps.create_namespaced_deployment(ns, deployment())

    code, _ = call("PATCH", web(ns), {}, "application/json")

    assert code == 415


# Server-side apply

APPLY = "application/apply-patch+yaml"


def test_apply_creates_an_object_and_owns_the_applied_fields(call: Call, ns: str) -> None:
    _, created = call("PATCH", web(ns), deployment(), APPLY, fieldManager="alice")

    owners = {each["manager"]: each for each in created["metadata"]["managedFields"]}
    assert owners["alice"]["operation"] == "Apply"
    fields = owners["alice"]["fieldsV1"]["f:spec"]
    assert fields["f:replicas"] == {}
    container = fields["f:template"]["f:spec"]["f:containers"]['k:{"name":"web"}']
    assert container["."] == {}
    assert container["f:image"] == {}
    assert "f:imagePullPolicy" not in container


def test_applying_the_same_configuration_again_changes_nothing(call: Call, ns: str) -> None:
    _, first = call("PATCH", web(ns), deployment(), APPLY, fieldManager="alice")

    _, second = call("PATCH", web(ns), deployment(), APPLY, fieldManager="alice")

    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_fields_that_are_no_longer_applied_are_removed(call: Call, ns: str) -> None:
    call("PATCH", web(ns), deployment(minReadySeconds=5), APPLY, fieldManager="alice")
    config = deployment()
    config["spec"]["template"]["spec"]["containers"][0]["env"].pop()

    _, after = call("PATCH", web(ns), config, APPLY, fieldManager="alice")

    assert "minReadySeconds" not in after["spec"]
    assert after["spec"]["template"]["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]


def test_conflicting_managers_get_an_error_unless_they_force(call: Call, ns: str) -> None:
    call("PATCH", web(ns), deployment(), APPLY, fieldManager="alice")

    code, status = call("PATCH", web(ns), deployment(replicas=9), APPLY, fieldManager="bob")
    assert code == 409
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "alice": .spec.replicas'
    assert status["details"]["causes"][0]["field"] == ".spec.replicas"

    _, forced = call("PATCH", web(ns), deployment(replicas=9), APPLY, fieldManager="bob", force="true")
    assert forced["spec"]["replicas"] == 9
    mine = next(each for each in forced["metadata"]["managedFields"] if each["manager"] == "alice")
    assert "f:replicas" not in mine["fieldsV1"]["f:spec"]


def test_an_ordinary_update_takes_ownership_of_the_fields_it_changes(apps: Any, call: Call, ns: str) -> None:
    call("PATCH", web(ns), deployment(), APPLY, fieldManager="alice")
    apps.patch_namespaced_deployment("web", ns, {"spec": {"replicas": 4}}, field_manager="autoscaler")

    config = deployment()
    del config["spec"]["replicas"]
    _, after = call("PATCH", web(ns), config, APPLY, fieldManager="alice")

    assert after["spec"]["replicas"] == 4
    code, status = call("PATCH", web(ns), deployment(), APPLY, fieldManager="alice")
    assert code == 409
    assert 'conflict with "autoscaler"' in status["message"]


def test_the_first_apply_conflicts_with_fields_that_others_have_set(apps: Any, call: Call, ns: str) -> None:
    apps.create_namespaced_deployment(ns, deployment())

    code, status = call("PATCH", web(ns), deployment(replicas=3), APPLY, fieldManager="alice")

    assert (code, status["reason"]) == (409, "Conflict")
    assert [each["field"] for each in status["details"]["causes"]] == [".spec.replicas"]


def test_apply_without_a_field_manager_is_refused(call: Call, ns: str) -> None:
    code, status = call("PATCH", web(ns), deployment(), APPLY)

    assert code == 422
    assert "fieldManager" in status["message"]
