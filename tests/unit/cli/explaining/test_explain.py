from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from nodesmith.errors import Rejected
from nodesmith_cli.main import app
from nodesmith_cli.views.explaining.commands import RecordSource
from nodesmith_cli.views.explaining.decision import explain
from nodesmith_formats.decisions.records import Folder, Records, parse_record, writable_state_folder
from nodesmith_formats.decisions.summaries import price_and_bound, summary

FIRST, SECOND = "20261121T080000Z-aaaaaaaa", "20261121T080100Z-bbbbbbbb"


def record(decision: str = FIRST, **plan: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "nodes": [],
        "placed": {},
        "waiting": {},
        "unplaced": [],
        "ignored": [],
        "obstacles": {},
        "problems": [],
        "priceHourlyUsd": 0.0,
        "boundHourlyUsd": 0.0,
        "steps": 0,
    }
    return {
        "format": "nodesmith-decision",
        "version": 1,
        "id": decision,
        "concern": "provisioning",
        "cluster": "shop",
        "at": "2026-11-21T08:00:00+00:00",
        "inputsHash": "0123456789abcdef" * 4,
        "inputs": {
            "snapshot": {"sha256": "ff" * 32, "takenAt": "2026-11-21T07:59:58+00:00"},
            "catalog": {"region": "us-east-1", "ref": "us-east-1-cafe"},
            "ledger": {"version": 3},
            "settings": {},
        },
        "plan": empty | plan,
        "durationsMs": {"load": 4.0, "decide": 7.5},
    }


def node(*pods: str) -> dict[str, Any]:
    return {
        "claim": {"name": "default-x1", "nodepool": "default", "nominated": list(pods)},
        "launch": {
            "capacityType": "spot",
            "overrides": [
                ["t", "c7g.2xlarge", "us-east-1a", "subnet-1", 0.12],
                ["t", "c7g.2xlarge", "us-east-1b", "subnet-2", 0.1],
                ["t", "c7a.2xlarge", "us-east-1b", "subnet-2", 0.14],
                ["t", "c7a.2xlarge", "us-east-1a", "subnet-1", 0.13],
            ],
        },
        "templates": ["t"],
        "priceHourlyUsd": 0.1,
        "estimated": True,
    }


def keep(folder: Path, *records: dict[str, Any]) -> Records:
    for written in records:
        key = f"clusters/{written['cluster']}/decisions/{written['id']}.json.gz"
        Folder(folder).put(key, gzip.compress(json.dumps(written).encode()))
    return Records(Folder(folder), "shop")


def test_a_launch_is_shown_with_its_price_bound_types_and_pods() -> None:
    reported = "\n".join(
        explain(record(nodes=[node("default/a", "default/b")], priceHourlyUsd=0.1, boundHourlyUsd=0.08))
    )

    assert "1 node at ~$0.1000/hour for 2 pods" in reported
    assert (
        "at most 25.0% above the cheapest possible: no nodes for these pods cost less than ~$0.0800/hour"
        in reported
    )
    assert "default-x1 of NodePool default, spot, ~$0.1000/hour, for default/a, default/b" in reported
    assert (
        "one of c7g.2xlarge, c7a.2xlarge in us-east-1a, us-east-1b: 4 offerings, ~$0.1000 to ~$0.1400"
        in reported
    )
    assert "snapshot of 2026-11-21 07:59:58 UTC, ledger version 3, catalogue us-east-1-cafe" in reported


@pytest.mark.parametrize(
    ("price", "said"),
    [
        (0.08, "~$0.0800/hour, the cheapest possible"),
        (0.08 * (1 + 1e-12), "~$0.0800/hour, the cheapest possible"),
        (0.08 * 1.0001, "~$0.0800/hour, at most 0.1% above the cheapest possible"),
    ],
)
def test_a_price_within_rounding_of_the_bound_is_the_cheapest_possible(price: float, said: str) -> None:
    shown = record(nodes=[node("default/a")], priceHourlyUsd=price, boundHourlyUsd=0.08)

    assert said in "\n".join(explain(shown))


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({}, "at most 150.0% above the cheapest possible if limits did not count: no nodes"),
        ({"weights": "disregarded"}, "the cheapest possible if weights and limits did not count: no nodes"),
        ({"weights": "kept"}, "the cheapest possible with these weights if limits did not count: no nodes"),
    ],
)
def test_a_plan_that_takes_much_of_limits_says_that_its_bound_does_not_count_them(
    others: dict[str, str], said: str
) -> None:
    figures: dict[str, Any] = {"priceHourlyUsd": 0.2, "boundHourlyUsd": 0.08, "limits": "disregarded"}
    shown = record(nodes=[node("default/a")], **figures | others)
    assert said in price_and_bound(shown["plan"])


@pytest.mark.parametrize(
    ("weights", "price", "said"),
    [
        ("kept", 0.08, "the cheapest possible with these weights: no nodes"),
        ("kept", 0.2, "at most 150.0% above the cheapest possible with these weights: no nodes"),
        ("disregarded", 0.08, "the cheapest possible: no nodes"),
        ("disregarded", 0.2, "at most 150.0% above the cheapest possible if weights did not count: no nodes"),
    ],
)
def test_a_plan_of_nodepools_with_weights_says_whether_its_bound_keeps_them(
    weights: str, price: float, said: str
) -> None:
    shown = record(nodes=[node("default/a")], priceHourlyUsd=price, boundHourlyUsd=0.08, weights=weights)

    assert said in "\n".join(explain(shown))


def test_every_unplaced_pod_is_shown_with_its_reason() -> None:
    stuck = {"pods": [f"default/p{n}" for n in range(6)], "reason": "no instance type has 10000 cpu"}

    reported = list(explain(record(unplaced=[stuck], obstacles={"default": "limit cpu 8 is reached"})))

    assert (
        "  unplaced  default/p0, default/p1, default/p2, default/p3 and 2 more: no instance type has 10000 cpu"
        in reported
    )
    assert "  obstacle  NodePool default: limit cpu 8 is reached" in reported


def test_a_decision_is_summarized_in_one_line() -> None:
    assert summary(record(placed={"n1": ["a", "b"]}, waiting={"c": "x1"})) == (
        "2 on existing nodes; 1 waiting for in-flight nodes"
    )
    assert summary(record()) == "nothing to do"


def test_a_decision_is_found_by_a_part_of_its_id_or_as_latest(tmp_path: Path) -> None:
    records = keep(tmp_path, record(FIRST), record(SECOND))

    assert records.ids() == [FIRST, SECOND]
    assert records.find("aaaa") == FIRST
    assert records.find("latest") == SECOND
    assert records.read(SECOND)["id"] == SECOND


def test_latest_is_the_last_decision_that_launched_nodes_if_there_is_one(tmp_path: Path) -> None:
    node = {"claim": {"name": "web"}, "estimated": False}
    lost = record(SECOND, nodes=[node]) | {"superseded": True}
    records = keep(tmp_path, record(FIRST, nodes=[node]), lost)

    assert records.find("latest") == FIRST


@pytest.mark.parametrize(
    ("asked", "said"), [("zzzz", "no decision has this id"), ("2026", "2 decisions match")]
)
def test_an_id_that_matches_none_or_several_is_refused_with_the_existing_ids(
    tmp_path: Path, asked: str, said: str
) -> None:
    records = keep(tmp_path, record(FIRST), record(SECOND))

    with pytest.raises(Rejected, match=said) as refused:
        records.find(asked)
    assert SECOND in str(refused.value)


def test_a_misspelt_id_is_answered_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match=f"did you mean '{SECOND}'"):
        keep(tmp_path, record(FIRST), record(SECOND)).find(SECOND.replace("bbb", "cbb"))


def test_a_cluster_without_decisions_is_answered_with_those_that_have_some(tmp_path: Path) -> None:
    keep(tmp_path, record())
    for command in ("decisions", "decision", "nodepool"):
        reported = CliRunner().invoke(
            app, ["explain", command, "--keep", str(tmp_path), "--cluster", "shap"], catch_exceptions=True
        )
        assert (reported.exit_code, reported.stdout) == (1, ""), command
        assert (
            str(reported.exception) == f"no decisions of cluster 'shap' in {tmp_path}, did you mean 'shop'?"
        )
    assert reported.exception.__class__ is Rejected


def test_a_cluster_may_have_rows_of_costs_alone(tmp_path: Path) -> None:
    keep(tmp_path, record())
    (tmp_path / "allocations/hours/other").mkdir(parents=True)
    records, _ = RecordSource(cluster="other", keep=tmp_path).records()
    assert records.ids() == []


def test_an_empty_list_of_decisions_says_so(tmp_path: Path) -> None:
    (tmp_path / "clusters/shop/decisions").mkdir(parents=True)
    arguments = ["explain", "decisions", "--keep", str(tmp_path), "--cluster", "shop"]

    assert CliRunner().invoke(app, arguments).stdout == "no decisions of cluster shop are stored yet\n"
    assert json.loads(CliRunner().invoke(app, [*arguments, "-o", "json"]).stdout) == []
    assert CliRunner().invoke(app, [*arguments, "-o", "name"]).stdout == ""


def test_a_snapshot_next_to_a_record_is_not_a_decision(tmp_path: Path) -> None:
    records = keep(tmp_path, record(FIRST))
    Folder(tmp_path).put(f"clusters/shop/decisions/{FIRST}.snapshot.json.gz", b"")

    assert records.ids() == [FIRST]


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"\x1f\x8bcut", gzip.compress(b"{}")[:12], b'{"format": "x"}']
)
def test_an_invalid_record_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(Rejected, match=r"x\.json: not a decision record"):
        parse_record(data, "x.json")


def test_a_record_of_a_later_format_is_refused() -> None:
    with pytest.raises(Rejected, match="version 2; this release reads version 1"):
        parse_record(json.dumps(record() | {"version": 2}).encode(), "x.json")


def test_the_command_prints_the_record_and_lists_decisions(tmp_path: Path) -> None:
    keep(tmp_path, record(FIRST), record(SECOND, nodes=[node("default/a")], priceHourlyUsd=0.1))

    one = CliRunner().invoke(app, ["explain", "decision", "bbbb", "--keep", str(tmp_path)])
    listed = CliRunner().invoke(app, ["explain", "decisions", "--keep", str(tmp_path)])
    as_json = CliRunner().invoke(app, ["explain", "decision", "aaaa", "--keep", str(tmp_path), "-o", "json"])

    assert f"decision {SECOND}" in one.stdout
    assert listed.stdout.splitlines() == [
        f"{FIRST}  nothing to do",
        f"{SECOND}  1 node at ~$0.1000/hour for 1 pod",
    ]
    assert json.loads(as_json.stdout)["id"] == FIRST


def test_a_file_that_holds_another_decision_than_the_named_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / f"{FIRST}.json"
    file.write_text(json.dumps(record(FIRST)))

    def explained(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["explain", "decision", *arguments, "--file", str(file)])

    assert f"decision {FIRST}" in explained().stdout
    assert explained().stdout == explained("latest").stdout == explained("aaaa").stdout
    assert str(explained("bbbb").exception) == f"--file {file}: holds decision {FIRST}, not bbbb"


def test_a_damaged_record_does_not_hide_other_decisions(tmp_path: Path) -> None:
    keep(tmp_path, record(FIRST), record(SECOND))
    Folder(tmp_path).put(f"clusters/shop/decisions/{FIRST}.json.gz", b"cut")

    listed = CliRunner().invoke(app, ["explain", "decisions", "--keep", str(tmp_path), "-o", "json"])

    assert [each["id"] for each in json.loads(listed.stdout)] == [SECOND]
    assert f"skipped: clusters/shop/decisions/{FIRST}.json.gz: not a decision record" in listed.stderr


def test_control_characters_from_pods_are_escaped(tmp_path: Path) -> None:
    keep(
        tmp_path, record(FIRST, unplaced=[{"pods": ["default/p"], "reason": "needs k NotIn [\x1b]0;x\x07é]"}])
    )

    reported = CliRunner().invoke(app, ["explain", "decision", "aaaa", "--keep", str(tmp_path)]).stdout

    assert r"needs k NotIn [\x1b]0;x\x07é]" in reported
    assert reported.replace("\n", "").isprintable()


def test_records_go_to_a_temporary_folder_if_the_home_is_not_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert writable_state_folder() == tmp_path / "state" / "nodesmith"

    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert writable_state_folder().name.startswith("nodesmith-")


def test_a_replay_without_its_snapshot_is_refused(tmp_path: Path) -> None:
    keep(tmp_path, record(FIRST))

    result = CliRunner().invoke(app, ["explain", "decision", FIRST, "--keep", str(tmp_path), "--replay"])

    assert "its snapshot was not stored" in str(result.exception)
