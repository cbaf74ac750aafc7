"""Build of the programs with Go: once, and again when their module changes; never leaves a partial result."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nodesmith.errors import Rejected

OnStep = Callable[[str], None]
_BINARY = "controlplane"
_SOURCES = ("go.mod", "go.sum", "main.go")
# Debugger symbols are dropped when linking (-s -w), so none are generated. That saves a sixth of the time and a fifth
# of the disk space.
_FLAGS = ("-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false")
# No C compiler is needed. Go's compiler processes are too short-lived for garbage collection to pay; turning it off
# saves a tenth of the time.
_ENVIRONMENT = {"CGO_ENABLED": "0", "GOGC": "off", "GOMEMLIMIT": "2GiB"}
_KUBERNETES = re.compile(r"^\s*k8s\.io/kubernetes v((\d+)\.(\d+)\.\S+)", re.MULTILINE)
_GO = re.compile(r"^go (\S+)", re.MULTILINE)
_VERSIONS = "k8s.io/component-base/version"
_TELL_EVERY_SECONDS = 20.0
_LAST_LINES = 15
_INSTEAD = "or set KUBEBUILDER_ASSETS to a folder that holds the programs"
_SPACE = "about 5 GB are needed: 1 for Go's module cache, 2.6 for its build cache, the rest while linking"


@dataclass(frozen=True, slots=True)
class Build:
    """The Go module, the output folder, and the names of the programs."""

    modules: Path
    folder: Path
    programs: tuple[str, ...]

    def make(self, on_step: OnStep) -> None:
        """Build unless the output is current. Raises Rejected with what to install, or with the end of Go's output."""
        if self.is_current():
            return
        go = self._go()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._alone(on_step):
                if not self.is_current():
                    self._build(go, on_step)
        except OSError as error:
            needed = f": {_SPACE}" if error.errno == errno.ENOSPC else ""
            raise Rejected(f"{self.folder}: {error.strerror}{needed}, {_INSTEAD}") from None

    def is_current(self) -> bool:
        """Return whether all programs exist and were built from the module as it is now."""
        is_complete = all(os.access(self.folder / name, os.X_OK) for name in self.programs)
        return is_complete and self._stamp.is_file() and self._stamp.read_text() == self._wanted()

    @property
    def _stamp(self) -> Path:
        return self.folder / "stamp"

    def _wanted(self) -> str:
        """Return a hash of the programs' sources and flags."""
        digest = hashlib.sha256(" ".join((*_FLAGS, *_ENVIRONMENT.values(), self._link_flags())).encode())
        for name in _SOURCES:
            digest.update(name.encode() + b"\0" + (self.modules / name).read_bytes())
        return digest.hexdigest() + "\n"

    def _link_flags(self) -> str:
        """Return linker flags that omit symbols and set Kubernetes' version, which the build lacks."""
        path = _KUBERNETES.search((self.modules / "go.mod").read_text())
        if path is None:
            raise Rejected(f"{self.modules / 'go.mod'}: does not require k8s.io/kubernetes: restore the file")
        version, major, minor = path.groups()
        versions = {
            "gitVersion": f"v{version}",
            "gitMajor": major,
            "gitMinor": minor,
            "gitTreeState": "clean",
        }
        return " ".join(("-s -w", *(f"-X {_VERSIONS}.{name}={value}" for name, value in versions.items())))

    def _go(self) -> str:
        """Return the path of a Go that is new enough. Raises Rejected."""
        needed = _GO.search((self.modules / "go.mod").read_text())
        version = needed.group(1) if needed else ""
        remedy = f"install Go {version} or newer (https://go.dev/dl), {_INSTEAD}"
        go = shutil.which("go")
        if go is None:
            raise Rejected(f"a real control plane is built with Go, which is not installed: {remedy}")
        # Run beside go.mod: there, a Go that can download the required version reports that version.
        process = subprocess.run(  # noqa: S603 the command is ours
            [go, "env", "GOVERSION"], cwd=self.modules, capture_output=True, text=True, check=False
        )
        installed = process.stdout.strip().removeprefix("go")
        if process.returncode or _numbers(installed) < _numbers(version):
            raise Rejected(f"{go} is too old ({installed or process.stderr.strip()}): {remedy}")
        return go

    @contextmanager
    def _alone(self, on_step: OnStep) -> Iterator[None]:
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_step("another process is building the control plane: waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _build(self, go: str, on_step: OnStep) -> None:
        self._stamp.unlink(missing_ok=True)
        on_step("building a control plane from Go modules: about 5 minutes the first time, seconds later")
        self._compile(go, on_step)
        for name in self.programs:
            unfinished = self.folder / f".{name}"
            unfinished.unlink(missing_ok=True)
            unfinished.symlink_to(_BINARY)
            unfinished.replace(self.folder / name)
        unfinished = self.folder / ".stamp"
        unfinished.write_text(self._wanted())
        unfinished.replace(self._stamp)

    def _compile(self, go: str, on_step: OnStep) -> None:
        """Build the binary under a temporary name, then rename it, so that it is complete or absent."""
        unfinished = self.folder / f".{_BINARY}"
        output = ["-o", str(unfinished.absolute())]
        command = [go, "build", *_FLAGS, *output, f"-ldflags={self._link_flags()}", "."]
        log, started_at = self.folder / f"{_BINARY}.log", time.monotonic()
        with log.open("w") as log_file, _running(command, self.modules, log_file) as process:
            while process.poll() is None:
                try:
                    process.wait(_TELL_EVERY_SECONDS)
                except subprocess.TimeoutExpired:
                    on_step(f"building the control plane: {time.monotonic() - started_at:.0f} s so far")
        if process.returncode:
            unfinished.unlink(missing_ok=True)
            raise Rejected(_failure(log))
        unfinished.replace(self.folder / _BINARY)
        on_step(f"the control plane is built: {time.monotonic() - started_at:.0f} s")


@contextmanager
def _running(command: list[str], folder: Path, output: object) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(  # noqa: S603 the command is ours
        command,
        cwd=folder,
        env={**os.environ, **_ENVIRONMENT},
        stdin=subprocess.DEVNULL,
        stdout=output,  # type: ignore[call-overload]
        stderr=subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # Go then ends its compilers too
            process.wait()


def _failure(log: Path) -> str:
    log_text = log.read_text(errors="replace")
    if "no space left on device" in log_text:
        return f"building the control plane: no space left on the device: {_SPACE}, {_INSTEAD}"
    tail = "\n".join(f"  {line}" for line in log_text.splitlines()[-_LAST_LINES:])
    return f"building the control plane failed; the end of {log}:\n{tail}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))
