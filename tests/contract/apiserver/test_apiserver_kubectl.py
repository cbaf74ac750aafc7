"""kubectl's requests, as recorded from kubectl 1.29 to 1.33, and the responses that it needs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.servers import IN_MEMORY, Call, Server
from tests.patience import patient_seconds

TABLE = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,"
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)
DISCOVERY = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)
PROTOBUF = "application/vnd.kubernetes.protobuf"
STRATEGIC = "application/strategic-merge-patch+json"


def message(*fields: tuple[int, int | str | bytes]) -> bytes:
    """Return a protobuf message. All lengths and numbers here are below 128, so they take one byte each."""
    body = b""
    for number, value in fields:
        if isinstance(value, int):
            body += bytes([number << 3, value])
        else:
            raw = value.encode() if isinstance(value, str) else value
            body += bytes([number << 3 | 2, len(raw)]) + raw
    return body


def protobuf_deployment() -> bytes:
    """Return the body that `kubectl create deployment x --image=img:10 --replicas=3` sends, by field numbers."""
    labels = message((1, "app"), (2, "x"))
    container = message((1, "c"), (2, "img:10"), (5, ""), (8, b""), (13, ""))
    pod = message((1, message((1, ""), (11, labels))), (2, message((2, container), (3, ""))))
    spec = message((1, 3), (2, message((1, labels))), (3, pod), (4, message((1, ""))), (5, 0))
    metadata = message((1, "x"), (2, ""), (3, ""), (7, 0), (8, b""))
    deployment = message((1, metadata), (2, spec), (3, message((1, 0), (2, 0))))
    kind = message((1, "apps/v1"), (2, "Deployment"))
    raw = b"\x12" + bytes([len(deployment) & 0x7F | 0x80, len(deployment) >> 7]) + deployment
    return b"k8s\x00" + message((1, kind)) + raw + message((3, ""), (4, ""))


def template(image: str = "app:1") -> dict[str, Any]:
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": image}]}}


def deployment(replicas: int = 2) -> dict[str, Any]:
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template()}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def columns(table: Any, *, wide: bool = False) -> list[str]:
    return [each["name"] for each in table["columnDefinitions"] if wide or each["priority"] == 0]


def test_aggregated_discovery_names_every_kind_with_verbs_and_subresources(call: Call) -> None:
    code, core = call("GET", "/api", accept=DISCOVERY, timeout="32s")
    _, groups = call("GET", "/apis", accept=DISCOVERY, timeout="32s")

    assert (code, core["kind"], core["apiVersion"]) == (
        200,
        "APIGroupDiscoveryList",
        "apidiscovery.k8s.io/v2",
    )
    pods = next(each for each in core["items"][0]["versions"][0]["resources"] if each["resource"] == "pods")
    assert pods["scope"] == "Namespaced"
    assert pods["shortNames"] == ["po"]
    subresources = {each["subresource"]: each["responseKind"]["kind"] for each in pods["subresources"]}
    assert subresources["eviction"] == "Eviction"
    assert subresources["binding"] == "Binding"
    assert {each["metadata"]["name"] for each in groups["items"]} >= {
        "apps", "batch", "policy", "storage.k8s.io", "apiextensions.k8s.io", "authorization.k8s.io",
    }  # fmt: skip


def test_older_clients_get_the_same_from_unaggregated_discovery(call: Call) -> None:
    _, versions = call("GET", "/api")
    _, groups = call("GET", "/apis")
    _, apps = call("GET", "/apis/apps/v1")
    _, core = call("GET", "/api/v1")

    assert versions["versions"] == ["v1"]
    assert "apps" in {each["name"] for each in groups["groups"]}
    scale = next(each for each in apps["resources"] if each["name"] == "deployments/scale")
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")
    eviction = next(each for each in core["resources"] if each["name"] == "pods/eviction")
    assert (eviction["group"], eviction["version"]) == ("policy", "v1")


def test_nodes_are_returned_as_the_table_that_get_prints(call: Call, node_name: str) -> None:
    node = {
        "metadata": {"name": node_name, "labels": {"node-role.kubernetes.io/worker": ""}},
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.36.1"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}],
        },
    }
    call("POST", "/api/v1/nodes", node)

    mine = f"metadata.name={node_name}"
    _, table = call("GET", "/api/v1/nodes", accept=TABLE, limit="500", fieldSelector=mine)

    assert columns(table) == ["Name", "Status", "Roles", "Age", "Version"]
    wide = ["Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"]
    assert columns(table, wide=True)[5:] == wide
    row = table["rows"][0]
    assert row["cells"][:3] == [node_name, "Ready,SchedulingDisabled", "worker"]
    assert row["cells"][4:6] == ["v1.36.1", "10.0.0.9"]
    assert row["object"]["kind"] == "PartialObjectMetadata"


def test_the_pod_table_shows_ready_containers_and_the_node(call: Call, ns: str, node_name: str) -> None:
    pod = {"metadata": {"name": "web"}, "spec": {**template()["spec"], "nodeName": node_name}}
    call("POST", f"/api/v1/namespaces/{ns}/pods", pod)
    running = {"running": {"startedAt": "2026-11-21T07:00:00Z"}}
    containers = [
        {"name": "web", "image": "app:1", "imageID": "", "ready": True, "restartCount": 2, "state": running}
    ]
    status = {"phase": "Running", "podIP": "10.0.0.7", "containerStatuses": containers}
    call("PATCH", f"/api/v1/namespaces/{ns}/pods/web/status", {"status": status}, STRATEGIC)

    _, table = call("GET", f"/api/v1/namespaces/{ns}/pods", accept=TABLE)

    assert columns(table) == ["Name", "Ready", "Status", "Restarts", "Age"]
    cells = table["rows"][0]["cells"]
    assert cells[:4] == ["web", "1/1", "Running", "2"]
    assert cells[5:] == ["10.0.0.7", node_name, "<none>", "<none>"]


def test_the_deployment_table_shows_the_ready_count(call: Call, ns: str) -> None:
    call("POST", f"/apis/apps/v1/namespaces/{ns}/deployments", deployment())

    _, table = call("GET", f"/apis/apps/v1/namespaces/{ns}/deployments", accept=TABLE)

    assert columns(table) == ["Name", "Ready", "Up-to-date", "Available", "Age"]
    assert table["rows"][0]["cells"][:4] == ["web", "0/2", 0, 0]
    assert table["rows"][0]["cells"][5:] == ["web", "app:1", "app=web"]


def test_get_watch_sends_a_table_for_each_change_and_the_columns_once(server: Server, ns: str) -> None:
    deployments = f"/apis/apps/v1/namespaces/{ns}/deployments"
    _, before = server.call("GET", deployments)
    server.call("POST", deployments, deployment())
    server.call("PATCH", f"{deployments}/web", {"spec": {"replicas": 5}}, STRATEGIC)
    _, listed = server.call("GET", deployments, accept=TABLE)

    # The watch of `get -w`, but without a start version, so that two changes arrive.
    since = before["metadata"]["resourceVersion"]
    path = f"{deployments}?watch=true&timeoutSeconds={patient_seconds(1)}&resourceVersion={since}"
    events = list(server.events(path, Accept=TABLE))

    assert [each["type"] for each in events] == ["ADDED", "MODIFIED"]
    heads = len(listed["columnDefinitions"])
    assert [len(each["object"]["columnDefinitions"] or ()) for each in events] == [heads, 0]
    assert [each["object"]["rows"][0]["cells"][1] for each in events] == ["0/2", "0/5"]


def test_openapi_tells_kubectl_that_the_server_checks_fields(call: Call) -> None:
    _, index = call("GET", "/openapi/v3", timeout="32s")
    address = index["paths"]["apis/apps/v1"]["serverRelativeURL"]
    _, document = call("GET", address)

    patch = document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {
        "group": "apps",
        "version": "v1",
        "kind": "Deployment",
    }
    assert "fieldValidation" in {each["name"] for each in patch["parameters"]}
    containers = inside(document["components"]["schemas"], "spec", "template", "spec", "containers")
    assert containers["x-kubernetes-patch-merge-key"] == "name"


def inside(schemas: dict[str, Any], *path: str) -> Any:
    """Resolve a path of a Deployment's fields, following references between schemas."""
    kinds = {name: each.get("x-kubernetes-group-version-kind", [{}]) for name, each in schemas.items()}
    found = next(schemas[name] for name, of in kinds.items() if of[0].get("kind") == "Deployment")
    for name in path:
        found = found["properties"][name]
        for reference in found.get("allOf", []):
            found = schemas[reference["$ref"].rpartition("/")[2]]
    return found


@pytest.mark.in_memory_only(
    "kubectl falls back to version 3, so this server has no second description of everything"
)
def test_openapi_version_2_is_not_served(call: Call) -> None:
    assert call("GET", "/openapi/v2", timeout="32s")[0] == 404


def test_a_misspelt_field_is_refused_when_kubectl_asks_for_strictness(call: Call, ns: str) -> None:
    given = deployment()
    given["spec"]["replica"] = 3

    code, status = call(
        "POST",
        f"/apis/apps/v1/namespaces/{ns}/deployments",
        given,
        fieldManager="kubectl-client-side-apply",
        fieldValidation="Strict",
    )

    assert code == 400
    assert status["message"].endswith('strict decoding error: unknown field "spec.replica"')


def test_an_invalid_quantity_is_refused(call: Call, server: Server, ns: str) -> None:
    given = deployment()
    given["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"memory": "1gb"}}

    code, status = call("POST", f"/apis/apps/v1/namespaces/{ns}/deployments", given)

    assert (code, status["reason"]) == (400, "BadRequest")
    assert status["message"].startswith(
        'Deployment in version "v1" cannot be handled as a Deployment: quantities must match the regular expression '
        "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )
    if server.kind == IN_MEMORY:  # a real server omits the position
        where = "spec.template.spec.containers[0].resources.requests.memory"
        assert f"({where}: '1gb' is not a quantity, did you mean '1G'?)" in status["message"]


def test_a_value_of_the_wrong_type_is_refused_with_its_field(call: Call, ns: str) -> None:
    given = deployment()
    given["spec"]["replicas"] = "three"

    code, status = call("POST", f"/apis/apps/v1/namespaces/{ns}/deployments", given)

    assert code == 400
    assert "json: cannot unmarshal string into" in status["message"]
    assert "spec.replicas of type int" in status["message"]


def test_all_problems_of_an_object_are_reported_at_once(call: Call, ns: str) -> None:
    pod = {
        "metadata": {"name": "Bad_Name", "labels": {"a b": "c"}},
        "spec": {"containers": [{"name": "c"}], "restartPolicy": "Sometimes"},
    }

    code, status = call("POST", f"/api/v1/namespaces/{ns}/pods", pod)

    assert (code, status["reason"]) == (422, "Invalid")
    fields = {each["field"]: each["reason"] for each in status["details"]["causes"]}
    assert fields == {
        "metadata.name": "FieldValueInvalid",
        "metadata.labels": "FieldValueInvalid",
        "spec.containers[0].image": "FieldValueRequired",
        "spec.restartPolicy": "FieldValueNotSupported",
    }


def test_scale_uses_the_scale_subresource(call: Call, ns: str) -> None:
    call("POST", f"/apis/apps/v1/namespaces/{ns}/deployments", deployment())
    path = f"/apis/apps/v1/namespaces/{ns}/deployments/web/scale"

    _, scale = call("PATCH", path, {"spec": {"replicas": 6}}, "application/merge-patch+json")

    assert (scale["kind"], scale["spec"]["replicas"]) == ("Scale", 6)
    assert call("GET", f"/apis/apps/v1/namespaces/{ns}/deployments/web")[1]["spec"]["replicas"] == 6
    assert call("PATCH", path, {"spec": {"replicas": -1}}, "application/merge-patch+json")[0] == 422


def test_cordon_is_a_strategic_patch_of_the_node(call: Call, node_name: str) -> None:
    call("POST", "/api/v1/nodes", {"metadata": {"name": node_name}})

    _, node = call(
        "PATCH",
        f"/api/v1/nodes/{node_name}",
        {"spec": {"unschedulable": True}},
        STRATEGIC,
    )

    assert node["spec"]["unschedulable"] is True


def test_delete_waits_for_a_404(call: Call, ns: str) -> None:
    call("POST", f"/apis/apps/v1/namespaces/{ns}/deployments", deployment())
    path = f"/apis/apps/v1/namespaces/{ns}/deployments/web"

    code, status = call("DELETE", path, {"propagationPolicy": "Background"})

    assert (code, status["status"]) == (200, "Success")
    assert status["details"]["name"] == "web"
    assert call("GET", path)[0] == 404


def test_protobuf_bodies_of_built_in_kinds_are_read(call: Call, ns: str) -> None:
    code, created = call(
        "POST", f"/apis/apps/v1/namespaces/{ns}/deployments", protobuf_deployment(), PROTOBUF
    )

    assert code == 201, created
    assert created["metadata"]["name"] == "x"
    assert created["spec"]["replicas"] == 3
    assert created["spec"]["selector"] == {"matchLabels": {"app": "x"}}
    container = created["spec"]["template"]["spec"]["containers"][0]
    assert (container["name"], container["image"]) == ("c", "img:10")


def test_a_truncated_protobuf_body_is_refused(call: Call, ns: str) -> None:
    code, status = call(
        "POST", f"/apis/apps/v1/namespaces/{ns}/deployments", protobuf_deployment()[:60], PROTOBUF
    )

    assert code == 400
    assert status["message"].startswith("the object provided is unrecognized")


def test_access_reviews_are_answered(call: Call) -> None:
    asked = {"resourceAttributes": {"verb": "list", "resource": "pods"}}
    access = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": asked}
    code, answer = call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", access)
    assert (code, answer["status"]["allowed"]) == (201, True)

    me = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
    _, answer = call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", me)
    assert answer["status"]["userInfo"]["username"]
    assert "system:masters" in answer["status"]["userInfo"]["groups"]


@pytest.mark.in_memory_only("a real server asks the node's kubelet, and there is none on either side")
def test_logs_are_refused_with_the_reason(call: Call, ns: str) -> None:
    call("POST", f"/api/v1/namespaces/{ns}/pods", {"metadata": {"name": "web"}, "spec": template()["spec"]})

    code, status = call("GET", f"/api/v1/namespaces/{ns}/pods/web/log", container="web")

    assert (code, status["reason"]) == (501, "NotImplemented")
    assert "no containers" in status["message"]


def test_unknown_paths_are_404_and_unsupported_methods_405(call: Call, ns: str) -> None:
    assert call("GET", "/apis/nobody.example/v1/things") == (404, "404 page not found\n")
    assert call("GET", "/nowhere") == (404, "404 page not found\n")
    code, status = call("GET", "/apis/apps/v9")
    assert (code, status["message"]) == (404, "the server could not find the requested resource")
    assert call("POST", "/api/v1/pods", {"metadata": {"name": "x"}})[0] == 405
    assert call("GET", f"/api/v1/namespaces/{ns}/nodes")[0] == 404
    assert call("PUT", "/api/v1/nodes", {})[0] == 405
    assert call("POST", "/api/v1/nodes", b"{")[0] == 400
