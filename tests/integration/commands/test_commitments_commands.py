"""Commitments in `nodesmith plan`, `validate`, `status` and `explain node`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nodesmith.adapters.catalog.catalogs import embedded_catalog
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.ledger.commitments import (
    Commitment,
    CommitmentBook,
    CommitmentKind,
    Commitments,
    book_item,
)
from nodesmith_cli.costs.commitments import (
    commitments_of,
    commitments_report,
    covered_line,
    covered_of,
    lines_of,
)
from nodesmith_cli.main import app
from tests.builders import NOW, ZONES, claim, cluster_info, ledger
from tests.fakes.blobs import FakeBlobs
from tests.processes.plancommand import Run, plan_command

EXAMPLE = "examples/express-test/nodepool.yaml"
ENDS = "2099-06-30T00:00:00Z"
PLAN: Mapping[str, Any] = {
    "kind": "ec2InstanceSavingsPlan",
    "family": "m5",
    "hourly": 2,
    "discount": 0.4,
    "ends": ENDS,
}
PODS = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "replicas": 4,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3", "memory": "8Gi"}}}]},
        },
    },
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return plan_command(monkeypatch, capsys)


def listed(folder: Path, *entries: Mapping[str, Any]) -> str:
    file = folder / "commitments.json"
    file.write_text(json.dumps(entries))
    return str(file)


def pods(folder: Path) -> str:
    file = folder / "pods.json"
    file.write_text(json.dumps(PODS))
    return str(file)


def test_a_plan_shows_which_commitments_pay_for_which_nodes(run: Run, tmp_path: Path) -> None:
    arguments = ("-f", EXAMPLE, "-f", pods(tmp_path), "--commitments", listed(tmp_path, PLAN))
    plan = run(*arguments, "-o", "json").plan
    paid = [node for node in plan["nodes"] if "commitment" in node]
    assert paid
    assert {node["instanceType"].partition(".")[0] for node in paid} == {"m5"}
    assert plan["priceHourly"] == pytest.approx(sum(node["priceHourly"] for node in plan["nodes"]))
    assert all(node["priceHourly"] < node["listPriceHourly"] for node in paid)
    assert "savings-plan/m5/" in run(*arguments).out


@pytest.mark.parametrize(
    ("entries", "reported"),
    [
        ([{**PLAN, "family": "m55"}], "family is 'm55': did you mean 'm5'?"),
        ([{**PLAN, "currency": "EUR"}], "currency is 'EUR'"),
        ([{**PLAN, "hourly": -2}], "hourly is -2"),
    ],
)
def test_a_wrong_list_is_reported_by_plan_and_validate(
    run: Run, tmp_path: Path, entries: Sequence[Mapping[str, Any]], reported: str
) -> None:
    file = listed(tmp_path, *entries)
    ran = run("-f", EXAMPLE, "--commitments", file)
    assert ran.status == 2
    assert reported in " ".join(ran.err.split())
    checked = CliRunner().invoke(app, ["validate", "--commitments", file])
    assert checked.exit_code == 1
    assert reported in checked.stdout.replace(": is ", " is ")


def test_validate_warns_of_a_commitment_that_has_expired(tmp_path: Path) -> None:
    file = listed(tmp_path, {**PLAN, "ends": "2020-01-01T00:00:00Z"})
    checked = CliRunner().invoke(app, ["validate", "--commitments", file])
    assert (checked.exit_code, "it has expired: remove it" in checked.stdout) == (0, True)


def known() -> Commitments:
    """Return what a bucket holds: a plan for four m5.large that ends in ten days, and a fault."""
    plan = Commitment(
        "sp-1",
        CommitmentKind.EC2_INSTANCE,
        4 * 57_600,
        NOW + timedelta(days=10),
        "m5",
        rates=FrozenMap({"m5.large": 57_600}),
        hourly_usd=0.2304,
    )
    outside = {("m5.large", ZONES[1]): 2.0}
    book = CommitmentBook(
        NOW, (plan,), {"": outside}, ("ec2:DescribeReservedInstances: UnauthorizedOperation",)
    )
    blobs = FakeBlobs()
    blobs.put("catalog/us-east-1.commitments.json", json.dumps(book_item(book)).encode())
    return commitments_of("us-east-1", blobs)


def running(count: int) -> Any:
    claims = [
        replace(
            claim(f"c-{n}"),
            instance_type="m5.large",
            zone=ZONES[0],
            capacity_type="on-demand",
            instance_id=f"i-{n}",
        )
        for n in range(count)
    ]
    return ledger(claims=tuple(claims), commitments=known(), cluster=cluster_info())


def test_status_shows_use_coverage_end_and_what_could_not_be_read() -> None:
    reported = commitments_report(running(1), embedded_catalog("us-east-1"), NOW)
    assert reported is not None
    assert list(lines_of(reported)) == [
        "1 commitment, 100% of on-demand use covered",
        f"  {reported['pools'][0]['name']}   75% used  $0.0576/hour left of $0.2304/hour (EC2 Instance Savings Plan)",
        f"  {'':<{len(reported['pools'][0]['name'])}}  sp-1 ends at {(NOW + timedelta(days=10)).isoformat()}",
        "  commitments could not be read: ec2:DescribeReservedInstances: UnauthorizedOperation",
    ]


def test_explain_node_shows_which_part_of_such_nodes_is_paid_for() -> None:
    reported = covered_of("m5.large", ZONES[0], running(4), embedded_catalog("us-east-1"), NOW)
    assert reported is not None
    assert reported["share"] == 1.0, "the zone that comes first by name"
    assert covered_line(reported).endswith("pays for 100% of 4 such nodes")
    rest = covered_of("m5.large", ZONES[1], running(3), embedded_catalog("us-east-1"), NOW)
    assert rest is not None
    assert rest["share"] == 0.5
