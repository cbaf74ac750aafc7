"""Merge, strategic merge, JSON patch and server-side apply: what each leaves behind."""

from __future__ import annotations

from typing import Any

from tests.contract.conftest import Call

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


PATH = "/apis/apps/v1/namespaces/default/deployments/web"


def test_a_strategic_merge_merges_containers_by_name_and_env_by_name(apps: Any, call: Call) -> None:
    apps.create_namespaced_deployment("default", deployment())
    sidecar = {"name": "log", "image": "log:1"}
    change = {"name": "web", "env": [{"name": "B", "value": "3"}, {"name": "A", "$patch": "delete"}]}

    _, after = call(
        "PATCH", PATH, {"spec": {"template": {"spec": {"containers": [sidecar, change]}}}}, STRATEGIC
    )

    containers = {each["name"]: each for each in after["spec"]["template"]["spec"]["containers"]}
    assert set(containers) == {"web", "log"}
    assert containers["web"]["image"] == "app:1"
    assert containers["web"]["env"] == [{"name": "B", "value": "3"}]


def test_a_strategic_merge_replaces_lists_without_a_key(core: Any) -> None:
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoSchedule"}]
    core.create_node({"metadata": {"name": "n1"}, "spec": {"taints": taints}})

    after = core.patch_node("n1", {"spec": {"taints": taints[:1]}})

    assert [each.key for each in after.spec.taints] == ["a"]


def test_a_strategic_merge_of_conditions_keeps_the_others(core: Any) -> None:
    core.create_node(
        {"metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    )

    after = core.patch_node_status(
        "n1", {"status": {"conditions": [{"type": "DiskPressure", "status": "False"}]}}
    )

    assert {each.type: each.status for each in after.status.conditions} == {
        "Ready": "True",
        "DiskPressure": "False",
    }


def test_the_order_and_the_retained_keys_that_kubectl_asks_for(apps: Any, call: Call) -> None:
    apps.create_namespaced_deployment("default", deployment())
    spec = {
        "$setElementOrder/containers": [{"name": "first"}, {"name": "web"}],
        "containers": [{"name": "first", "image": "first:1"}],
    }
    change = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}, "template": {"spec": spec}}}

    _, after = call("PATCH", PATH, change, STRATEGIC)

    assert [each["name"] for each in after["spec"]["template"]["spec"]["containers"]] == ["first", "web"]
    assert after["spec"]["strategy"] == {"type": "Recreate"}


def test_a_merge_patch_replaces_lists_and_drops_nulls(apps: Any, call: Call) -> None:
    apps.create_namespaced_deployment(
        "default", {**deployment(), "metadata": {"name": "web", "labels": {"a": "1", "b": "2"}}}
    )

    _, after = call("PATCH", PATH, {"metadata": {"labels": {"a": None, "c": "3"}}}, MERGE)

    assert after["metadata"]["labels"] == {"b": "2", "c": "3"}


def test_a_json_patch_does_its_operations_in_order_or_none(apps: Any, call: Call) -> None:
    apps.create_namespaced_deployment("default", deployment())
    good = [
        {"op": "test", "path": "/spec/replicas", "value": 2},
        {"op": "replace", "path": "/spec/replicas", "value": 5},
        {"op": "add", "path": "/metadata/labels", "value": {}},
        {"op": "add", "path": "/metadata/labels/example.com~1team", "value": "a"},
        {"op": "add", "path": "/spec/template/spec/containers/-", "value": {"name": "two", "image": "two:1"}},
        {"op": "remove", "path": "/spec/template/spec/containers/0/env/0"},
    ]

    _, after = call("PATCH", PATH, good, JSON)

    assert after["spec"]["replicas"] == 5
    assert after["metadata"]["labels"] == {"example.com/team": "a"}
    containers = after["spec"]["template"]["spec"]["containers"]
    assert [each["name"] for each in containers] == ["web", "two"]
    assert containers[0]["env"] == [{"name": "B", "value": "2"}]

    stale = [
        {"op": "remove", "path": "/metadata/labels"},
        {"op": "test", "path": "/spec/replicas", "value": 2},
    ]
    code, _ = call("PATCH", PATH, stale, JSON)
    assert code == 422
    assert apps.read_namespaced_deployment("web", "default").metadata.labels == {"example.com/team": "a"}


def test_a_patch_type_that_is_unknown_is_415(apps: Any, call: Call) -> None:
    apps.create_namespaced_deployment("default", deployment())

    code, _ = call("PATCH", PATH, {}, "application/json")

    assert code == 415


# Server-side apply

APPLY = "application/apply-patch+yaml"


def test_apply_creates_and_then_owns_what_it_said(call: Call) -> None:
    _, created = call("PATCH", PATH, deployment(), APPLY, fieldManager="alice")

    owners = {each["manager"]: each for each in created["metadata"]["managedFields"]}
    assert owners["alice"]["operation"] == "Apply"
    fields = owners["alice"]["fieldsV1"]["f:spec"]
    assert fields["f:replicas"] == {}
    container = fields["f:template"]["f:spec"]["f:containers"]['k:{"name":"web"}']
    assert container["."] == {}
    assert container["f:image"] == {}
    assert "f:imagePullPolicy" not in container


def test_applying_the_same_again_changes_nothing(call: Call) -> None:
    _, first = call("PATCH", PATH, deployment(), APPLY, fieldManager="alice")

    _, second = call("PATCH", PATH, deployment(), APPLY, fieldManager="alice")

    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_what_is_no_longer_applied_goes_away(call: Call) -> None:
    call("PATCH", PATH, deployment(minReadySeconds=5), APPLY, fieldManager="alice")
    config = deployment()
    config["spec"]["template"]["spec"]["containers"][0]["env"].pop()

    _, after = call("PATCH", PATH, config, APPLY, fieldManager="alice")

    assert "minReadySeconds" not in after["spec"]
    assert after["spec"]["template"]["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]


def test_two_managers_that_disagree_are_told_and_force_decides(call: Call) -> None:
    call("PATCH", PATH, deployment(), APPLY, fieldManager="alice")

    code, status = call("PATCH", PATH, deployment(replicas=9), APPLY, fieldManager="bob")
    assert code == 409
    assert (
        status["message"]
        == 'Apply failed with 1 conflict: conflict with "alice" using apps/v1: .spec.replicas'
    )
    assert status["details"]["causes"][0]["field"] == ".spec.replicas"

    _, forced = call("PATCH", PATH, deployment(replicas=9), APPLY, fieldManager="bob", force="true")
    assert forced["spec"]["replicas"] == 9
    mine = next(each for each in forced["metadata"]["managedFields"] if each["manager"] == "alice")
    assert "f:replicas" not in mine["fieldsV1"]["f:spec"]


def test_an_ordinary_update_takes_the_ownership_of_what_it_changes(apps: Any, call: Call) -> None:
    call("PATCH", PATH, deployment(), APPLY, fieldManager="alice")
    apps.patch_namespaced_deployment("web", "default", {"spec": {"replicas": 4}}, field_manager="autoscaler")

    config = deployment()
    del config["spec"]["replicas"]
    _, after = call("PATCH", PATH, config, APPLY, fieldManager="alice")

    assert after["spec"]["replicas"] == 4
    code, status = call("PATCH", PATH, deployment(), APPLY, fieldManager="alice")
    assert code == 409
    assert 'conflict with "autoscaler"' in status["message"]


def test_what_was_there_before_the_first_apply_is_not_taken_in_silence(apps: Any, call: Call) -> None:
    apps.create_namespaced_deployment("default", deployment())

    code, status = call("PATCH", PATH, deployment(replicas=3), APPLY, fieldManager="alice")

    assert code == 409
    assert 'conflict with "before-first-apply"' in status["message"]


def test_apply_without_a_manager_is_refused(call: Call) -> None:
    code, status = call("PATCH", PATH, deployment(), APPLY)

    assert code == 422
    assert "fieldManager" in status["message"]
