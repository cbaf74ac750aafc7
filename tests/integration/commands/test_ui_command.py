"""`nodesmith ui` as a process beside an API server: its link, its answers, its log, and options that do not fit."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from nodesmith_local.apiserver import ApiServer
from tests.objects.savingsclusters import node, pod

_COMMAND = (sys.executable, "-m", "nodesmith_cli.main", "ui", "--no-open", "--no-compare")
_LINK = re.compile(r"nodesmith ui: (http://127\.0\.0\.1:\d+/enter/[\w-]+)\n")


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ApiServer(now=lambda: datetime.now(UTC)) as server:
        waiting = pod("stuck", "")
        del waiting["metadata"]["ownerReferences"]
        server.store.create("nodes", node("ip-10-0-0-1"))
        server.store.create("pods", waiting)
        file = tmp_path_factory.mktemp("ui") / "kubeconfig"
        file.write_text(json.dumps(server.kubeconfig()))
        yield str(file)


@contextmanager
def running(kubeconfig: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield the process and its link."""
    command = [*_COMMAND, "--kubeconfig", kubeconfig]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            found = _LINK.fullmatch(process.stdout.readline())
            assert found, process.stderr.read() if process.stderr else ""
            yield process, found[1]
        finally:
            process.kill()


def ask(link: str, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
    """Return status, headers and text of an answer."""
    connection = HTTPConnection(urlsplit(link).netloc, timeout=30)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    found = (
        answer.status,
        {name.lower(): value for name, value in answer.getheaders()},
        answer.read().decode(),
    )
    connection.close()
    return found


def test_the_printed_link_leads_to_the_page_and_nothing_else_does(kubeconfig: str) -> None:
    with running(kubeconfig) as (process, link):
        assert ask(link, "/now")[0] == 403
        status, headers, _ = ask(link, urlsplit(link).path)
        cookie = headers["set-cookie"].partition(";")[0]
        assert (status, headers["location"]) == (303, "/now")
        status, headers, text = ask(link, "/now", Cookie=cookie)
        assert status == 200
        assert "1 node, $" in text
        assert "default/stuck" in text
        assert "server" not in headers
        assert ask(link, "/now", Cookie=cookie, Host="evil.example")[0] == 400
        process.send_signal(signal.SIGINT)
        reported, logged = process.communicate(timeout=30)
        assert process.returncode == 0
    token = cookie.partition("=")[2]
    assert logged == ""
    assert token not in reported
    assert reported.count("/enter/") == 1  # the link for another browser


def test_it_listens_on_one_address_only(kubeconfig: str) -> None:
    with running(kubeconfig) as (_, link):
        port = urlsplit(link).port
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=5)
        socket.create_connection(("127.0.0.1", port), timeout=5).close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "70000"], "--port 70000: must be between 0 and 65535"),
        (["--cluster", "shop"], "--cluster requires --bucket or --keep"),
        (["--bucket", "b"], "--bucket requires --cluster"),
    ],
)
def test_options_that_do_not_fit_are_reported_in_one_line(
    kubeconfig: str, options: list[str], message: str
) -> None:
    command = [*_COMMAND, "--kubeconfig", kubeconfig, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"nodesmith: {message}")
    assert len(done.stderr.splitlines()) == 1


def test_a_taken_port_is_reported(kubeconfig: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [*_COMMAND, "--kubeconfig", kubeconfig, "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert f"--port {port}: Address already in use; without --port, a free one is taken" in done.stderr


def test_a_folder_without_records_is_reported(kubeconfig: str, tmp_path: Path) -> None:
    command = [*_COMMAND, "--kubeconfig", kubeconfig, "--keep", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert f"no decisions found in {tmp_path}" in done.stderr
