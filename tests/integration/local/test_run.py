"""The whole system once through the command line: manifests in; bound pods, prices and reasons out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from nodesmith_cli.main import app
from nodesmith_formats.shipped import shipped
from tests.processes.localrun import local_run, report_of

EXAMPLES = shipped("_examples", "examples")
TOO_BIG = """
apiVersion: v1
kind: Pod
metadata:
  name: too-big
spec:
  containers:
    - {name: a, image: busybox, resources: {requests: {cpu: 10k}}}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: misspelt
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: karpenter.sh/capacity-type, operator: Inn, values: [spot]}
---
kind: [
"""


def nodesmith(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def express(kept: Path) -> Result:
    return local_run(kept, EXAMPLES / "express-test")


@pytest.fixture(scope="module")
def outcome(express: Result) -> dict[str, Any]:
    return report_of(express)


def purchase(outcome: dict[str, Any]) -> str:
    """Return the id of the first decision that bought nodes: the only one unless the pods came slowly."""
    decided = (each for each in outcome["timeline"] if each["what"] == "decided")
    found = next(each for each in decided if re.search(r"\d nodes? at .* for \d+ pods?", each["detail"]))
    return str(found["object"]).removeprefix("Decision/")


def test_twenty_pending_pods_are_bound_to_spot_nodes_in_three_zones(outcome: dict[str, Any]) -> None:
    nodes = outcome["nodes"]

    assert outcome["pendingPods"] == []
    assert sum(len(node["pods"]) for node in nodes) == 20
    assert {node["zone"] for node in nodes} == {"us-east-1a", "us-east-1b", "us-east-1c"}
    assert {node["capacityType"] for node in nodes} == {"spot"}
    assert {node["nodePool"] for node in nodes} == {"default"}
    assert all(node["cpuRequested"] <= node["cpuAllocatable"] for node in nodes)
    # pods that came slowly may have got one node more than they need
    assert all(bool(node["cpuRequested"]) == bool(node["pods"]) for node in nodes)


def test_the_price_of_the_run_is_that_of_its_nodes_and_marked_as_an_estimate(outcome: dict[str, Any]) -> None:
    nodes = outcome["nodes"]

    assert all(node["priceHourly"] > 0 for node in nodes)
    assert outcome["priceHourly"] == pytest.approx(sum(node["priceHourly"] for node in nodes))
    assert all(node["priceEstimated"] for node in nodes)


def test_the_timeline_has_every_nodes_milestones_in_order(outcome: dict[str, Any]) -> None:
    claims: dict[str, list[str]] = {}
    for entry in outcome["timeline"]:
        if entry["object"].startswith("NodeClaim/"):
            claims.setdefault(entry["object"], []).append(entry["what"])

    assert len(claims) == len(outcome["nodes"])
    for steps in claims.values():
        assert steps == ["claimed", "launched", "registered", "initialized", "ready"]
    assert [e["at"] for e in outcome["timeline"]] == sorted(e["at"] for e in outcome["timeline"])
    assert sum(entry["what"] == "bound" for entry in outcome["timeline"]) == 20


def test_the_decision_is_kept_explained_and_replays_to_the_same_bytes(
    outcome: dict[str, Any], kept: Path
) -> None:
    decision = purchase(outcome)

    reported = nodesmith("explain", "decision", decision, "--keep", str(kept), "--replay")

    assert reported.exit_code == 0
    assert f"decision {decision}: provisioning of cluster nodesmith-local" in reported.stdout
    assert "replay    the same plan, byte for byte" in reported.stdout


def test_the_decision_is_reported_as_a_page_with_the_shapes_of_its_pods_and_alternatives(
    outcome: dict[str, Any], kept: Path
) -> None:
    page = nodesmith("explain", "decision", purchase(outcome), "--keep", str(kept), "-o", "html")

    assert page.exit_code == 0
    assert ">1 CPU, 64Mi<" in page.stdout
    assert "on-demand capacity only" in page.stdout
    assert "<h2>Suitable instance types, with their price</h2>" in page.stdout


def test_no_function_failed_on_the_way(express: Result) -> None:
    assert "function" not in express.stderr.replace("starting the functions", "")


def test_bad_objects_are_named_by_line_and_field_while_the_others_are_processed(tmp_path: Path) -> None:
    file = tmp_path / "mixed.yaml"
    file.write_text(TOO_BIG)

    result = local_run(tmp_path, file, EXAMPLES / "express-test" / "nodepool.yaml")

    assert result.exit_code == 1
    (pending,) = json.loads(result.stdout)["pendingPods"]
    assert pending["name"] == "default/too-big"
    assert "cpu" in pending["reason"]
    operator, broken = (TOO_BIG[: TOO_BIG.index(text)].count("\n") + 1 for text in ("Inn", "kind: ["))
    field = "spec.template.spec.requirements[0].operator"
    assert (
        f"{file}:{operator} (document 2, NodePool/misspelt): {field}: is 'Inn': use one of In,"
        in result.stderr
    )
    assert f"{file}:{broken + 1} (document 3): not YAML" in result.stderr
