"""Child processes: their logs, their end, and their owner's end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nodesmith.errors import Rejected
from nodesmith_local.controlplane import process as processes
from nodesmith_local.controlplane.folders import claimed
from nodesmith_local.controlplane.ports import free_ports
from nodesmith_local.controlplane.process import Died, Process
from tests.patience import eventually


def program(folder: Path, script: str) -> Path:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def keep_checking(process: Process) -> None:
    for _ in range(500):
        process.check()
        time.sleep(0.02)


def runs(pid: int) -> bool:
    """Return whether a process is alive and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def numbers(log: Path) -> list[int]:
    eventually(lambda: log.exists() and log.read_text().endswith("\n"))
    return [int(number) for number in log.read_text().split()]


def test_a_program_that_ends_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "program.log"
    process = Process([program(tmp_path, "seq 100; echo sorry >&2; exit 7")], log)
    with pytest.raises(Died) as reported:
        keep_checking(process)
    process.stop()
    lines = str(reported.value).splitlines()
    assert lines[0] == f"program ended with status 7; the end of {log}:"
    assert lines[-2:] == ["  100", "  sorry"]
    assert len(lines) < 20


def test_a_killed_program_is_reported_with_its_signal(tmp_path: Path) -> None:
    process = Process([program(tmp_path, "kill -9 $$")], tmp_path / "log")
    with pytest.raises(Died, match="program was killed by signal 9"):
        keep_checking(process)
    process.stop()


def test_a_program_is_terminated_before_it_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = Process(
        [program(tmp_path, "trap 'echo bye; exit' TERM; echo here; while :; do sleep 0.02; done")], log
    )
    eventually(lambda: "here" in log.read_text())
    process.stop()
    assert log.read_text().split() == ["here", "bye"]


def test_a_program_that_does_not_terminate_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_STOP_SECONDS", 0.2)
    log = tmp_path / "log"
    process = Process([program(tmp_path, "trap '' TERM; echo $$; while :; do sleep 0.02; done")], log)
    (pid,) = numbers(log)
    process.stop()
    assert not runs(pid)


def test_child_processes_end_with_their_program(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = Process([program(tmp_path, "sleep 300 & echo $!; wait")], log)
    (child,) = numbers(log)
    assert runs(child)
    process.stop()
    eventually(lambda: not runs(child))


OWNER = """
import sys, threading, time
from pathlib import Path
from nodesmith_local.controlplane.process import Process
kept = []
start = lambda: kept.append(Process([Path(sys.argv[1])], Path(sys.argv[2])))
if sys.argv[3] == "here":
    start()
else:
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
print("started", flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("thread", ["here", "in a thread that ends"])
def test_a_program_ends_when_its_owner_is_killed_and_not_before(tmp_path: Path, thread: str) -> None:
    path, log = program(tmp_path, "echo $$; while :; do sleep 0.02; done"), tmp_path / "log"
    python = [sys.executable, "-c", OWNER, str(path), str(log), thread]
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(python, stdout=subprocess.PIPE, env={**os.environ, **paths}) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"started\n"
        (pid,) = numbers(log)
        time.sleep(0.2)
        assert runs(pid)
        owner.send_signal(signal.SIGKILL)
    eventually(lambda: not runs(pid))


def test_a_program_does_not_see_our_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETCD_NAME", "users-own")
    log = tmp_path / "log"
    process = Process([program(tmp_path, 'echo "<$ETCD_NAME> $HOME"; read -r x; echo end')], log)
    eventually(lambda: "end" in log.read_text())
    process.stop()
    assert log.read_text() == f"<> {tmp_path}\nend\n"


def test_a_folder_belongs_to_one_control_plane(tmp_path: Path) -> None:
    with (
        claimed(tmp_path / "plane"),
        pytest.raises(Rejected, match="another control plane runs in it: end that one"),
        claimed(tmp_path / "plane"),
    ):
        pass
    with claimed(tmp_path / "plane"):
        pass


def test_what_an_earlier_control_plane_left_is_removed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    folder = tmp_path / "plane"
    with claimed(folder):
        (folder / "etcd" / "member").mkdir(parents=True)
        (folder / "etcd.log").touch()
        (folder / "link").symlink_to(precious)
    with claimed(folder):
        assert [path.name for path in folder.iterdir()] == ["nodesmith-control-plane"]
    assert (precious / "file").exists()


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with (
        pytest.raises(Rejected, match=f"{tmp_path}: contains other files and stays untouched"),
        claimed(tmp_path),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Rejected, match="file: File exists: name another folder"), claimed(tmp_path / "file"):
        pass


def test_ports_differ_and_lie_outside_the_range_of_outgoing_connections() -> None:
    ports = free_ports()
    chosen = [ports.apiserver, ports.etcd, ports.peers, ports.controllers, ports.scheduler, ports.kwok]
    assert len(set(chosen)) == 6
    assert max(chosen) < 32768


@pytest.mark.parametrize(("port", "why"), [(1 << 16, "must be 0-65535"), (-1, "must be 0-65535")])
def test_an_invalid_port_is_refused(port: int, why: str) -> None:
    with pytest.raises(Rejected, match=f"--port {port}: .*{why}"):
        free_ports(port)
