"""`nodesmith ledger`: which objects it reads, how it groups, and what it writes."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.costs.allocations import (
    DAY,
    DAYS,
    HOUR,
    HOURS,
    MONTHS,
    MOVES,
    NANO,
    Allocation,
    Kind,
    MoveOutcome,
    Owner,
    allocations_key,
    write_rows,
)
from nodesmith_cli.costs.showback.command import ShowbackRequest, run
from nodesmith_cli.costs.showback.grouping import grouped, in_dollars
from nodesmith_cli.costs.showback.reading import BookedCosts, read_month
from nodesmith_cli.costs.showback.writing import ROW_COLUMNS, all_rows, to_csv, to_parquet
from nodesmith_formats.decisions.records import Folder

NOW = datetime(2026, 11, 26, 13, 5, tzinfo=UTC)
TODAY = NOW.replace(hour=0, minute=0)


def row(cents: int = 100, owner: Owner | None = None, **fields: Any) -> Allocation:
    owner = owner or Owner(Kind.WORKLOAD, "shop", "Deployment/web", FrozenMap({"team": "red"}))
    place = ("node-1", "i-1", "default", "m5.large", "us-east-1a", "spot", "nodesmith")
    amount = cents * NANO // 100
    money = {"cpu_nano_usd": amount, "nano_usd": amount, "hourly_nano_usd": amount}
    known = {"pods": 1, "seconds": 3600, "cpu_milli_seconds": 3_600_000, **money}
    return Allocation(TODAY, TODAY + HOUR, *place, owner=owner, **(known | fields))


IDLE = row(50, Owner(Kind.IDLE, "__idle__"))
AGENT = row(25, Owner(Kind.DAEMONSET, "kube-system", "DaemonSet/agent"))
PLAIN = row(65, Owner(Kind.WORKLOAD, "shop", "Job/import"))
ROWS = [row(110), IDLE, AGENT, PLAIN]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder with today's first hour, and the record that makes the cluster known there."""
    found = Folder(tmp_path)
    found.put("clusters/test/decisions/d-1.json.gz", b"")
    put(found, HOURS, "2026-11-26/00", ROWS)
    return found


def put(folder: Folder, kind: str, window: str, rows: list[Allocation] | list[MoveOutcome]) -> None:
    folder.put(allocations_key(kind, "test", window), write_rows(each.to_row() for each in rows))


def shown(folder: Folder, capsys: pytest.CaptureFixture[str], output: str = "table", **options: Any) -> str:
    view = options.pop("view", "costs")
    assert run(ShowbackRequest("test", keep=folder.path, **options), view, output, NOW) == 0
    return capsys.readouterr().out


def test_costs_are_shown_by_namespace_with_idle_apart(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(folder, capsys).splitlines()
    assert lines[0] == "from 2026-11-26 00:00 to 2026-11-26 01:00 UTC, in USD"
    assert [line.split()[:3] for line in lines[2:]] == [
        ["shop", "1.75", "70.0%"],
        ["__idle__", "0.50", "20.0%"],
        ["kube-system", "0.25", "10.0%"],
        ["total", "2.50", "100.0%"],
    ]


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("team", ["red", "__unallocated__", "__idle__"]),
        ("label", ["team=red", "__unallocated__", "__idle__"]),
        ("workload", ["shop/Deployment/web", "shop/Job/import", "__idle__", "kube-system/DaemonSet/agent"]),
        ("kind", ["workload", "__idle__", "daemonset"]),
        ("node", ["node-1"]),
        ("capacity-type", ["spot"]),
        ("manager", ["nodesmith"]),
    ],
)
def test_costs_are_grouped_by_a_property_or_a_label(by: str, names: list[str]) -> None:
    groups = grouped(ROWS, by)
    assert [group.name for group in groups] == names
    assert sum(group.sum("nano_usd") for group in groups) == 250 * NANO // 100


def test_an_unknown_label_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(Rejected) as error:
        grouped(ROWS, "taem")
    assert str(error.value).startswith("--by 'taem': neither one of namespace, workload,")
    assert "did you mean 'team'" in str(error.value)
    assert "labels in these rows: team (the setting ALLOCATION_LABELS of the cluster's registration" in str(
        error.value
    )


def test_a_month_in_the_future_or_of_another_form_is_refused() -> None:
    with pytest.raises(Rejected, match="--month 2026-12: is in the future; this month is 2026-11"):
        read_month("2026-12", NOW)
    with pytest.raises(Rejected, match="--month '2026-13': expected a month such as 2026-11"):
        read_month("2026-13", NOW)
    assert read_month("", NOW) == datetime(2026, 11, 1, tzinfo=UTC)


def test_a_month_without_costs_is_refused_with_those_that_have_some(folder: Folder) -> None:
    put(folder, MONTHS, "2026-09", ROWS)
    with pytest.raises(Rejected, match="no booked costs in 2026-08; there are some in 2026-09, 2026-11"):
        BookedCosts(folder, "test").month(datetime(2026, 8, 1, tzinfo=UTC), NOW)


def test_days_are_read_instead_of_their_hours_and_a_month_instead_of_its_days(folder: Folder) -> None:
    november = datetime(2026, 11, 1, tzinfo=UTC)
    put(folder, DAYS, "2026-11-25", [row(500)])
    put(folder, HOURS, "2026-11-25/07", [row(9)])
    assert (
        sum(each.nano_usd for each in BookedCosts(folder, "test").month(november, NOW)) == 750 * NANO // 100
    )
    put(folder, MONTHS, "2026-11", [row(1000)])
    assert [each.nano_usd for each in BookedCosts(folder, "test").month(november, NOW)] == [10 * NANO]


def test_an_object_that_is_damaged_or_missing_is_reported_and_the_rest_is_shown(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.put(allocations_key(HOURS, "test", "2026-11-26/01"), b"damaged")
    put(folder, HOURS, "2026-11-20/07", [row(9)])
    run(ShowbackRequest("test", keep=folder.path), "costs", "table", NOW)
    reported = capsys.readouterr()
    assert "total" in reported.out
    assert "2026-11-20: the object of the day is missing; 1 hours are used" in reported.err
    assert "allocations/hours/test/2026-11-26/01.jsonl.gz: not gzip-compressed (" in reported.err


def test_json_has_whole_nano_dollars(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(shown(folder, capsys, "json", by="team"))
    assert (document["cluster"], document["month"], document["by"]) == ("test", "2026-11", "team")
    assert document["nano_usd"] == 2_500_000_000
    assert document["groups"][0]["name"] == "red"
    assert document["groups"][1]["daemonset_nano_usd"] == 250_000_000


def test_csv_has_every_row_or_groups(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(shown(folder, capsys, "csv"))))
    assert [*rows[0]] == [name for name, _ in ROW_COLUMNS]
    assert sum(int(each["nano_usd"]) for each in rows) == 2_500_000_000
    groups = list(csv.DictReader(io.StringIO(shown(folder, capsys, "csv", by="team"))))
    assert [each["name"] for each in groups] == ["red", "__unallocated__", "__idle__"]


@pytest.mark.parametrize("hostile", ['=HYPERLINK("x")', "+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_cell_that_a_spreadsheet_would_run_is_marked_as_text(hostile: str) -> None:
    owner = Owner(Kind.WORKLOAD, hostile, "Deployment/web", FrozenMap({"team": hostile}))
    text = to_csv(all_rows("test", [row(owner=owner)]), ROW_COLUMNS)
    (found,) = csv.DictReader(io.StringIO(text, newline=""))
    assert found["namespace"] == f"'{hostile}"
    assert json.loads(found["labels"]) == {"team": hostile}
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in found.values())


def test_control_characters_of_names_do_not_reach_the_terminal(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, HOURS, "2026-11-26/01", [row(owner=Owner(Kind.WORKLOAD, "\x1b[31mred" + "x" * 300))])
    out = shown(folder, capsys)
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) < 200


def test_parquet_has_the_same_rows_and_typed_columns(tmp_path: Path) -> None:
    hostile = row(owner=Owner(Kind.WORKLOAD, "it's", 'Deployment/"web"', FrozenMap({"a'b": "c\n"})))
    target = tmp_path / "rows.parquet"
    target.write_bytes(to_parquet(all_rows("test", [*ROWS, hostile]), ROW_COLUMNS))
    with duckdb.connect() as database:
        found = database.read_parquet(str(target))
        assert [*found.columns] == [name for name, _ in ROW_COLUMNS]
        assert dict(zip(found.columns, map(str, found.types), strict=True))["nano_usd"] == "BIGINT"
        read = found.project("namespace, labels, nano_usd, estimated").fetchall()
    assert read[0] == ("shop", {"team": "red"}, 1_100_000_000, False)
    assert read[-1] == ("it's", {"a'b": "c\n"}, NANO, False)


def test_opencost_gets_its_own_names_and_the_same_sum(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(shown(folder, capsys, "opencost", by="workload"))
    (found,) = document["data"]
    assert document["code"] == 200
    assert sum(each["totalCost"] for each in found.values()) == pytest.approx(2.5)
    web = found["shop/Deployment/web"]
    assert web["properties"] == {
        "cluster": "test",
        "node": "node-1",
        "providerID": "i-1",
        "namespace": "shop",
        "controller": "web",
        "controllerKind": "deployment",
        "labels": {"team": "red"},
    }
    assert (web["cpuCoreHours"], web["cpuCores"], web["minutes"]) == (1.0, 1.0, 60.0)
    assert web["window"] == {"start": "2026-11-26T00:00:00Z", "end": "2026-11-26T01:00:00Z"}
    assert "__idle__" in found


MADE = MoveOutcome(
    "m-1", "Underutilized", TODAY, "cheaper", ("a",), ("b",), NANO // 10, NANO // 5, NANO // 5, NANO // 20
)
SETTLED = replace(
    MADE,
    sources_nano_usd=5 * NANO,
    replacements_nano_usd=3 * NANO,
    moved_again=("b",),
    causes=("SpotInterrupted",),
    settled_at=TODAY + DAY,
)


def test_moves_are_shown_with_what_came_of_them(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    put(folder, MOVES, "2026-11-26/00", [MADE, replace(MADE, id="m-2", replacements=())])
    put(folder, MOVES, "2026-11-27/00", [SETTLED])
    lines = shown(folder, capsys, view="moves").splitlines()
    assert lines[0] == "2 moves, 1 settled a day later"
    assert lines[1].endswith("a by b: promised 2.40 USD a day, saved 2.00 USD")
    assert lines[2].strip() == "b has ended again: SpotInterrupted"
    assert lines[3].endswith("a: promised 2.40 USD a day, so far 0.15 USD")
    assert lines[4] == "settled moves promised 2.40 USD a day and saved 2.00"
    document = json.loads(shown(folder, capsys, "json", view="moves"))
    assert [each["saved_nano_usd"] for each in document] == [2 * NANO, 150_000_000]


def test_files_are_written_where_asked(
    folder: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "costs.csv"
    assert shown(folder, capsys, "csv", to=str(target)) == f"written to {target}\n"
    assert target.read_text().startswith("cluster,window_start,")
    with pytest.raises(Rejected, match="No such file or directory"):
        run(ShowbackRequest("test", keep=folder.path, to="/nowhere/x.csv"), "costs", "csv", NOW)
    with pytest.raises(Rejected, match="--to bucket: requires --bucket"):
        run(ShowbackRequest("test", keep=folder.path, to="bucket"), "costs", "csv", NOW)
    with pytest.raises(Rejected, match="-o csv: moves are shown as table or json"):
        run(ShowbackRequest("test", keep=folder.path), "moves", "csv", NOW)


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0.00"), (4_999_999, "0.00"), (5_000_000, "0.01"), (-5_000_000, "-0.01"), (-1, "0.00")],
)
def test_amounts_are_rounded_to_cents(amount: int, text: str) -> None:
    assert in_dollars(amount) == text
    assert in_dollars(1_234_567 * NANO) == "1,234,567.00"
