"""What `nodesmith shadow` shows of what is kept."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nodesmith.errors import Rejected
from nodesmith.keys import shadow_key
from nodesmith.model.costs.shadow import (
    ACTUAL,
    KARPENTER,
    NODESMITH,
    Fleet,
    PodLocation,
    Shadow,
    Tally,
    write_shadow,
)
from nodesmith_cli.costs.shadowing.command import print_shadow, stored_shadow
from nodesmith_cli.costs.shadowing.output import page, sentences
from nodesmith_cli.costs.shadowing.placements import checked
from nodesmith_cli.costs.shadowing.report import report
from tests.fakes.blobs import FakeBlobs
from tests.objects import audits
from tests.objects.audits import nodepool, pod
from tests.objects.fleets import worker

START = datetime(2026, 11, 20, tzinfo=UTC)


def shadow(days: int = 3, **fields: Any) -> Shadow:
    """Return what was kept in these days: the cluster costs $24 a day, nodesmith's shadow $18, Karpenter's $24.24."""
    made = Shadow("web", START, START, boot_seconds=50.0)
    for hour in range(24 * days):
        made = replace(made, at=START + timedelta(hours=hour))
        tallies = {
            ACTUAL: Tally(usd=1.0, spot_usd=0.5, node_seconds=36_000, pending_seconds=100, evictions=2),
            NODESMITH: Tally(
                usd=0.75,
                spot_usd=0.5,
                starting_usd=0.02,
                node_seconds=28_800,
                spot_seconds=14_400,
                pod_seconds=288_000,
                pending_seconds=90,
                evictions=1,
                bound_usd=0.7,
                bound_seconds=3600,
            ),
            KARPENTER: Tally(usd=1.01, node_seconds=36_000),
        }
        made = made.adding(3600.0, tallies, 1800.0)
    return replace(made, **fields)


def test_each_day_is_shown_with_both_sides_and_the_bound() -> None:
    written = report(shadow(), days=2)
    assert [day["date"] for day in written["days"]] == ["2026-11-21", "2026-11-22"]
    day = written["days"][0]
    assert (day["actual"]["usd"], day["nodesmith"]["usd"], day["nodesmith"]["lowerBoundUsd"]) == (
        24,
        18,
        16.8,
    )
    assert (day["actual"]["nodes"], day["nodesmith"]["nodes"], day["unpricedNodes"]) == (10, 8, 0.5)
    assert written["total"]["actual"]["evictions"] == 96
    assert written["agreement"]["differencePercent"] == pytest.approx(1.0)


def test_a_shadow_that_costs_more_is_said_to() -> None:
    written = report(shadow(), days=2)
    dear = dict(written["total"], nodesmith={**written["total"]["nodesmith"], "usd": 50.4})
    cheaper, *_ = sentences(written)
    dearer, *_ = sentences({**written, "total": dear})
    assert cheaper.endswith(
        "the cluster cost $48.00. nodesmith's shadow cost $36.00, which saves $12.00 (25.0 %)."
    )
    assert dearer.endswith("nodesmith's shadow cost $50.40, which costs $2.40 (5.0 %) more.")


def test_every_assumption_says_what_depends_on_it() -> None:
    reported = {each["what"]: each for each in report(shadow(days=1), days=14)["assumptions"]}
    boots = reported["boot time of nodes"]
    assert (boots["value"], boots["source"]) == ("50 s", "the cluster's own nodes")
    shorter, longer = boots["sensitivity"]
    assert (shorter["if"], shorter["pendingSeconds"], longer["pendingSeconds"]) == ("-50 %", 1080, 3240)
    assert longer["usd"] == pytest.approx(18 + 0.24)
    cheaper, _ = reported["spot prices"]["sensitivity"]
    assert cheaper["usd"] == pytest.approx(18 - 2.4)
    assert cheaper["savingUsd"] == pytest.approx(24 - 2.4 - (18 - 2.4))
    none, more = reported["interruptions of spot nodes"]["sensitivity"]
    nodes, share = 4, 0.05 * 24 / 730
    assert none["evictions"] == 24 - round(nodes * share * 10)
    assert more["evictions"] >= none["evictions"]


def test_an_observation_without_a_whole_day_has_no_figures_but_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    empty = Shadow("web", START, START)
    assert print_shadow(empty, 14, "table") == 0
    assert "In 0 days" in capsys.readouterr().out


def test_csv_has_a_line_for_each_day_and_side(capsys: pytest.CaptureFixture[str]) -> None:
    print_shadow(shadow(), 14, "csv")
    lines = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert len(lines) == 9
    assert lines[1]["side"] == "nodesmith"
    assert float(lines[1]["usd"]) == 18
    assert lines[0]["lowerBoundUsd"] == ""


def test_on_a_terminal_html_goes_to_a_file_and_one_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert print_shadow(shadow(), 14, "html") == 0
    file = tmp_path / "nodesmith-shadow.html"
    assert file.read_text(encoding="utf-8") == page(report(shadow(), days=14))
    assert "written to nodesmith-shadow.html" in capsys.readouterr().err
    file.unlink()
    file.mkdir()
    with pytest.raises(Rejected, match=r"nodesmith-shadow\.html: cannot be written"):
        print_shadow(shadow(), 14, "html")


def test_html_is_one_file_without_requests_and_escapes_what_users_wrote() -> None:
    hostile = "Node/<script src=//x>: " + "y" * 10_000
    html = page(report(shadow(faults=(hostile,)), days=14))
    assert "<script" not in html
    assert "&lt;script src=//x&gt;" in html
    assert "http" not in html.replace("http-equiv", "")
    assert "default-src &#x27;none&#x27;" in html


def test_json_has_everything(capsys: pytest.CaptureFixture[str]) -> None:
    print_shadow(shadow(), 14, "json")
    written = json.loads(capsys.readouterr().out)
    assert {"days", "total", "assumptions", "simplified", "faults", "agreement"} <= written.keys()


def test_a_cluster_that_is_not_observed_is_told_how_to_observe_it() -> None:
    blobs = FakeBlobs()
    with pytest.raises(Rejected, match="`nodesmith connect web --observe` begins to watch it"):
        stored_shadow(blobs.get, "web")
    blobs.put(shadow_key("web"), write_shadow(shadow()))
    assert stored_shadow(blobs.get, "web").cluster == "web"


def placed(*keys: str, kind: str = "m.large") -> Fleet:
    """Return a fleet with one bought node that holds these pods."""
    labels = {
        "node.kubernetes.io/instance-type": kind,
        "topology.kubernetes.io/zone": "z-a",
        "karpenter.sh/capacity-type": "on-demand",
        "karpenter.sh/nodepool": "default",
    }
    node = worker("n-1").claim
    claim = replace(
        node,
        name="n-1",
        nodepool="default",
        provider_id="shadow:///n-1",
        instance_type=kind,
        zone="z-a",
        capacity_type="on-demand",
        labels=labels,
    )
    return Fleet(START, (claim,), {key: PodLocation("default/x", "n-1") for key in keys})


def test_the_audit_finds_nothing_where_pods_could_run() -> None:
    manifests = [nodepool(), audits.nodeclass(), pod("a", "1"), pod("b", "2")]
    assert checked(placed("default/a", "default/b", "default/gone"), manifests, audits.catalog()) == {
        "pods": 2,
        "violations": [],
    }


def test_the_audit_finds_a_node_on_which_its_pods_could_not_run_together() -> None:
    manifests = [nodepool(), audits.nodeclass(), pod("a", "3"), pod("b", "3")]
    found = checked(placed("default/a", "default/b"), manifests, audits.catalog())["violations"]
    assert [each.partition(":")[0] for each in found] == ["resources"]
