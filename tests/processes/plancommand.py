"""Runs commands, above all `nodesmith plan`, in a test's own process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nodesmith_cli.main import main
from tests.builders import expression


class Ran(NamedTuple):
    """A run's exit status and output."""

    status: int
    out: str
    err: str

    @property
    def plan(self) -> dict[str, Any]:
        """The plan on standard output, which must contain nothing else."""
        plan: dict[str, Any] = json.loads(self.out)
        return plan

    @property
    def pods(self) -> list[str]:
        """The pods on the nodes to buy."""
        return sorted(pod for node in self.plan["nodes"] for pod in node["pods"])

    @property
    def unplaced(self) -> dict[str, dict[str, str]]:
        """The entry of each unplaced pod."""
        return {entry["pod"]: entry for entry in self.plan["unplaced"]}


Run = Callable[..., Ran]


def plan_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return `nodesmith plan` as a function of its arguments, isolated from the user's own kubeconfig."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return command(monkeypatch, capsys, "plan")


def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, *always: str
) -> Run:
    """Return `nodesmith NAME` as a function of its arguments, which `always` follow."""

    def ran(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["nodesmith", name, *arguments, *always])
        with pytest.raises(SystemExit) as ended:
            main()
        reported = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, reported.out, reported.err)

    return ran


def written(folder: Path, name: str, *manifests: Mapping[str, Any]) -> str:
    """Write manifests as the documents of one file; return its path."""
    path = folder / name
    path.write_text("\n---\n".join(json.dumps(manifest) for manifest in manifests))
    return str(path)


def kwok(name: str, price: float, cpu: str = "4", *zones: str) -> dict[str, Any]:
    """Return an instance type of 16 GiB in KWOK's format, on-demand in these zones, or in one if none is given."""
    requirements = [
        expression("karpenter.sh/capacity-type", "In", "on-demand"),
        expression("topology.kubernetes.io/zone", "In", *(zones or ("test-zone-1",))),
    ]
    return {
        "name": name,
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": cpu, "memory": "16Gi", "pods": "10"},
        "offerings": [{"Price": price, "Available": True, "Requirements": requirements}],
    }
