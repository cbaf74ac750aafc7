"""ProvisioningRequests: what is read of them, what is refused, and which pods take their room."""

from __future__ import annotations

from typing import Any

import pytest

from nodesmith.model.kubernetes.provisioningrequests import (
    CLASSES,
    CONSUMED_EARLIER,
    CONSUMES,
    LONGEST_VALID,
    OWN_CLASSES,
    SHARED_CLASSES,
    PodSet,
    class_fault,
    consumed,
    parse_request,
    request_faults,
)
from nodesmith.observation.decoding import decode
from nodesmith.observation.encoding import encode
from nodesmith.observation.mirror import POD_TEMPLATES, PODS, REQUESTS, Mirror, observed
from tests import builders
from tests.scenarios.gangs import ATOMIC, CHECK, request_manifest, template_manifest
from tests.smallworld.world import pod_manifest


def test_a_request_is_read_with_its_pod_sets_and_conditions() -> None:
    manifest = request_manifest("train", 3, 1, parameters={"ValidUntilSeconds": "600"})
    manifest["status"] = {"conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted"}]}
    request = parse_request(manifest)
    assert request.pod_sets == (PodSet("train-0", 3), PodSet("train-1", 1))
    assert (request.key, request.class_name, request.valid_seconds) == ("default/train", ATOMIC, 600)
    assert request.conditions == {"Accepted"}
    assert (request.is_over, request.is_check, request.faults) == (False, False, ())


def test_the_classes_of_both_domains_are_served_unless_another_autoscaler_serves_the_shared_ones() -> None:
    requests = [parse_request(request_manifest(class_name=name)) for name in CLASSES]
    assert [r.class_name for r in requests if r.is_served(shared=True)] == list(CLASSES)
    assert [r.class_name for r in requests if r.is_served(shared=False)] == list(OWN_CLASSES)
    assert [r.class_name for r in requests if r.is_check] == [SHARED_CLASSES[0], OWN_CLASSES[0]]


@pytest.mark.parametrize(
    ("class_name", "parameters", "fails"),
    [
        (ATOMIC, {}, True),
        (ATOMIC, {"ValidUntilSeconds": "300"}, False),
        (CHECK, {}, False),
        (CHECK, {"noRetry": "true"}, True),
        (CHECK, {"noRetry": "no"}, False),
    ],
)
def test_a_request_fails_at_once_unless_it_may_wait(
    class_name: str, parameters: dict[str, str], fails: bool
) -> None:
    request = parse_request(request_manifest(class_name=class_name, parameters=parameters))
    assert request.fails_at_once is fails


def test_a_request_is_retried_for_a_week_at_most() -> None:
    given = parse_request(request_manifest(parameters={"ValidUntilSeconds": "99999999"}))
    assert given.valid_seconds == LONGEST_VALID


def _set(**fields: Any) -> dict[str, Any]:
    return {"podTemplateRef": {"name": "a"}, "count": 1, **fields}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"podSets": [_set()] * 33}, "spec.podSets has 33 items: at most 32"),
        ({"podSets": []}, "spec.podSets is []"),
        ({}, "spec.podSets is null"),
        (
            {"podSets": [_set(count=16_385)]},
            "spec.podSets[0].count is 16385: write a number from 1 to 16,384",
        ),
        ({"podSets": [_set(count=0)]}, "spec.podSets[0].count is 0"),
        ({"podSets": [_set(count=True)]}, "spec.podSets[0].count is true"),
        ({"podSets": [_set(), _set(podTemplateRef={})]}, "spec.podSets[1].podTemplateRef.name is null"),
        ({"podSets": ["x"]}, "spec.podSets[0].podTemplateRef.name is null"),
        (
            {"podSets": [_set()], "parameters": {"ValidUntilSeconds": "soon"}},
            "spec.parameters.ValidUntilSeconds is 'soon': write seconds",
        ),
    ],
)
def test_a_request_that_cannot_be_served_says_which_field_is_wrong(spec: dict[str, Any], said: str) -> None:
    assert any(fault.startswith(said) for fault in request_faults(spec))
    manifest = {**request_manifest(), "spec": {"provisioningClassName": ATOMIC, **spec}}
    assert parse_request(manifest).faults, "it is read, and never acted on"


def test_the_largest_request_has_no_fault() -> None:
    assert list(request_faults({"podSets": [_set(count=16_384)] * 32})) == []


def test_a_misspelt_class_gets_a_suggestion_and_a_class_of_others_the_list_of_ours() -> None:
    assert class_fault("check-capacity.autoscaling.x-k8s.oi").endswith(f"did you mean '{CHECK}'?")
    assert ATOMIC in class_fault("queued-provisioning.gke.io")
    assert class_fault(ATOMIC) == ""


def test_a_snapshot_holds_requests_of_both_versions_and_the_annotation_of_consumption() -> None:
    v1, older = (
        request_manifest("new"),
        request_manifest("old") | {"apiVersion": "autoscaling.x-k8s.io/v1beta1"},
    )
    pod = pod_manifest("w")
    pod["metadata"]["annotations"] = {CONSUMED_EARLIER: "new", "other": "x"}
    mirrors = [Mirror(kind) for kind in (PODS, POD_TEMPLATES, REQUESTS)]
    for mirror, manifest in zip(mirrors, (pod, template_manifest("new-0"), v1), strict=True):
        mirror.put(manifest)
    mirrors[2].put(older)
    read = decode(encode("test", builders.NOW, observed(mirrors)))
    assert {r.name for r in read.requests} == {"new", "old"}
    (seen,) = read.pods
    assert seen.shape.annotations == {CONSUMES: "new"}
    assert consumed(seen.shape.annotations, "default") == "default/new"


def test_a_request_that_no_api_server_accepts_is_left_out_and_told() -> None:
    mirror = Mirror(REQUESTS)
    mirror.put(request_manifest("good"))
    odd = request_manifest("odd")
    odd["metadata"]["creationTimestamp"] = "yesterday"
    mirror.put(odd)
    read = decode(encode("test", builders.NOW, observed([mirror])))
    assert [r.name for r in read.requests] == ["good"]
    assert any("ProvisioningRequest/default/odd" in problem for problem in read.problems)
