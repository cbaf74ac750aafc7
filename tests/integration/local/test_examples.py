"""All examples of the docs: they have no problems, they run, and their old API versions have the same plan."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from nodesmith_cli.main import app
from nodesmith_formats.shipped import shipped
from tests.processes.localrun import local_run
from tests.samples import sampled

EXAMPLES = shipped("_examples", "examples")
STORIES = sorted(folder for folder in EXAMPLES.iterdir() if (folder / "workload.yaml").is_file())
OLD = [story for story in STORIES if (story / "old").is_dir()]
_RUN, _RUN_OLD = ("gpu-beside-general", "windows-beside-bottlerocket"), ("zone-spread",)
RUN = sampled([EXAMPLES / name for name in _RUN], whole=STORIES)
"""In a sample, examples with several NodePools and image families, and an old one with zones. All are validated."""
RUN_OLD = sampled([EXAMPLES / name for name in _RUN_OLD], whole=OLD)
Nodes = list[dict[str, Any]]


def by_name(story: Path) -> str:
    return story.name


def nodesmith(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def ran(tmp_path: Path, *files: Path) -> dict[str, Any]:
    result = local_run(tmp_path, *files)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def sold(nodes: Nodes) -> dict[tuple[str, str], int]:
    """Count pods by NodePool and by the capacity type of its nodes."""
    counted: Counter[tuple[str, str]] = Counter()
    for node in nodes:
        counted[node["nodePool"], node["capacityType"]] += len(node["pods"])
    return dict(counted)


def zones(nodes: Nodes) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for node in nodes:
        counted[node["zone"]] += len(node["pods"])
    return dict(counted)


TOLD: dict[str, Callable[[Nodes], bool]] = {
    "single-type-arm64": lambda nodes: {n["instanceType"] for n in nodes} == {"m6g.xlarge"},
    "gpu-beside-general": lambda nodes: sold(nodes) == {("gpu", "spot"): 2, ("general", "spot"): 6},
    "spot-only": lambda nodes: (
        sold(nodes).keys() == {("spot", "spot"), ("on-demand", "on-demand")}
        and sold(nodes)["on-demand", "on-demand"]
        >= 2  # pods that tolerate spot may also run on on-demand nodes
    ),
    "zone-spread": lambda nodes: set(zones(nodes).values()) == {3},
    "private-cluster": lambda nodes: sold(nodes) == {("default", "on-demand"): 5},
    "windows-beside-bottlerocket": lambda nodes: (
        Counter(pool for (pool, _), count in sold(nodes).items() for _ in range(count))
        == {"windows": 3, "linux": 4}
    ),
    "pinned-ami": lambda nodes: sold(nodes) == {("default", "spot"): 5},
}
"""The expectation for the nodes of each example."""


def test_every_example_has_an_expectation() -> None:
    assert {story.name for story in STORIES} == set(TOLD)


@pytest.mark.exhaustive
@pytest.mark.parametrize("story", RUN, ids=by_name)
def test_an_example_runs_and_meets_its_expectation(story: Path, tmp_path: Path) -> None:
    outcome = ran(tmp_path, story)
    assert outcome["pendingPods"] == []
    assert outcome["problems"] == []
    assert TOLD[story.name](outcome["nodes"]), outcome["nodes"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("story", RUN_OLD, ids=by_name)
def test_an_example_in_an_old_api_version_meets_its_expectation_too(story: Path, tmp_path: Path) -> None:
    outcome = ran(tmp_path, story / "old", story / "workload.yaml")
    assert outcome["pendingPods"] == []
    assert TOLD[story.name](outcome["nodes"]), outcome["nodes"]


@pytest.mark.parametrize("story", STORIES, ids=by_name)
def test_an_example_has_no_problems(story: Path) -> None:
    checked = nodesmith("validate", "-f", str(story))
    assert (checked.exit_code, checked.stdout.partition(": ")[2]) == (0, "0 errors, 0 warnings\n")


@pytest.mark.parametrize("story", STORIES, ids=by_name)
def test_an_example_needs_no_conversion(story: Path) -> None:
    for file in sorted(story.glob("*.yaml")):
        converted = nodesmith("convert", "-f", str(file))
        assert (converted.stdout, converted.stderr) == (file.read_text(), "")


@pytest.mark.parametrize("story", OLD, ids=by_name)
def test_an_old_example_its_conversion_and_the_new_one_have_the_same_plan(
    story: Path, tmp_path: Path
) -> None:
    converted = tmp_path / "converted.yaml"
    converted.write_text(nodesmith("convert", "-f", str(story / "old")).stdout)
    plans = [
        planned(nodes, story / "workload.yaml") for nodes in (story / "nodes.yaml", story / "old", converted)
    ]
    assert plans[0] == plans[1] == plans[2]


def planned(*files: Path) -> dict[str, Any]:
    """Return a plan without fields that differ between names and API versions."""
    named = [word for file in files for word in ("-f", str(file))]
    plan: dict[str, Any] = json.loads(nodesmith("plan", *named, "-o", "json").stdout)
    for node in plan["nodes"]:
        node.pop("name")
        node["labels"].pop("karpenter.sh/provisioner-name", None)
    return {name: plan[name] for name in ("nodes", "unplaced", "priceHourly", "lowerBoundHourly")}


def test_converting_an_old_example_yields_the_new_one() -> None:
    """The converted objects equal those of the example, so the two cannot drift apart."""
    story = EXAMPLES / "zone-spread"
    text = nodesmith("convert", "-f", str(story / "old")).stdout
    old, new = list(yaml.safe_load_all(text)), list(yaml.safe_load_all((story / "nodes.yaml").read_text()))
    assert old == new
