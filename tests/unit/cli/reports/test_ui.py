"""The page of `nodesmith ui`: who may see it, what it says, and that text from the cluster stays text."""

from __future__ import annotations

import csv
import errno
import io
import json
import logging
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner
from werkzeug.test import TestResponse

from nodesmith.errors import Rejected
from nodesmith.keys import decision_key, decision_snapshot_key
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.ledger.learned import Backoff, Ending, RegistrationHealth
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.observation.encoding import encode
from nodesmith.observation.observed import Observed
from nodesmith.observation.reduction.pods import reduce_pod
from nodesmith_cli.access import preconditions
from nodesmith_cli.access.preconditions import require_page_server
from nodesmith_cli.main import app
from nodesmith_cli.views import ui
from nodesmith_cli.views.ui import running
from nodesmith_cli.views.ui.access import HEADERS, POLICY, Gate
from nodesmith_cli.views.ui.archive import Archive, runs_of
from nodesmith_cli.views.ui.charts import MOST_POINTS, line
from nodesmith_cli.views.ui.fleetmap import Tile, laid_out
from nodesmith_cli.views.ui.pages.history import history
from nodesmith_cli.views.ui.pages.kept import PageData, outcomes
from nodesmith_cli.views.ui.riskmap import risk_map
from nodesmith_cli.views.ui.server import NAVIGATION, Site, make_app
from nodesmith_formats.decisions.records import Folder, Records
from tests.builders import NOW
from tests.objects.savingsclusters import karpenter, node, pod
from tests.servers.uipages import kept_of

PAGES = [name for name, *_ in NAVIGATION]
HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)>\u202egnp.exe\x1b[31m' + "界" * 10_000


SCRIPTS = {
    "htmx.min.js": "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
    "idiomorph-ext.min.js": "5811b9a7eda14878b7dab4378bf60432e1bb6f11fcfb970cc26540642650181e",
}
"""The digests of the scripts of others, as they were published."""


def record(number: int, *, minutes: int = 0, **given: Any) -> dict[str, Any]:
    """Return a decision record. `claims` and `ledger` become its ledger, the rest its plan."""
    plan: dict[str, Any] = {name: [] for name in ("nodes", "unplaced", "ignored", "problems")}
    plan |= {name: {} for name in ("placed", "waiting", "obstacles")}
    at = NOW - timedelta(hours=2) + timedelta(minutes=minutes)
    ledger = {"version": 1, "claims": given.pop("claims", []), **given.pop("ledger", {})}
    return {
        "format": "nodesmith-decision",
        "version": 1,
        "id": f"{at:%Y%m%dT%H%M%SZ}-{number:08x}",
        "concern": given.pop("concern", "provisioning"),
        "cluster": "test",
        "at": at.isoformat(),
        "superseded": False,
        "inputsHash": "ab" * 32,
        "inputs": {
            "snapshot": {"sha256": "ff" * 32, "takenAt": at.isoformat()},
            "catalog": {"region": "us-east-1", "ref": "us-east-1-cafe"},
            "ledger": ledger,
            "settings": {},
        },
        "plan": {**plan, "priceHourlyUsd": 0.0, "boundHourlyUsd": 0.0, "steps": 0, **given},
        "durationsMs": {},
    }


def claim(name: str, phase: str = "Initialized", **fields: Any) -> dict[str, Any]:
    """Return a NodeClaim as a record holds it."""
    born = NOW - timedelta(hours=2)
    return {
        "name": name,
        "node_name": f"ip-{name}",
        "nodepool": "default",
        "instance_type": "m5.large",
        "zone": "us-east-1a",
        "capacity_type": "spot",
        "price_hourly_usd": 0.04,
        "phase": phase,
        "phase_since": born.isoformat(),
        "created_at": born.isoformat(),
        **fields,
    }


def move(*sources: str, saving: float = 0.1) -> dict[str, Any]:
    """Return a proposed move as a record holds it."""
    return {
        "reason": "Underutilized",
        "sources": list(sources),
        "replacements": [],
        "savingHourlyUsd": saving,
        "evictionCost": 2.0,
        "worthUsd": 1.0,
        "message": "its pods fit elsewhere",
    }


@dataclass
class Visitor:
    """A browser. Without a cookie it has not followed the link yet."""

    client: FlaskClient
    gate: Gate
    cookie: str = ""

    def get(self, path: str, method: str = "GET", host: str = "127.0.0.1:8090") -> TestResponse:
        headers = {"Host": host, "Cookie": f"{self.gate.cookie}={self.cookie}"}
        return self.client.open(path, method=method, headers=headers)


def visitor(kept: PageData) -> Visitor:
    """Return a browser that has not followed the link yet."""
    gate = Gate(8090)
    return Visitor(make_app(Site(gate, kept)).test_client(use_cookies=False), gate)


def inside(kept: PageData) -> Visitor:
    """Return a browser that has followed the link."""
    found = visitor(kept)
    return replace(found, cookie=found.gate.token)


def small() -> PageData:
    """Return a small cluster with a pending pod, two decisions and a ledger."""
    pool = OfferingKey("spot", "m5.large", "us-east-1a")
    ledger = Ledger(
        unavailable={pool: Backoff(NOW + timedelta(minutes=5), 2, "InsufficientInstanceCapacity")},
        health={"default": RegistrationHealth("b", endings=(Ending("a", True), Ending("b", False)))},
    )
    records = [
        record(1, minutes=1, claims=[claim("a"), claim("b")]),
        record(2, minutes=2, claims=[claim("a")], concern="disruption", moves=[move("a")]),
    ]
    nodes = [node("one", labels=karpenter()), node("two", labels=karpenter(sold="spot"))]
    return kept_of(nodes, [pod("p", "one"), pod("stuck", "")], records=records, ledger=ledger)


@pytest.mark.parametrize(
    "path", ["/", "/now", "/history.csv", "/static/style.css", "/tokens.css", "/nothing"]
)
def test_nothing_is_shown_without_the_token(path: str) -> None:
    assert visitor(small()).get(path).status_code == 403
    assert replace(visitor(small()), cookie="wrong").get(path).status_code == 403


@pytest.mark.parametrize(
    "host", ["evil.example:8090", "127.0.0.1", "127.0.0.1:80", "", "127.0.0.1:8090.evil.example"]
)
def test_a_request_under_another_host_name_is_refused_even_with_the_token(host: str) -> None:
    assert inside(small()).get("/now", host=host).status_code == 400


def test_localhost_is_the_pages_own_name_too() -> None:
    assert inside(small()).get("/now", host="localhost:8090").status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
def test_methods_that_could_change_something_are_refused(method: str) -> None:
    answer = inside(small()).get("/now", method)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/now", "/enter/wrong", "/nothing", "/static/style.css", "/node/none"])
def test_every_answer_has_the_same_strict_headers(path: str) -> None:
    answer = inside(small()).get(path)
    for name, value in HEADERS.items():
        if not (name == "Cache-Control" and path.startswith("/static/")):
            assert answer.headers.getlist(name) == [value]
    assert POLICY == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


@pytest.mark.parametrize(
    "path",
    ["/static/../server.py", "/static/%2e%2e/server.py", "/static//etc/passwd", "/static/..%5cserver.py"],
)
def test_only_the_pages_own_files_are_served(path: str) -> None:
    assert inside(small()).get(path).status_code == 404


def test_a_link_lets_one_browser_in_and_the_next_link_another() -> None:
    links: list[str] = []
    one = visitor(small())
    one.gate.used = links.append
    first = one.gate.link.removeprefix("http://127.0.0.1:8090")
    answer = one.get(first)
    cookie = answer.headers["Set-Cookie"]
    assert (answer.status_code, answer.headers["Location"]) == (303, "/now")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert one.get(first).status_code == 403
    assert links == [one.gate.link]
    assert one.get(links[0].removeprefix("http://127.0.0.1:8090")).status_code == 303


def test_a_preview_does_not_use_the_link_up() -> None:
    one = visitor(small())
    path = one.gate.link.removeprefix("http://127.0.0.1:8090")
    assert one.get(path, "HEAD").status_code == 403
    assert one.get(path).status_code == 303


def test_the_cookie_is_in_no_page_and_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    client = inside(small())
    gate, once = client.gate, client.gate.link.rpartition("/")[2]
    shown = b"".join(client.get(f"/{page}").data for page in PAGES)
    client.get("/enter/wrong")
    replace(client, cookie="").get(f"/enter/{once}")
    assert gate.token.encode() not in shown
    assert not any(secret in caplog.text for secret in (gate.token, once))
    assert not any(secret in repr(gate) for secret in (gate.token, once))


def test_a_failure_is_logged_without_the_path_and_shown_without_details(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(key: str, now: datetime) -> Iterator[str]:  # noqa: ARG001
        raise ZeroDivisionError

    kept = small()
    kept.events_of = fails
    answer = inside(kept).get("/pod/default/secret-part")
    assert answer.status_code == 500
    assert "ZeroDivisionError" not in answer.text
    assert "a page could not be made" in caplog.text
    assert "secret-part" not in caplog.text


class ClosedWhileWaiting:
    """A server whose loop waits for a socket while another thread closes it."""

    effective_port = 1

    def __init__(self) -> None:
        self.task_dispatcher = self
        self.thread = threading.current_thread()
        self._began, self._closed = threading.Event(), threading.Event()

    def run(self) -> None:
        self.thread = threading.current_thread()
        self._began.set()
        self._closed.wait(60)
        raise OSError(errno.EBADF, "Bad file descriptor")

    def shutdown(self) -> None:
        """End the tasks, of which there are none."""

    def close(self) -> None:
        self._began.wait(60)
        self._closed.set()
        self.thread.join(60)


def test_the_end_of_the_server_is_no_failure_of_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[object] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    monkeypatch.setattr(running, "create_server", lambda *_, **__: ClosedWhileWaiting())
    with running.listening(small(), 0, lambda _: None) as gate:
        assert gate.port == 1
    assert failed == []


def test_each_question_has_an_answer() -> None:
    client = inside(small())
    shown = {page: client.get(f"/{page}").text for page in PAGES}
    assert "2 nodes, $" in shown["now"]
    assert "default/stuck" in shown["why"]
    assert "spot m5.large in us-east-1a" in shown["next"]
    assert "All on demand" in shown["proof"]
    assert "under way" in shown["proof"] or "proposed" in shown["proof"]
    assert "1 of its last 2 nodes joined" in shown["health"]
    assert "The fleet at this time" in shown["history"]


def test_a_cluster_without_decisions_says_how_to_see_them() -> None:
    client = inside(kept_of([node("one")]))
    assert "nodesmith ui --bucket BUCKET --cluster NAME" in client.get("/why").text
    assert "nodesmith ui --bucket BUCKET --cluster NAME" in client.get("/proof").text
    assert client.get("/history").status_code == 200


def test_an_empty_cluster_is_shown() -> None:
    client = inside(kept_of())
    for page in PAGES:
        assert client.get(f"/{page}").status_code == 200
    assert "There are no nodes yet" in client.get("/now").text


@pytest.mark.parametrize(
    "query",
    [
        "page=99999&sort=price",
        "page=-1",
        "page=٣",
        "page=1e9&sort=nothing&state=x",
        "q=%00%FF&zone=%3Cb%3E",
        "_external=1&endpoint=now&_anchor=x",
        "at=99999999",
        "at=yesterday",
        "at=2026-99-99T00:00:00Z",
        "q=" + "x" * 5_000,
    ],
)
def test_a_query_that_makes_no_sense_is_ignored(query: str) -> None:
    client = inside(small())
    for page in PAGES:
        assert client.get(f"/{page}?{query}").status_code == 200


def test_nodes_are_filtered_sorted_and_paged_by_the_server() -> None:
    kept = kept_of([node(f"n-{n:03}", zone=f"us-east-1{'ab'[n % 2]}") for n in range(60)])
    client = inside(kept)
    second = client.get("/now?sort=name&page=2").text
    assert "n-025" in second
    assert "n-024" not in second
    assert "Page 2 of 3" in second
    filtered = client.get("/now?zone=us-east-1b&sort=name").text
    assert "30 nodes" in filtered
    assert "/node/n-000" not in filtered


def test_a_node_that_does_not_exist_is_not_found() -> None:
    assert inside(small()).get("/node/none").status_code == 404
    assert inside(small()).get("/decision/none").status_code == 404


def test_a_decision_without_a_snapshot_has_no_comparison_with_other_plans(tmp_path: Path) -> None:
    unplaced = [{"reason": "no NodePool has label 'team'", "fix": "add it", "pods": ["default/stuck"]}]
    failed, whole = record(1, unplaced=unplaced), record(2, minutes=1, unplaced=unplaced)
    folder = Folder(tmp_path)
    for each in (failed, whole):
        folder.put(decision_key("test", each["id"]), json.dumps(each).encode())
    seen = Observed(pods=[reduced for reduced in [reduce_pod(pod("stuck", ""))] if reduced])
    folder.put(decision_snapshot_key("test", whole["id"]), encode("test", NOW, seen))
    kept = kept_of(records=[failed, whole])
    kept.archive.records = Records(folder, "test")
    client = inside(replace(kept, sources=replace(kept.sources, records=kept.archive.records)))
    assert "Its snapshot is not stored" in client.get(f"/decision/{failed['id']}").text
    assert "Compare with other plans" not in client.get(f"/decision/{failed['id']}").text
    assert "Compare with other plans" in client.get(f"/decision/{whole['id']}").text
    assert "Its snapshot is not stored" in client.get(f"/decision/{failed['id']}/alternatives").text


def test_hostile_text_is_shown_as_text_and_cut() -> None:
    labels = {"karpenter.sh/nodepool": HOSTILE, "node.kubernetes.io/instance-type": HOSTILE}
    waiting = pod("x", "")
    waiting["metadata"]["name"] = HOSTILE
    waiting["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "message": HOSTILE}],
    }
    bad = record(3, claims=[claim("a", zone=HOSTILE, instance_type=HOSTILE)], problems=[HOSTILE])
    kept = kept_of([node(HOSTILE, labels=labels, zone="us-east-1a")], [waiting], records=[bad], name=HOSTILE)
    client = inside(kept)
    for page in PAGES:
        text = client.get(f"/{page}").text
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "\u202e" not in text
        assert "\x1b" not in text
        assert "界" * 400 not in text.replace("%E7%95%8C", "")
    assert "&lt;script&gt;" in client.get("/now").text


def test_the_history_is_a_csv_file_too() -> None:
    made = [record(1, claims=[claim("a")]), record(2, minutes=1)]
    rows = list(
        csv.reader(io.StringIO(inside(kept_of([node("one")], records=made)).get("/history.csv").text))
    )
    assert rows[0] == ["at", "nodes", "usd_per_hour", "pending_pods", "decision", "summary"]
    assert [row[1:3] + row[5:] for row in rows[1:]] == [
        ["1", "0.04", "nothing to do"],
        ["0", "0", "nothing to do"],
    ]


def test_the_scrubber_shows_the_fleet_as_it_was() -> None:
    records = [record(n, minutes=n, claims=[claim(f"c-{k}") for k in range(n)]) for n in range(1, 6)]
    kept = kept_of([node("one")], records=records)
    assert history(kept, "")["moment"].nodes == 5
    assert history(kept, "0")["moment"].nodes == 1
    at = (NOW - timedelta(hours=2) + timedelta(minutes=3, seconds=30)).isoformat()
    assert history(kept, at)["moment"].nodes == 3
    assert 'Nodes <span class="dim">1 to 5</span>' in inside(kept).get("/history").text


def test_commands_that_pages_name_exist_with_their_options() -> None:
    shown = "".join(inside(small()).get(f"/{page}").text for page in PAGES)
    named = [words.split() for words in re.findall(r"<code>nodesmith ([^<]+)</code>", shown)]
    assert ["doctor", "CLUSTER"] in named
    for command, *rest in named:
        reported = CliRunner().invoke(app, [command, "--help"])
        assert reported.exit_code == 0, command
        assert all(each in reported.output for each in rest if each.startswith("-")), rest


@given(
    st.lists(st.tuples(st.sampled_from("abcdefghij"), st.sampled_from("xyz"), st.floats(0, 1e6)), min_size=1)
)
def test_the_map_covers_its_area_once_and_shows_every_node(found: list[tuple[str, str, float]]) -> None:
    tiles = [Tile(zone, kind, "spot", 1, price) for zone, kind, price in found]
    columns = laid_out(tiles)
    assert sum(column.width for column in columns) == pytest.approx(100)
    for column in columns:
        assert sum(placed.height for placed in column.tiles) == pytest.approx(100)
        assert all(placed.height > 0 for placed in column.tiles)
    assert sum(placed.tile.nodes for column in columns for placed in column.tiles) == len(tiles)


def test_the_risk_map_shows_refusals_and_interruptions_in_their_hours() -> None:
    pool = ["spot", "m5.large", "us-east-1a"]
    until = (NOW + timedelta(hours=1)).isoformat()
    held = [[*pool, {"until": until, "failures": 3, "reason": "InsufficientInstanceCapacity"}, ""]]
    calm: dict[str, Any] = {"risks": []}
    lossy: dict[str, Any] = {"risks": [[*pool, {"losses": 0.5, "at": NOW.isoformat()}]]}
    archive = Archive(None)
    for each in (record(1, ledger=calm), record(2, minutes=70, ledger={**lossy, "unavailable": held})):
        archive.add(each["id"], each)
    (row,) = risk_map(archive.decisions, NOW)
    assert [(cell.refusals, cell.interruptions) for cell in row.cells if cell.level] == [(3, 1)]
    assert row.cells[-1].begins <= NOW


def test_moves_are_followed_until_their_nodes_are_gone() -> None:
    ending = claim("a", "Terminating", cause="Underutilized", phase_since=NOW.isoformat())
    archive = Archive(None)

    def add(number: int, minutes: int, *claims: dict[str, Any], **given: Any) -> None:
        made = record(number, minutes=minutes, claims=list(claims), **given)
        archive.add(made["id"], made)

    add(1, 1, claim("a"), claim("b"), concern="disruption", moves=[move("a", saving=0.2)])
    assert [each.became for each in outcomes(archive)] == ["proposed"]
    add(2, 2, ending, claim("b"), concern="disruption", moves=[move("a", saving=0.2)])
    assert [each.became for each in outcomes(archive)] == ["under way"]
    add(3, 3, claim("b"))
    assert [(each.became, each.move.saving_hourly_usd) for each in outcomes(archive)] == [("done", 0.2)]


def test_savings_of_a_node_that_is_proposed_twice_count_once() -> None:
    archive = Archive(None)
    for made in (
        record(1, minutes=1, claims=[claim("a"), claim("b")], concern="disruption", moves=[move("a")]),
        record(2, minutes=2, claims=[claim("a"), claim("b")], concern="disruption", moves=[move("a", "b")]),
        record(3, minutes=3, claims=[claim("a"), claim("b")], concern="disruption", moves=[move("a", "b")]),
        record(4, minutes=4),
    ):
        archive.add(made["id"], made)
    assert [(each.move.sources, each.became) for each in outcomes(archive)] == [
        (("a", "b"), "done"),
        (("a",), "proposed again"),
    ]


def test_a_move_whose_node_ec2_took_is_not_counted_as_done() -> None:
    archive = Archive(None)
    taken = claim("a", "Terminating", cause="SpotInterrupted", phase_since=NOW.isoformat())
    for made in (
        record(1, minutes=1, claims=[claim("a")], concern="disruption", moves=[move("a")]),
        record(2, minutes=2, claims=[taken]),
        record(3, minutes=3),
    ):
        archive.add(made["id"], made)
    assert [each.became for each in outcomes(archive)] == ["ended otherwise"]


def test_a_record_of_another_shape_is_left_out_and_the_others_are_kept() -> None:
    archive = Archive(None)
    archive.add("broken", {"id": "broken", "plan": {}})
    good = record(1)
    archive.add(good["id"], good)
    assert ([each.id for each in archive.decisions], archive.unreadable) == ([good["id"]], 1)


def test_decisions_that_say_the_same_in_a_row_are_one() -> None:
    archive = Archive(None)
    for number in range(3):
        made = record(number, minutes=number)
        archive.add(made["id"], made)
    ((first, times),) = runs_of(archive.decisions)
    assert (first.summary, times) == ("nothing to do", 3)


def test_a_line_has_a_bounded_number_of_points() -> None:
    points = [(NOW + timedelta(seconds=n), float(n % 7)) for n in range(10_000)]
    found = line(points)
    assert found is not None
    assert found.path.count("H") == MOST_POINTS - 1
    assert line(points[:1]) is None


def test_a_missing_server_is_reported_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preconditions, "PAGE_LIBRARIES", ("flask", "no_such_library"))
    with pytest.raises(Rejected, match=r"no_such_library missing.*pipx install --force 'nodesmith\[ui\]'"):
        require_page_server()


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_the_scripts_of_others_are_as_published_and_have_their_licence(name: str) -> None:
    folder = Path(ui.__file__).parent / "static" / "vendor"
    licence = (folder / f"{name.partition('.')[0].removesuffix('-ext')}.LICENSE").read_text()
    assert sha256((folder / name).read_bytes()).hexdigest() == SCRIPTS[name]
    assert licence.startswith("Zero-Clause BSD")
    assert name in (folder / "versions.txt").read_text()


def test_pages_name_no_address_but_their_own() -> None:
    folder = Path(ui.__file__).parent
    own = [*folder.glob("templates/*.html"), *folder.glob("static/*.*")]
    assert len(own) > 12
    named = {
        f"{file.name}: {found}"
        for file in own
        for found in re.findall(r"(?:https?:)?//[\w.-]+", file.read_text())
    }
    assert named == {"icon.svg: http://www.w3.org"}


def test_pages_hold_no_inline_script_or_style() -> None:
    client = inside(small())
    for page in PAGES:
        text = client.get(f"/{page}").text
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]* src=)|javascript:", text)
