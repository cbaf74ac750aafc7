"""Source of the control plane's programs: a named folder, or a build with the tests' own Go."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from nodesmith.errors import Rejected
from nodesmith_local.controlplane import PROGRAMS, binaries, find_binaries
from tests.patience import eventually

GO_MOD = "module test\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/kubernetes v1.36.3\n)\n"
GO = """#!/bin/sh
case "$1" in
env) echo "${FAKE_GO_VERSION:-go1.26.8}" ;;
build)
    while [ "$1" != -o ]; do shift; done
    echo "$2" >>"$FAKE_GO_CALLS"
    echo "$@" >>"$FAKE_GO_CALLS.arguments"
    echo half >"$2"
    ${FAKE_GO_BUILDS:-true}
    status=$?
    chmod +x "$2"
    exit $status ;;
esac
"""


class Checkout:
    """A checkout with Go modules, and a Go that records what it builds."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules = root / "tests/e2e/controlplane"
        self.built = root / "build/controlplane"
        self.calls = root / "calls"
        self.messages: list[str] = []
        for name in ("go.mod", "go.sum", "main.go"):
            path = self.modules / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(GO_MOD if name == "go.mod" else name)
        go = root / "bin/go"
        go.parent.mkdir()
        go.write_text(GO)
        go.chmod(0o755)

    def find(self) -> Path:
        return find_binaries(self.messages.append, self.root)

    def builds(self) -> list[str]:
        return [Path(line).name for line in self.calls.read_text().split()] if self.calls.exists() else []


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    checkout = Checkout(tmp_path)
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE_GO_CALLS", str(checkout.calls))
    return checkout


def assets(folder: Path, *names: str) -> Path:
    folder.mkdir()
    for name in names:
        (folder / name).touch(mode=0o755)
    return folder


def test_a_named_folder_with_all_programs_is_taken_and_nothing_is_built(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = assets(tmp_path / "assets", *PROGRAMS)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(folder))
    assert checkout.find() == folder
    assert checkout.builds() == []


def test_a_named_folder_that_lacks_programs_is_refused_with_their_names(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = assets(tmp_path / "assets", "etcd", "kube-apiserver", "kubectl", "kwok")
    (folder / "kwok").chmod(0o644)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(folder))
    lacking = f"KUBEBUILDER_ASSETS={folder}: lacks kube-controller-manager, kube-scheduler, kwok: "
    with pytest.raises(Rejected, match=re.escape(lacking)):
        checkout.find()
    assert checkout.builds() == []


def test_an_installed_package_asks_for_a_checkout_or_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    with pytest.raises(Rejected, match="from a checkout, or set KUBEBUILDER_ASSETS to a folder with etcd, "):
        find_binaries(checkout=tmp_path)


def test_this_checkout_has_the_module_that_the_programs_are_built_from() -> None:
    assert (binaries._CHECKOUT / "tests" / "e2e" / "controlplane" / "go.mod").is_file()


def test_missing_programs_are_built_once(checkout: Checkout) -> None:
    assert checkout.find() == checkout.built
    assert all(os.access(checkout.built / name, os.X_OK) for name in PROGRAMS)
    assert (checkout.built / "etcd").resolve() == checkout.built / "controlplane"
    assert "about 5 minutes the first time" in checkout.messages[0]
    assert checkout.find() == checkout.built
    assert len(checkout.builds()) == 1


def test_the_build_gets_kubernetes_version_from_go_mod(checkout: Checkout) -> None:
    checkout.find()
    arguments = Path(f"{checkout.calls}.arguments").read_text()
    for reported in ("gitVersion=v1.36.3", "gitMajor=1", "gitMinor=36", "gitTreeState=clean"):
        assert f"-X k8s.io/component-base/version.{reported}" in arguments


def test_built_programs_need_no_go(checkout: Checkout) -> None:
    checkout.find()
    (checkout.root / "bin/go").unlink()
    assert checkout.find() == checkout.built


@pytest.mark.parametrize("changed", ["go.mod", "main.go", "go.sum"])
def test_modules_that_have_changed_are_built_again(checkout: Checkout, changed: str) -> None:
    checkout.find()
    with (checkout.modules / changed).open("a") as file:
        file.write("// changed\n")
    checkout.find()
    assert len(checkout.builds()) == 2


@pytest.mark.parametrize("missing", ["kwok", "kubectl", "controlplane", "stamp"])
def test_deleted_programs_are_built_again(checkout: Checkout, missing: str) -> None:
    checkout.find()
    (checkout.built / missing).unlink()
    checkout.find()
    assert len(checkout.builds()) == 2
    assert (checkout.built / missing).exists()


def test_without_go_the_error_says_what_to_install(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout.root / "bin/go").unlink()
    monkeypatch.setenv("PATH", str(checkout.root / "bin"))
    wanted = r"which is not installed: install Go 1\.26\.0 or newer .*or set KUBEBUILDER_ASSETS"
    with pytest.raises(Rejected, match=wanted):
        checkout.find()


@pytest.mark.parametrize("version", ["go1.9", "go1.25.9", ""])
def test_a_go_that_is_too_old_is_refused(checkout: Checkout, version: str) -> None:
    (checkout.root / "bin/go").write_text(f'#!/bin/sh\n[ "$1" = env ] && echo "{version}"\n')
    with pytest.raises(Rejected, match=r"go is too old .*: install Go 1\.26\.0 or newer"):
        checkout.find()


def test_a_build_that_fails_shows_the_end_of_gos_output_and_leaves_nothing_to_run(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_GO_BUILDS", "eval seq 100; echo main.go:7: undefined: cobra >&2; false")
    with pytest.raises(
        Rejected, match=r"(?s)building the control plane failed; .*100\n  main.go:7: undefined"
    ) as reported:
        checkout.find()
    assert len(str(reported.value).splitlines()) < 20
    assert not (checkout.built / "controlplane").exists()
    monkeypatch.setenv("FAKE_GO_BUILDS", "true")
    assert checkout.find() == checkout.built


def test_a_full_disk_says_how_much_is_needed(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_BUILDS", "eval echo write x: no space left on device >&2; false")
    with pytest.raises(Rejected, match="no space left on the device: about 5 GB are needed"):
        checkout.find()


def test_a_folder_that_cannot_be_written_is_named(checkout: Checkout) -> None:
    checkout.built.parent.mkdir()
    checkout.built.write_text("in the way")
    with pytest.raises(Rejected, match=rf"{checkout.built}: File exists"):
        checkout.find()


def test_a_killed_build_is_repeated(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_BUILDS", "sleep 30")
    program = "import sys; from pathlib import Path; from nodesmith_local.controlplane import find_binaries; "
    program += "find_binaries(checkout=Path(sys.argv[1]))"
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    python = [sys.executable, "-c", program, str(checkout.root)]
    with subprocess.Popen(python, env={**os.environ, **paths}, start_new_session=True) as building:
        eventually(lambda: (checkout.built / ".controlplane").exists())
        os.killpg(building.pid, signal.SIGKILL)
    assert not (checkout.built / "controlplane").exists()
    monkeypatch.setenv("FAKE_GO_BUILDS", "true")
    assert checkout.find() == checkout.built


def test_an_interrupted_build_ends_go(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_BUILDS", "exec sleep 600")
    began = time.monotonic()
    me = threading.get_ident()

    def interrupt() -> None:
        eventually(lambda: (checkout.built / ".controlplane").exists())
        signal.pthread_kill(me, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        checkout.find()
    assert time.monotonic() - began < 300


def test_two_processes_do_not_build_at_once(checkout: Checkout) -> None:
    checkout.find()
    (checkout.built / "stamp").rename(checkout.built / "kept")
    with (checkout.built / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = threading.Thread(target=checkout.find)
        waiting.start()
        eventually(lambda: any("another process is building" in line for line in checkout.messages))
        (checkout.built / "kept").rename(checkout.built / "stamp")  # the other process is done
    waiting.join(60)
    assert not waiting.is_alive()
    assert len(checkout.builds()) == 1
