"""`nodesmith plan --consolidate` as users run it: the moves, and why the other nodes stay."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.benchmarks.packing.clusters import node
from tests.benchmarks.packing.workloads import owned, pod
from tests.builders import ZONES
from tests.objects.fleets import pool
from tests.processes.plancommand import Run, plan_command, written

CATEGORY = {"karpenter.k8s.aws/instance-category": "m"}
PROTECTED = {"karpenter.sh/do-not-disrupt": "true"}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return plan_command(monkeypatch, capsys)


def cluster(folder: Path, labels: Mapping[str, str] = CATEGORY, **disruption: Any) -> str:
    """Write three nodes of 8 cpu with two small pods each. The pods of the last node are protected."""
    manifests: list[dict[str, Any]] = [pool(**disruption)]
    for number, zone in enumerate(ZONES):
        manifests.append(node(f"n-{number}", zone, **labels))
        for which in "ab":
            running = owned(pod(f"web-{number}-{which}", 500, 1024, {"app": "web"}), "web")
            running["spec"]["nodeName"] = f"n-{number}"
            running["metadata"]["annotations"] = PROTECTED if number == 2 else {}
            manifests.append(running)
    return written(folder, "cluster.yaml", *manifests)


def test_moves_are_shown_with_their_savings_and_other_nodes_with_the_rule_that_keeps_them(
    run: Run, tmp_path: Path
) -> None:
    ran = run("-f", cluster(tmp_path), "--consolidate", "-o", "json")

    assert ran.status == 0, ran.err
    found = ran.plan
    assert sorted(s["node"] for move in found["moves"] for s in move["sources"]) == ["n-0", "n-1"]
    assert sum(len(move["destinations"]) for move in found["moves"]) == 4
    assert [(k["node"], k["rule"], k["object"]) for k in found["kept"]] == [
        ("n-2", "DoNotDisrupt", "Pod/default/web-2-a")
    ]
    assert found["savingYearly"] == pytest.approx(found["savingHourly"] * 8760, rel=1e-4)
    assert 0 < found["savingHourly"] < found["priceHourly"]
    assert found["budgets"][0]["Underutilized"] == 3


def test_the_table_shows_the_same_moves(run: Run, tmp_path: Path) -> None:
    ran = run("-f", cluster(tmp_path), "--consolidate")

    assert "3 nodes at $1.1520/hour" in ran.out
    assert "a year" in ran.out
    assert "Underutilized" in ran.out
    assert "DoNotDisrupt (Pod/default/web-2-a)" in ran.out
    assert "~" not in ran.out, "AWS publishes these prices"


def test_savings_are_marked_if_a_price_that_they_follow_from_is_an_estimate(run: Run, tmp_path: Path) -> None:
    file = cluster(tmp_path, {**CATEGORY, "karpenter.sh/capacity-type": "spot"})
    ran, found = run("-f", file, "--consolidate"), run("-f", file, "--consolidate", "-o", "json").plan

    assert (found["priceEstimated"], found["savingEstimated"]) == (True, True)
    assert all(move["savingEstimated"] for move in found["moves"])
    assert "3 nodes at ~$0.4032/hour" in ran.out
    assert f"saves ~${found['savingHourly']:.4f}/hour, ~${found['savingYearly']:,.0f} a year" in ran.out
    assert "~ an estimate" in ran.out


def test_budgets_show_how_many_nodes_may_go_at_once(run: Run, tmp_path: Path) -> None:
    ran = run("-f", cluster(tmp_path, budgets=[{"nodes": "1"}]), "--consolidate", "-o", "yaml")

    found = yaml.safe_load(ran.out)
    assert [len(move["sources"]) for move in found["moves"]] == [1]
    assert [kept["rule"] for kept in found["kept"]] in (
        ["Budget", "DoNotDisrupt"],
        ["Nominated", "DoNotDisrupt"],
    )


def test_nothing_moves_with_the_policy_when_empty(run: Run, tmp_path: Path) -> None:
    ran = run("-f", cluster(tmp_path, policy="WhenEmpty"), "--consolidate")

    assert "no moves: something keeps each node from disruption" in ran.out
    assert "Policy (NodePool/default)" in ran.out


def test_a_node_that_consolidation_keeps_says_so_with_both_prices(run: Run, tmp_path: Path) -> None:
    cheapest = node("n-0", ZONES[0], **CATEGORY)
    pinned = owned(pod("web-0", 500, 1024, {"app": "web"}), "web")
    only = {"node.kubernetes.io/instance-type": "m5.2xlarge", "karpenter.sh/capacity-type": "on-demand"}
    pinned["spec"] |= {"nodeName": "n-0", "nodeSelector": only}
    file = written(tmp_path, "cluster.yaml", pool(), cheapest, pinned)

    table, found = run("-f", file, "--consolidate"), run("-f", file, "--consolidate", "-o", "json").plan

    assert "no moves: no set of nodes can be consolidated" in table.out
    assert found["moves"] == []
    assert found["kept"] == [
        {
            "node": "n-0",
            "nodeClaim": "n-0",
            "rule": "Consolidation",
            "object": "NodeClaim/n-0",
            "message": (
                "it cannot be replaced by anything cheaper: it costs 0.3840 USD an hour, and what its pods need"
                " 0.3840"
            ),
        }
    ]


def test_the_table_names_what_has_drifted(run: Run, tmp_path: Path) -> None:
    ran = run("-f", cluster(tmp_path, {}), "--consolidate")

    assert "Drifted" in ran.out
    assert "RequirementsDrifted" in ran.out


def test_nodes_of_an_unreadable_or_missing_nodepool_stay_and_the_others_move(
    run: Run, tmp_path: Path
) -> None:
    broken = pool("broken", budgets=[{"nodes": "-3"}])
    odd = [node(f"odd-{of}", ZONES[0], **CATEGORY) for of in ("broken", "gone")]
    for one, of in zip(odd, ("broken", "gone"), strict=True):
        one["metadata"]["labels"]["karpenter.sh/nodepool"] = of
    ran = run(
        "-f",
        cluster(tmp_path),
        "-f",
        written(tmp_path, "odd.yaml", broken, *odd),
        "--consolidate",
        "-o",
        "json",
    )

    assert ran.status == 0, ran.err
    assert "NodePool/broken" in ran.err
    assert "spec.disruption.budgets[0].nodes: is '-3': must match" in ran.err
    assert {(k["node"], k["rule"], k["object"]) for k in ran.plan["kept"]} >= {
        ("odd-broken", "NodePool", "NodePool/broken"),
        ("odd-gone", "NodePool", "NodePool/gone"),
    }
    assert ran.plan["nodes"] == 5
    assert sorted(s["node"] for move in ran.plan["moves"] for s in move["sources"]) == ["n-0", "n-1"]


def test_audit_and_consolidate_are_mutually_exclusive(run: Run, tmp_path: Path) -> None:
    ran = run("-f", cluster(tmp_path), "--consolidate", "--audit")

    assert ran.status == 2
    assert "--audit" in ran.err
