"""`nodesmith top` as a process beside an API server: one plain look, JSON lines, and a real terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nodesmith_local.apiserver import ApiServer
from tests.savingsclusters import node, pod
from tests.terminals import Terminal

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


def run(kubeconfig: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*_COMMAND, "--kubeconfig", kubeconfig, *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_without_a_terminal_one_look_is_printed_as_sentences(kubeconfig: str) -> None:
    done = run(kubeconfig, "--once")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "nodesmith-local: 1 node (1 ready), 2 pods\nPrice: $0.19 an hour, $140 a month."
    )
    assert "Pending: default/stuck" in done.stdout
    assert "\x1b" not in done.stdout


def test_json_is_one_document_a_line(kubeconfig: str) -> None:
    done = run(kubeconfig, "-o", "json", "--once")
    (line,) = done.stdout.splitlines()
    assert [each["name"] for each in json.loads(line)["nodes"]] == ["ip-10-0-0-1"]


def test_nodes_that_name_no_region_are_shown_without_prices(tmp_path: Path) -> None:
    nowhere = node("here")
    nowhere["spec"].pop("providerID", None)
    nowhere["metadata"]["labels"] = {"kubernetes.io/hostname": "here"}
    file = tmp_path / "kubeconfig"
    with ApiServer(now=lambda: datetime.now(UTC)) as server:
        server.store.create("nodes", nowhere)
        file.write_text(json.dumps(server.kubeconfig()))
        done = run(str(file), "--once")
    assert done.returncode == 0, done.stderr
    assert "Node here: unknown type" in done.stdout
    assert "prices: no node names its region by label or provider id" in done.stdout


def test_a_cluster_that_cannot_be_reached_is_told_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    with ApiServer(now=lambda: datetime.now(UTC)) as server:
        file.write_text(json.dumps(server.kubeconfig()))
    done = run(str(file), "--once")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_an_interval_below_a_second_is_refused(kubeconfig: str) -> None:
    done = run(kubeconfig, "--every", "0.1")
    assert (done.returncode, done.stderr) == (2, "nodesmith: --every 0.1: must be at least 1 second\n")


def test_in_a_terminal_nodes_and_pending_pods_are_drawn_and_q_quits(kubeconfig: str) -> None:
    with Terminal([*_COMMAND, "--kubeconfig", kubeconfig, "--no-compare"]) as terminal:
        terminal.until("ip-10-0-0-1", "$0.19/hour", "pending default/stuck", "Quit")
        terminal.press("\t")
        terminal.until("PENDING PODS")
        terminal.press("q")
        assert terminal.process.wait(timeout=30) == 0
