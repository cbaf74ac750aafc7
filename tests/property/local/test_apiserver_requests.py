"""The API server answers any request, and refuses bad ones with a Status."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nodesmith_formats.kubernetes.selectors import label_matcher
from nodesmith_local.apiserver import Store
from nodesmith_local.apiserver.requests.api import Api
from nodesmith_local.apiserver.requests.messages import Reply, Request
from nodesmith_local.apiserver.storage.patches import json_patch, merge_patch
from tests.samples import sampled

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PATCHES = st.sampled_from(["merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"])
WORDS = st.sampled_from(
    ["", *"api apis v1 apps namespaces default pods x status scale eviction nodes openapi v3 version".split()]
)
POD_SPEC = {
    "containers": [
        {
            "name": "c",
            "image": "i:1",
            "ports": [{"containerPort": 80, "hostPort": 80}],
            "env": [{"name": "A", "value": "1"}],
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}},
        }
    ],
    "initContainers": [{"name": "i", "image": "i:1", "restartPolicy": "Always"}],
    "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "nodeSelector": {"a": "b"},
    "priorityClassName": "system-node-critical",
    "hostNetwork": True,
}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": POD_SPEC}
SELECTOR = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
SCHEMA = {
    "type": "object",
    "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer", "default": 1}}}},
}
OBJECTS: dict[str, dict[str, Any]] = {
    "/api/v1/namespaces/default/pods": {"spec": POD_SPEC},
    "/api/v1/nodes": {
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "1"}},
    },
    "/api/v1/namespaces/default/secrets": {"stringData": {"a": "b"}},
    "/apis/apps/v1/namespaces/default/deployments": {
        "spec": {
            "replicas": 1,
            "selector": SELECTOR,
            "template": TEMPLATE,
            "strategy": {"rollingUpdate": {"maxSurge": "25%"}},
        }
    },
    "/apis/batch/v1/namespaces/default/jobs": {
        "spec": {"template": {"spec": {**POD_SPEC, "restartPolicy": "Never"}}}
    },
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets": {
        "spec": {"minAvailable": "50%", "selector": SELECTOR}
    },
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}
            ],
        },
    },
}


def paths_into(value: Any) -> list[tuple[Any, ...]]:
    """Return the path of every part of `value`."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(), *((key, *rest) for key, item in inner for rest in paths_into(item))]


def with_part(value: Any, path: tuple[Any, ...], part: Any) -> Any:
    """Return `value` with `part` at `path`."""
    if not path:
        return part
    changed = with_part(value[path[0]], path[1:], part)
    if isinstance(value, list):
        return [changed if at == path[0] else item for at, item in enumerate(value)]
    return {**value, path[0]: changed}


@st.composite
def spoiled(draw: st.DrawFn) -> tuple[str, Any]:
    """Draw an object with one part replaced by something that may not belong there."""
    path = draw(st.sampled_from(sorted(OBJECTS)))
    whole = {"metadata": {"name": "x", "labels": {"a": "b"}}, **OBJECTS[path]}
    return path, with_part(whole, draw(st.sampled_from(paths_into(whole))), draw(JUNK))


def answer(
    api: Api, method: str, path: str, body: Any, content_type: str = "application/json"
) -> tuple[int, Any]:
    """Send one request and read the reply."""
    query = {"fieldManager": "test"}
    reply = api.answer(
        Request(method, path, query, content_type=content_type, body=json.dumps(body).encode())
    )
    assert isinstance(reply, Reply)
    is_json = reply.content_type == "application/json"
    return reply.code, json.loads(reply.body) if is_json else reply.body.decode()


def is_sound(code: int, body: Any) -> bool:
    """Return whether a reply is a success, or a refusal with an explanation."""
    if code < 300:
        return True
    if isinstance(body, str):
        return (code, body) == (404, "404 page not found\n")
    # Apply reports its own errors as 500, as a real server does.
    expected = code < 500 or "reason" not in body
    return expected and body["kind"] == "Status" and body["code"] == code and bool(body["message"])


@given(spoiled())
@settings(max_examples=sampled(100, whole=400))
def test_a_spoiled_object_is_created_or_refused_with_a_reason(case: tuple[str, Any]) -> None:
    path, obj = case
    api = Api(Store(lambda: NOW))

    assert is_sound(*answer(api, "POST", path, obj))
    assert answer(api, "GET", path, None)[0] == 200


@given(st.sampled_from(sorted(OBJECTS)), spoiled(), PATCHES)
@settings(max_examples=sampled(60, whole=300))
def test_a_spoiled_patch_is_applied_or_refused_and_the_object_can_still_be_read(
    path: str, case: tuple[str, Any], kind: str
) -> None:
    api = Api(Store(lambda: NOW))
    name = OBJECTS[path].get("metadata", {}).get("name", "x")
    assert answer(api, "POST", path, {"metadata": {"name": name}, **OBJECTS[path]})[0] == 201

    assert is_sound(*answer(api, "PATCH", f"{path}/{name}", case[1], f"application/{kind}"))
    assert is_sound(*answer(api, "PATCH", f"{path}/{name}/status", case[1], f"application/{kind}"))
    assert answer(api, "GET", f"{path}/{name}", None)[0] == 200


@given(st.lists(WORDS, max_size=7), st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]), JUNK)
@settings(max_examples=sampled(100, whole=400))
def test_every_path_and_method_is_answered(words: list[str], method: str, body: Any) -> None:
    api = Api(Store(lambda: NOW))

    code, found = answer(api, method, "/" + "/".join(words), body)

    assert is_sound(code, found)


@given(JUNK, JUNK)
def test_a_merge_patch_is_idempotent(value: Any, patch: Any) -> None:
    once = merge_patch(value, patch)

    assert merge_patch(once, patch) == once


@given(JUNK, JUNK)
def test_a_json_patch_never_modifies_its_input(value: Any, new: Any) -> None:
    before = json.dumps(value)

    assert json_patch(value, [{"op": "replace", "path": "", "value": new}]) == new
    assert json.dumps(value) == before


@given(
    st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy")),
    st.sampled_from("abc"),
    st.sampled_from("xy"),
)
def test_a_selector_and_its_opposite_divide_all_objects(labels: dict[str, str], key: str, value: str) -> None:
    obj = {"metadata": {"labels": labels}}

    pairs = [
        (f"{key}={value}", f"{key}!={value}"),
        (f"{key} in ({value})", f"{key} notin ({value})"),
        (key, f"!{key}"),
    ]
    for one, other in pairs:
        first, second = label_matcher(one), label_matcher(other)
        assert first is not None
        assert second is not None
        assert first(obj) != second(obj)
