"""`nodesmith simulate` on what the small world has recorded."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from nodesmith.errors import Rejected
from nodesmith_cli.main import app
from tests import builders
from tests.builders import expression
from tests.objects.fleets import pool
from tests.processes.plancommand import written
from tests.scenarios.replays import recorded

ROOT = Path(__file__).parents[3]
QUICK = ("--seeds", "1", "--jobs", "1")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the records of three nodes that pods come to and leave for a quarter of a day."""
    folder = tmp_path_factory.mktemp("kept")
    recorded(folder, 3, 0.25)
    return folder


def simulated(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *arguments, *QUICK])


def report_of(*arguments: str) -> dict[str, Any]:
    ran = simulated(*arguments, "-o", "json")
    assert ran.exit_code == 0, ran.output or ran.exception
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def refused(*arguments: str) -> str:
    found = simulated(*arguments).exception
    assert isinstance(found, Rejected), found
    return str(found)


def test_what_was_recorded_is_decided_again_and_costs_about_the_same(kept: Path) -> None:
    found = report_of("--keep", str(kept))
    of_recording, cost = found["recorded"], found["figures"][0]
    assert of_recording["decisions"] == of_recording["repeated"] > 5
    assert of_recording["differences"] == []
    assert cost["baseline"] == pytest.approx(of_recording["usd"], rel=0.15)
    assert "decisions are kept" in found["notes"][0]
    assert found["figures"][-1]["baseline"] == 0  # pods without a node


def test_a_change_is_compared_with_the_same_workload(kept: Path, tmp_path: Path) -> None:
    wanted = [expression("karpenter.sh/capacity-type", "In", "on-demand")]
    file = written(tmp_path, "pool.yaml", pool(after="5m", requirements=wanted))
    found = report_of(builders.CLUSTER, "--keep", str(kept), "--since", "2h", "--change", file)
    figures = {item["name"]: item for item in found["figures"]}
    assert figures["cost"]["difference"] > 0
    assert figures["spot hours"]["change"] < figures["spot hours"]["baseline"]
    assert found["changes"] == ["NodePool/default"]
    assert found["hours"] <= 2.1
    assert found["recorded"]["repeated"] == 0


def test_another_interpreter_simulates_the_changed_side(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("--keep", str(kept), "--since", "1h")
    monkeypatch.setattr(sys, "argv", ["nodesmith", "simulate", *arguments, *QUICK])
    found = report_of(*arguments, "--nodesmith", sys.executable)
    assert found["figures"][0]["difference"] == 0
    assert found["recorded"]["differences"] == []
    assert found["recorded"]["repeated"] == found["recorded"]["decisions"] > 0
    assert found["changes"][0].startswith("nodesmith ")
    assert "not a Python with nodesmith" in refused(*arguments, "--nodesmith", "/nowhere/python")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--keep", "nowhere"), "no decisions found in nowhere"),
        (("--bucket", "b"), "requires the name of a cluster"),
        (("--replay", "a.json"), "requires -f FILE with the cluster's NodePools"),
        (("--replay", "a.json", "--keep", "b"), "--keep and --replay are mutually exclusive"),
        (("--audit-log", "cloudwatch", "-f", "examples/simulate/cluster.yaml"), "requires the name of the"),
        (("--since", "7 days"), "expected a duration such as 7d, 12h or 1d12h"),
        (("--keep", "x", "-f", "y"), "a recorded cluster has its own manifests"),
    ],
)
def test_sources_that_do_not_fit_together_are_refused(
    arguments: Sequence[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert message in refused(*arguments)
