"""Refused requests: the messages that users read, and the codes and reasons that programs depend on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.servers import Call
from tests.patience import eventually

JSON, MERGE = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
NO_MAP = "json: cannot unmarshal array into Go value of type map[string]interface {}"


@pytest.fixture
def one(call: Call, ns: str) -> str:
    """A ConfigMap."""
    maps = f"/api/v1/namespaces/{ns}/configmaps"
    assert call("POST", maps, {"metadata": {"name": "one"}, "data": {"a": "1"}})[0] == 201
    return f"{maps}/one"


@pytest.mark.parametrize(
    ("kind", "patch", "code", "reason", "words"),
    [
        (MERGE, [], 400, "BadRequest", f"error decoding patch: {NO_MAP}"),
        (STRATEGIC, [], 400, "BadRequest", NO_MAP),
        (JSON, {}, 400, "BadRequest", "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
        (JSON, [{"op": "turn", "path": "/data"}], 422, "Invalid", "due to an error in our request"),
        (JSON, [{"op": "remove", "path": "/data/z"}], 422, "Invalid", "due to an error in our request"),
        (STRATEGIC, {"daat": 1}, 422, "Invalid", 'patch: Invalid value: "map[daat:1]": strict decoding error: unknown'),
        (MERGE, {"daat": 1}, 422, "Invalid", 'strict decoding error: unknown field "daat"'),
        (MERGE, {"metadata": {"uid": "1"}}, 422, "Invalid", 'metadata.uid: Invalid value: "1": field is immutable'),
        (MERGE, {"metadata": {"resourceVersion": "1"}}, 409, "Conflict", "the object has been modified; please apply"),
        (MERGE, {"metadata": {"name": "two"}}, 400, "BadRequest", "the name of the object (two) does not match"),
    ],
)  # fmt: skip
def test_an_invalid_patch_is_refused(
    call: Call, one: str, kind: str, patch: Any, code: int, reason: str, words: str
) -> None:
    found, status = call("PATCH", one, patch, kind, fieldValidation="Strict")

    assert (found, status["reason"]) == (code, reason)
    assert words in status["message"]
    assert call("GET", one)[1]["data"] == {"a": "1"}


@pytest.mark.parametrize(
    ("config", "code", "words"),
    [
        ({"daat": {}}, 500, "failed to create typed patch object ("),
        ({"daat": {}}, 500, "; /v1, Kind=ConfigMap): .daat: field not declared in schema"),
        ({"kind": ""}, 400, "invalid object type: /"),
        ({"metadata": {"name": "one", "managedFields": [{}]}}, 400, "metadata.managedFields must be nil"),
        ({"metadata": {"name": "one", "resourceVersion": "1"}}, 409, "the object has been modified"),
    ],
)
def test_an_invalid_apply_is_refused(
    call: Call, one: str, config: dict[str, Any], code: int, words: str
) -> None:
    whole = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, **config}

    found, status = call("PATCH", one, whole, APPLY, fieldManager="alice")

    assert found == code
    assert words in status["message"]


def test_apply_conflicts_are_listed_by_manager(call: Call, one: str) -> None:
    def config(**data: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": data}

    call("PATCH", one, config(x="1", y="1"), APPLY, fieldManager="alice")
    call("PATCH", one, {"data": {"x": "2"}}, MERGE, fieldManager="carl")

    _, status = call("PATCH", one, config(x="3", y="3"), APPLY, fieldManager="bob")

    assert status["message"] == (
        'Apply failed with 2 conflicts: conflicts with "alice":\n- .data.y\nconflicts with "carl" using v1:\n- .data.x'
    )
    assert {(each["field"], each["message"]) for each in status["details"]["causes"]} == {
        (".data.x", 'conflict with "carl" using v1'),
        (".data.y", 'conflict with "alice"'),
    }


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (
            {"preconditions": {"uid": "u"}},
            409,
            'on ConfigMap "one": the UID in the precondition (u) does not match',
        ),
        ({"preconditions": {"resourceVersion": "1"}}, 409, "The object might have been modified"),
        ({"propagationPolicy": "Down"}, 422, 'supported values: "Foreground", "Background", "Orphan", "nil"'),
    ],
)
def test_an_invalid_delete_is_refused(
    call: Call, one: str, options: dict[str, Any], code: int, words: str
) -> None:
    found, status = call("DELETE", one, options)

    assert found == code
    assert words in status["message"]
    assert call("GET", one)[0] == 200


def test_a_delete_returns_a_status_that_names_the_deleted_object(call: Call, one: str) -> None:
    uid = call("GET", one)[1]["metadata"]["uid"]

    code, status = call("DELETE", one)

    success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    assert (code, status) == (200, {**success, "details": {"name": "one", "kind": "configmaps", "uid": uid}})


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"dryRun": "Some"}, 'dryRun: Unsupported value: ["Some"]: supported values: "All"'),
        (
            {"fieldValidation": "Some"},
            'fieldValidation: Unsupported value: "Some": supported values: "", "Ignore"',
        ),
    ],
)
def test_an_invalid_parameter_is_refused(call: Call, ns: str, query: dict[str, str], words: str) -> None:
    maps = f"/api/v1/namespaces/{ns}/configmaps"

    code, status = call("POST", maps, {"metadata": {"name": "two"}}, **query)

    assert (code, status["reason"]) == (422, "Invalid")
    assert words in status["message"]
    assert call("GET", f"{maps}/two")[0] == 404


def test_a_continue_token_and_a_resource_version_exclude_each_other(call: Call, one: str) -> None:
    maps = one.rpartition("/")[0]
    call("POST", maps, {"metadata": {"name": "two"}})
    token = call("GET", maps, limit="1")[1]["metadata"]["continue"]

    code, status = call("GET", maps, limit="1", resourceVersion="5", **{"continue": token})

    assert (code, status["message"]) == (
        400,
        "specifying resource version is not allowed when using continue",
    )


@pytest.fixture
def karpenter(serving: Call) -> Iterator[Call]:
    """A server with nodesmith's CRDs, but without objects of their kinds."""
    yield serving
    for path in (POOLS, CLASSES, CLAIMS):
        serving("DELETE", path)
        eventually(lambda path=path: serving("GET", path)[1]["items"] == [])  # type: ignore[misc]


POOLS, CLAIMS = "/apis/karpenter.sh/v1/nodepools", "/apis/karpenter.sh/v1/nodeclaims"
CLASSES = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"
REF = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
NODE = {"nodeClassRef": REF, "requirements": []}
CLASS = {
    "role": "r",
    "amiSelectorTerms": [{"alias": "al2023@latest"}],
    "subnetSelectorTerms": [{"id": "subnet-0123456789abcdef0"}],
    "securityGroupSelectorTerms": [{"id": "sg-0123456789abcdef0"}],
}
BUDGET = {"nodes": "10%", "schedule": "@daily"}
_SKIPPED = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


def pool(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"template": {"spec": NODE}, **spec}}


@pytest.mark.parametrize(
    ("path", "kind", "spec", "words"),
    [
        (POOLS, "NodePool.karpenter.sh", {"weight": 1000},
         "spec.weight: Invalid value: 1000: spec.weight in body should be less than or equal to 100"),
        (POOLS, "NodePool.karpenter.sh", {"weight": "high"},
         f'[spec.weight: Invalid value: "string": spec.weight in body must be of type integer: "string", {_SKIPPED}]'),
        (POOLS, "NodePool.karpenter.sh", {"disruption": {"consolidateAfter": "0s", "budgets": [BUDGET]}},
         "spec.disruption.budgets[0].schedule: Invalid value: schedule and duration go together: set both or neither"),
        (POOLS, "NodePool.karpenter.sh", {"template": {"spec": {"requirements": []}}},
         f"[spec.template.spec.nodeClassRef: Required value, {_SKIPPED}]"),
        (CLASSES, "EC2NodeClass.karpenter.k8s.aws", {**CLASS, "instanceProfile": "i"},
         "spec.role: Invalid value: exactly one of role and instanceProfile is needed"),
        (CLASSES, "EC2NodeClass.karpenter.k8s.aws", {**CLASS, "amiFamily": "Bottlerocket"},
         "spec.amiFamily: Invalid value: amiFamily must be the alias's own family, or Custom"),
        (CLASSES, "EC2NodeClass.karpenter.k8s.aws", {**CLASS, "tags": {"kubernetes.io/cluster/c": "owned"}},
         "spec.tags: Invalid value: this tag is set automatically, leave it out"),
    ],
)  # fmt: skip
def test_invalid_objects_of_our_kinds_are_refused_with_the_same_messages(
    karpenter: Call, path: str, kind: str, spec: dict[str, Any], words: str
) -> None:
    given = pool(**spec) if path == POOLS else {"metadata": {"name": "p"}, "spec": spec}
    group, version = path.split("/")[2:4]

    code, status = karpenter(
        "POST", path, {"apiVersion": f"{group}/{version}", "kind": kind.split(".")[0], **given}
    )

    assert (code, status["reason"]) == (422, "Invalid")
    assert status["message"] == f'{kind} "p" is invalid: {words}'


def test_changes_to_immutable_fields_are_refused(karpenter: Call) -> None:
    head = {"apiVersion": "karpenter.sh/v1"}
    assert karpenter("POST", POOLS, {**head, "kind": "NodePool", **pool()})[0] == 201
    claim = {**head, "kind": "NodeClaim", "metadata": {"name": "c"}, "spec": NODE}
    assert karpenter("POST", CLAIMS, claim)[0] == 201

    group = {"spec": {"template": {"spec": {"nodeClassRef": {"group": "other.example.com"}}}}}
    _, status = karpenter("PATCH", f"{POOLS}/p", group, MERGE)
    where = "spec.template.spec.nodeClassRef"
    assert status["message"].endswith(f"{where}: Invalid value: group cannot be changed on a NodePool")
    _, status = karpenter("PATCH", f"{CLAIMS}/c", {"spec": {"expireAfter": "1h"}}, MERGE)
    assert status["message"].endswith("spec: Invalid value: a NodeClaim cannot be changed; create a new one")


def test_our_kinds_get_the_same_defaults(karpenter: Call) -> None:
    _, made = karpenter("POST", POOLS, {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", **pool()})

    assert made["spec"] == {
        "disruption": {
            "budgets": [{"nodes": "10%"}],
            "consolidateAfter": "0s",
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
        },
        "template": {"spec": {**NODE, "expireAfter": "720h"}},
    }
