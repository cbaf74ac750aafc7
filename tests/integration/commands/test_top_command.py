"""`nodesmith top` beside an API server: one plain look, JSON lines, and as a process in a real terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nodesmith_local.apiserver import ApiServer
from tests.objects.savingsclusters import node, pod
from tests.processes.plancommand import Run, command
from tests.processes.terminals import Terminal

_COMMAND = (sys.executable, "-m", "nodesmith_cli.main", "top")


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ApiServer(now=lambda: datetime.now(UTC)) as server:
        server.store.create("nodes", node("ip-10-0-0-1"))
        server.store.create("pods", unowned(pod("web-1", "ip-10-0-0-1")))
        server.store.create("pods", unowned(pod("stuck", "")))
        file = tmp_path_factory.mktemp("top") / "kubeconfig"
        file.write_text(json.dumps(server.kubeconfig()))
        yield str(file)


def unowned(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a pod without the ReplicaSet that does not exist here, whose garbage it would be."""
    del manifest["metadata"]["ownerReferences"]
    return manifest


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return `nodesmith top` without a terminal, in this process, as a function of its arguments."""
    top = command(monkeypatch, capsys, "top")
    return lambda kubeconfig, *options: top("--kubeconfig", kubeconfig, *options)


def test_without_a_terminal_one_look_is_printed_as_sentences(run: Run, kubeconfig: str) -> None:
    done = run(kubeconfig, "--once")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(
        "nodesmith-local: 1 node (1 ready), 2 pods\nPrice: $0.19 an hour, $140 a month."
    )
    assert "Pending: default/stuck" in done.out
    assert "\x1b" not in done.out


def test_json_is_one_document_a_line(run: Run, kubeconfig: str) -> None:
    done = run(kubeconfig, "-o", "json", "--once")
    (line,) = done.out.splitlines()
    assert [each["name"] for each in json.loads(line)["nodes"]] == ["ip-10-0-0-1"]


def test_one_look_has_the_reason_that_nodesmith_gave_for_a_pending_pod(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    with ApiServer(now=lambda: datetime.now(UTC)) as server:
        waiting = server.store.create("pods", unowned(pod("stuck", "")))
        server.store.create(
            "events", refusal(waiting, "nodesmith", "label 'team' does not have known values")
        )
        file.write_text(json.dumps(server.kubeconfig()))
        done = run(str(file), "--once")
    assert "label 'team' does not have known values" in done.out, done


def refusal(waiting: Mapping[str, Any], component: str, message: str) -> dict[str, Any]:
    """Return an Event with which a component says why it did not place a pod."""
    metadata = waiting["metadata"]
    about = {"kind": "Pod", "namespace": "default", "name": metadata["name"], "uid": metadata["uid"]}
    return {
        "metadata": {"name": f"{metadata['name']}.1", "namespace": "default"},
        "involvedObject": about,
        "reason": "FailedScheduling",
        "message": message,
        "source": {"component": component},
        "lastTimestamp": "2026-11-26T10:00:00Z",
    }


def test_nodes_that_name_no_region_are_shown_without_prices(run: Run, tmp_path: Path) -> None:
    nowhere = node("here")
    nowhere["spec"].pop("providerID", None)
    nowhere["metadata"]["labels"] = {"kubernetes.io/hostname": "here"}
    file = tmp_path / "kubeconfig"
    with ApiServer(now=lambda: datetime.now(UTC)) as server:
        server.store.create("nodes", nowhere)
        file.write_text(json.dumps(server.kubeconfig()))
        done = run(str(file), "--once")
    assert done.status == 0, done.err
    assert "Node here: unknown type" in done.out
    assert "prices: no node names its region by label or provider id" in done.out


def test_a_cluster_that_cannot_be_reached_is_reported_in_one_line(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    with ApiServer(now=lambda: datetime.now(UTC)) as server:
        file.write_text(json.dumps(server.kubeconfig()))
    done = run(str(file), "--once")
    assert done.status == 2
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("seconds", ["0.1", "nan", "inf", "1e+20"])
def test_an_interval_that_nobody_can_wait_for_is_refused(run: Run, kubeconfig: str, seconds: str) -> None:
    done = run(kubeconfig, "--every", seconds)
    expected = f"nodesmith: --every {seconds}: must be between 1 and 86400 seconds\n"
    assert (done.status, done.err) == (2, expected)


@pytest.mark.parametrize("key", ["q", "\x03"], ids=["q", "Ctrl-C"])
def test_in_a_terminal_nodes_and_pending_pods_are_drawn_and_a_key_quits(kubeconfig: str, key: str) -> None:
    with Terminal([*_COMMAND, "--kubeconfig", kubeconfig, "--no-compare"]) as terminal:
        terminal.until("ip-10-0-0-1", "$0.19/hour", "pending default/stuck", "Quit")
        terminal.press("\t")
        terminal.until("PENDING PODS")
        terminal.press(key)
        assert terminal.process.wait(timeout=30) == 0
