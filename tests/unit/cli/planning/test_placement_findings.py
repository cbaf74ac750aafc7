"""What `nodesmith validate` says about nodesmith's annotations on workloads, and about objectives of NodePools."""

from __future__ import annotations

from typing import Any

import pytest

from nodesmith_cli.manifests.validating.placement import placement_findings
from nodesmith_cli.manifests.validating.pools import pool_findings
from nodesmith_formats.manifests.manifests import Document
from tests.builders import inputs, nodepool_manifest, snapshot

SURCHARGE = "nodesmith.dev/node-surcharge-hourly"


def workload(kind: str, own: dict[str, Any], pod: dict[str, Any] | None = None) -> list[str]:
    """Return the findings about a workload with these annotations, and `pod` on its template."""
    manifest = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "web", "annotations": own},
        "spec": {"template": {"metadata": {"annotations": pod or {}}}},
    }
    return [str(finding) for finding in placement_findings(document(manifest))]


def document(manifest: dict[str, Any]) -> Document:
    return Document(manifest, "a.yaml", 1)


def test_a_daemonset_may_have_a_surcharge() -> None:
    assert workload("DaemonSet", {SURCHARGE: "0.05"}) == []


@pytest.mark.parametrize(
    ("kind", "own", "pod", "said"),
    [
        ("DaemonSet", {SURCHARGE: "$0.05"}, {}, "without a currency: did you mean '0.05'?"),
        ("DaemonSet", {}, {SURCHARGE: "0.05"}, "has no effect here; write it into metadata.annotations"),
        ("Deployment", {SURCHARGE: "0.05"}, {}, "has no effect: it is for NodePools and DaemonSets"),
        (
            "Deployment",
            {"nodesmith.dev/on-demand-base": "2"},
            {},
            "write it into spec.template.metadata.annotations",
        ),
        ("Deployment", {}, {"nodesmith.dev/on-demand-percent": "30%"}, "without a percent sign, such as 30"),
        (
            "Deployment",
            {},
            {"nodesmith.dev/on-demand-bases": "2"},
            "did you mean 'nodesmith.dev/on-demand-base'?",
        ),
        ("DaemonSet", {"nodesmith.dev/node-surcharge-hourli": "1"}, {}, f"did you mean '{SURCHARGE}'?"),
    ],
)
def test_an_annotation_without_effect_is_reported(
    kind: str, own: dict[str, Any], pod: dict[str, Any], said: str
) -> None:
    (found,) = workload(kind, own, pod)
    assert said in found


def test_nodepools_of_one_weight_have_one_objective() -> None:
    few = nodepool_manifest("few")
    few["metadata"]["annotations"] = {"nodesmith.dev/objective": "LeastNodes"}
    pools = {"few": few, "other": nodepool_manifest("other", labels={"team": "x"})}
    there = {name: document(manifest) for name, manifest in pools.items()}

    found = [str(each) for each in pool_findings(inputs(snapshot=snapshot(nodepools=pools.values())), there)]

    (said,) = [each for each in found if "LeastNodes" in each]
    assert "other" in said
