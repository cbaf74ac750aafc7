from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from nodesmith_formats.crds import custom_resource_definitions
from nodesmith_formats.manifests.manifests import Document, Fault, Manifests
from nodesmith_local.apiserver import ApiServer
from nodesmith_local.runs.applying import apply_documents
from nodesmith_local.runs.report import Report
from nodesmith_local.runs.running import Outcome, with_defaults


def document(kind: str, api_version: str = "v1", **metadata: Any) -> Document:
    return Document(
        {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a", **metadata}}, "x.yaml"
    )


@pytest.mark.parametrize(
    ("kind", "api_version", "meant"),
    [
        ("Podd", "v1", "Pod of v1"),
        ("NodePool", "karpenter.sh/v2", "NodePool of karpenter.sh/v1"),
        ("Machine", "karpenter.sh/v1alpha5", "NodeClaim of karpenter.sh/v1"),
        ("Deployment", "v1", "Deployment of apps/v1"),
    ],
)
def test_a_kind_that_is_not_served_is_refused_with_the_one_that_was_meant(
    kind: str, api_version: str, meant: str
) -> None:
    with ApiServer(0, custom_resource_definitions(), now=lambda: datetime.now(UTC)) as server:
        (fault,) = apply_documents(server.store, [document(kind, api_version)])

    assert fault.field == "kind"
    assert fault.message == f'no matches for kind "{kind}" in version "{api_version}", did you mean {meant}?'


def test_a_namespace_that_is_missing_is_named_with_the_remedy() -> None:
    with ApiServer(0, (), now=lambda: datetime.now(UTC)) as server:
        (fault,) = apply_documents(server.store, [document("ConfigMap", namespace="nowhere")])

    assert fault.field == "metadata.namespace"
    assert fault.message == 'namespaces "nowhere" not found: add a Namespace with that name'


def test_defaults_stand_in_for_objects_that_are_missing_or_of_an_unserved_version() -> None:
    old = Manifests((document("NodePool", "karpenter.sh/v2"), document("Pod")))
    new = Manifests((document("NodePool", "karpenter.sh/v1"),))
    ages = Manifests((document("Provisioner", "karpenter.sh/v1alpha5"), document("Pod")))

    added = [d.object for d in with_defaults(old).documents]

    assert added == ["EC2NodeClass/default", "NodePool/default", "NodePool/a", "Pod/a"]
    assert [d.object for d in with_defaults(new).documents] == ["EC2NodeClass/default", "NodePool/a"]
    assert [d.object for d in with_defaults(ages).documents] == [
        "EC2NodeClass/default",
        "Provisioner/a",
        "Pod/a",
    ]


def test_a_problem_that_a_fault_reports_is_not_reported_again() -> None:
    problems = (
        "NodePool/a: spec.weight is 0: must be 1 to 100",
        "NodePool/b: spec.limits is []: must be a map",
    )
    fault = Fault("is 0: must be 1 to 100", "x.yaml", object="NodePool/a", field="spec.weight")

    assert Outcome(Report((), (), problems=problems), (), (fault,)).problems() == problems[1:]
    assert Outcome(Report((), (), problems=problems), (), ()).problems() == problems
