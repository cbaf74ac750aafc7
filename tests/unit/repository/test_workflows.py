"""What GitHub reads in .github/: workflows with few rights and pinned actions, and complete issue forms."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = [GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml" for name in ("bug", "feature")]

# Every right to write that a job may have: workflow, job → rights.
WRITERS = {
    ("release", "pypi"): {"id-token"},
    ("release", "image"): {"packages", "id-token", "attestations"},
    ("release", "release"): {"contents"},
}


def read(path: Path) -> Any:
    # BaseLoader, because YAML 1.1 reads the key `on` as True.
    return yaml.load(path.read_text(), Loader=yaml.BaseLoader)  # noqa: S506 makes nothing but text, lists and dicts


def steps(workflow: Any) -> list[Any]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [])]


def test_the_workflows_are_there() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "nightly.yml", "release.yml"]


def test_ci_runs_what_every_change_must_pass() -> None:
    workflow = read(GITHUB / "workflows" / "ci.yml")
    assert {"push", "pull_request"} <= set(workflow["on"])
    runs = {step["run"]: step.get("env") for step in steps(workflow) if "run" in step}
    assert runs["$COMMAND"] == {"COMMAND": "${{ inputs.command || '.ci/run' }}"}
    assert "make docs" in runs


def test_the_slow_tests_run_every_night() -> None:
    workflow = read(GITHUB / "workflows" / "nightly.yml")
    assert "schedule" in workflow["on"]
    assert workflow["jobs"]["run"] == {
        "uses": "./.github/workflows/ci.yml",
        "with": {"command": ".ci/nightly"},
    }
    assert '"make test-exhaustive" "make e2e"' in (ROOT / ".ci" / "nightly").read_text()


def test_a_release_needs_a_tag_and_all_tests() -> None:
    workflow = read(GITHUB / "workflows" / "release.yml")
    assert workflow["on"] == {"push": {"tags": ["v*"]}}
    jobs = workflow["jobs"]
    assert jobs["ci"]["uses"] == "./.github/workflows/ci.yml"
    assert jobs["nightly"]["uses"] == "./.github/workflows/nightly.yml"
    assert jobs["build"]["needs"] == ["ci", "nightly"]
    assert jobs["pypi"]["needs"] == jobs["image"]["needs"] == "build"
    assert jobs["release"]["needs"] == ["pypi", "image"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_writes_only_where_it_must(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for name, job in workflow["jobs"].items():
        rights = job.get("permissions", {})
        assert isinstance(rights, dict), name
        assert set(rights.values()) <= {"read", "write"}, name
        writes = {right for right, level in rights.items() if level == "write"}
        assert writes == WRITERS.get((path.stem, name), set()), name


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit_with_their_version(path: Path) -> None:
    used = re.findall(r"uses: (\S+)(.*)", path.read_text())
    remote = [(action, comment) for action, comment in used if not action.startswith("./")]
    assert remote or path.stem == "nightly"  # it only calls another workflow
    for action, comment in remote:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_checkout_keeps_no_credentials(path: Path) -> None:
    checkouts = [step for step in steps(read(path)) if step.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] == "false" for step in checkouts)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_script_takes_values_from_its_environment_only(path: Path) -> None:
    """An expression in a script would be run as part of it, whatever a branch or a title contains."""
    assert [step["run"] for step in steps(read(path)) if "${{" in step.get("run", "")] == []


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_has_what_github_requires(path: Path) -> None:
    form = read(path)
    assert form["name"]
    assert form["description"]
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)


def test_a_bug_comes_with_what_replays_it() -> None:
    text = (GITHUB / "ISSUE_TEMPLATE" / "bug.yml").read_text()
    for command in ("nodesmith --version", "nodesmith doctor CLUSTER -o json", "decision ID --replay"):
        assert command in text


def test_hooks_before_a_commit_run_pinned_tools() -> None:
    repositories = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert [each["repo"] for each in repositories] == ["local"]
    entries = [hook["entry"] for hook in repositories[0]["hooks"]]
    assert [entry.partition(" --")[0] for entry in entries] == [
        ".venv/bin/ruff check",
        ".venv/bin/ruff format",
        ".venv/bin/mypy",
    ]


CHANGELOG = (
    "# Changelog\n\n## Unreleased\n\n## 0.2.0 - 2027-01-31\n\n- New.\n\n## 0.2.0rc1\n\n- Old.\n\n## 0.1.0\n"
)


def test_the_notes_of_a_release_are_its_section() -> None:
    notes = runpy.run_path(str(ROOT / ".ci" / "release_notes.py"))["release_notes"]
    assert notes(CHANGELOG, "0.2.0") == "- New.\n"
    assert notes(CHANGELOG, "0.2.0rc1") == "- Old.\n"


@pytest.mark.parametrize("version", ["0.1.0", "0.3.0", "Unreleased"])
def test_a_release_without_notes_fails(version: str) -> None:
    notes = runpy.run_path(str(ROOT / ".ci" / "release_notes.py"))["release_notes"]
    with pytest.raises(ValueError, match="no section"):
        notes(CHANGELOG, version)
