"""Start and end of the control plane, with the tests' own programs, and its authenticator."""

from __future__ import annotations

import base64
import json
import signal
import socket
import ssl
import threading
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from nodesmith.errors import Rejected
from nodesmith_local.controlplane import ControlPlane, User
from nodesmith_local.controlplane.authenticator import Authenticator, no_user
from nodesmith_local.controlplane.process import Died
from tests.fakes.programs import programs
from tests.patience import eventually

STARTED = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"]


def journal(folder: Path, what: str) -> list[str]:
    lines = (folder / "journal").read_text().splitlines()
    return [line.removeprefix(f"{what} ") for line in lines if line.startswith(what)]


def listens(port: int) -> bool:
    with socket.socket() as trying:
        return trying.connect_ex(("127.0.0.1", port)) == 0


def port_of(plane: ControlPlane) -> int:
    return int(plane.url.rpartition(":")[2])


def test_all_programs_start_and_end_in_reverse_order(tmp_path: Path) -> None:
    with ControlPlane(programs(tmp_path / "bin", tmp_path / "journal"), tmp_path / "plane") as plane:
        assert set(journal(tmp_path, "start")) == set(STARTED)
        assert journal(tmp_path, "start")[:2] == STARTED[:2]
        assert journal(tmp_path, "end") == []
        assert 0 < plane.started_in_seconds < 20
    assert journal(tmp_path, "end") == STARTED[::-1]
    assert not listens(port_of(plane))


def test_its_kubeconfig_works_and_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    with ControlPlane(programs(tmp_path / "bin", tmp_path / "journal"), tmp_path / "plane") as plane:
        kubeconfig = plane.kubeconfig()
        assert kubeconfig["current-context"] == "nodesmith-local"
        assert kubeconfig["clusters"][0]["cluster"]["server"] == plane.url
        assert kubeconfig["users"][0]["user"] == {"token": plane.admin_token}
        authority = base64.b64decode(
            kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"]
        ).decode()
        with urlopen(plane.url, context=ssl.create_default_context(cadata=authority)) as answer:  # noqa: S310
            assert answer.status == 200
        secret = [path for path in plane.folder.iterdir() if path.suffix in {".key", ".csv", ".kubeconfig"}]
        assert len(secret) == 9
        assert {path.stat().st_mode & 0o777 for path in (*secret, plane.folder)} == {0o600, 0o700}


def test_a_program_that_dies_at_the_start_ends_the_others(tmp_path: Path) -> None:
    broken = programs(tmp_path / "bin", tmp_path / "journal", kube_scheduler="echo no such flag; exit 2")
    with (
        pytest.raises(Died, match=r"(?s)kube-scheduler ended with status 2; .*no such flag"),
        ControlPlane(broken, tmp_path / "plane"),
    ):
        pass
    assert set(journal(tmp_path, "start")) == set(journal(tmp_path, "end"))


def test_a_port_that_another_process_took_first_is_replaced_once(tmp_path: Path) -> None:
    once = f'[ -e {tmp_path}/tried ] || {{ touch {tmp_path}/tried; echo "bind: address already in use"; exit 1; }}'
    with ControlPlane(programs(tmp_path / "bin", tmp_path / "journal", kwok=once), tmp_path / "plane"):
        assert journal(tmp_path, "start").count("etcd") == 2
        assert journal(tmp_path, "end").count("etcd") == 1
    always = programs(
        tmp_path / "never", tmp_path / "journal", kwok="echo bind: address already in use; exit 1"
    )
    with pytest.raises(Died, match="address already in use"), ControlPlane(always, tmp_path / "plane"):
        pass


def test_a_port_that_was_asked_for_and_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        plane = ControlPlane(programs(tmp_path / "bin", tmp_path / "journal"), tmp_path / "plane", port=port)
        wanted = f"--port {port}: Address already in use: choose a free one, or 0 for any"
        with pytest.raises(Rejected, match=wanted), plane:
            pass
    assert not (tmp_path / "journal").exists()


def test_an_interrupted_start_ends_what_was_started(tmp_path: Path) -> None:
    slow = programs(
        tmp_path / "bin", tmp_path / "journal", kube_apiserver=f"touch {tmp_path}/begun; sleep 30"
    )
    me = threading.get_ident()

    def interrupt() -> None:
        eventually((tmp_path / "begun").exists)
        signal.pthread_kill(me, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt), ControlPlane(slow, tmp_path / "plane"):
        pass
    assert journal(tmp_path, "start") == journal(tmp_path, "end") == ["etcd"]
    with ControlPlane(programs(tmp_path / "bin2", tmp_path / "journal"), tmp_path / "plane"):
        pass


def test_an_api_server_that_is_restarted_is_back_at_its_port_alone(tmp_path: Path) -> None:
    with ControlPlane(programs(tmp_path / "bin", tmp_path / "journal"), tmp_path / "plane") as plane:
        port = port_of(plane)
        missing = threading.Thread(target=eventually, args=[lambda: not listens(port)])
        missing.start()
        plane.restart_api_server(away_seconds=1)
        assert not missing.is_alive()
        assert listens(port)
        assert port_of(plane) == port
        assert journal(tmp_path, "start").count("kube-apiserver") == 2
        assert journal(tmp_path, "start").count("etcd") == 1
    assert sorted(journal(tmp_path, "end")) == sorted(STARTED)  # the killed program wrote nothing


def test_kubectl_runs_as_the_administrator_and_reads_none_of_the_users_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/users/own")
    binaries = programs(tmp_path / "bin", tmp_path / "journal")
    (binaries / "kubectl").write_text('#!/bin/sh\necho "$@: $KUBECONFIG $KUBERC"\ncat\nexit 4\n')
    with ControlPlane(binaries, tmp_path / "plane") as plane:
        done = plane.kubectl("apply", "-f", "-", stdin="manifest")
        assert done.returncode == 4
        assert done.stdout == f"apply -f -: {plane.folder}/admin.kubeconfig off\nmanifest"
        other = plane.kubectl("get", "pods", kubeconfig=Path("/another"))
        assert other.stdout == "get pods: /another off\n"


def asked(authenticator: Authenticator, token: str) -> dict[str, Any]:
    """Send a TokenReview as kube-apiserver does."""
    url = authenticator.kubeconfig()["clusters"][0]["cluster"]["server"]
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    with urlopen(Request(url, json.dumps(review).encode())) as answer:  # noqa: S310 http, and ours
        reported: dict[str, Any] = json.loads(answer.read())
    assert (reported["apiVersion"], reported["kind"]) == ("authentication.k8s.io/v1", "TokenReview")
    status: dict[str, Any] = reported["status"]
    return status


def test_only_known_tokens_authenticate_as_their_users() -> None:
    known = {"a": User("nodesmith", ("observers", "writers"))}
    with Authenticator(known.get) as authenticator:
        user = {"username": "nodesmith", "groups": ["observers", "writers"]}
        assert asked(authenticator, "a") == {"authenticated": True, "user": user}
        assert asked(authenticator, "b") == {"authenticated": False}
    with Authenticator(no_user) as authenticator:
        assert asked(authenticator, "a") == {"authenticated": False}


def test_an_authenticator_frees_its_port() -> None:
    with Authenticator(no_user) as authenticator:
        port = int(authenticator.kubeconfig()["clusters"][0]["cluster"]["server"].split(":")[2].strip("/"))
        assert listens(port)
    assert not listens(port)
