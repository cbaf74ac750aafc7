"""Find other Pythons on this machine, and install Lambda's into build/pythons if it is missing.

The search covers the PATH, the folders of uv and pyenv, and earlier installations. uv downloads what is missing. If the
host of uv's downloads is unreachable, Go fetches a module that embeds the same builds, if Go is installed.
"""

from __future__ import annotations

import gzip
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from requirements.install import ROOT, UV, say, uv_environment

INSTALLED = ROOT / "build" / "pythons"
_UNAVAILABLE = "unavailable-{version}"
_DIRECTORY = 1 << 31  # in Go's file modes


@dataclass(frozen=True, slots=True)
class GoModule:
    """A Go module that embeds a Python for Linux and macOS; `sum` is its hash, as in a go.sum."""

    path: str
    sum: str


_GO_MODULES = {
    "3.14": GoModule(
        "github.com/kluctl/go-embed-python@v0.0.0-3.14.6-20260610-1",
        "h1:oGUS7++Wm3LgxUfD6AmJgKbKQD2wdQFO9PzyJv6T+E4=",
    )
}
_GO_MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def find(version: str) -> Path | None:
    """Return the newest Python of a minor version ("3.14") on this machine, or None if there is none."""
    return next(filter(_runs, _candidates(version)), None)


def provide(version: str, *, again: bool = False) -> Path | None:
    """Return a Python of a minor version, installed if necessary; print a message and return None if impossible.

    A version that could not be installed is not retried unless `again` is set.
    """
    found = find(version)
    mark = INSTALLED / _UNAVAILABLE.format(version=version)
    if found or (mark.exists() and not again):
        return found
    say(f"installing Python {version}, which Lambda runs …")
    INSTALLED.mkdir(parents=True, exist_ok=True)
    if (_install_by_uv(version) or _install_by_go(version)) and (found := find(version)):
        mark.unlink(missing_ok=True)
        return found
    mark.touch()
    say(f"Python {version} can neither be found nor installed: install it and run `make setup` again")
    return None


def _candidates(version: str) -> Iterator[Path]:
    """Yield where a Python may be. pyenv puts names on the PATH even for versions that are not selected."""
    name = f"python{version}"
    on_path = shutil.which(name)
    if on_path:
        yield Path(on_path)
    home = Path.home()
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or home / ".local" / "share" / "uv" / "python")
    pyenv = Path(os.environ.get("PYENV_ROOT") or home / ".pyenv") / "versions"
    for folder, pattern in ((uv, f"cpython-{version}.*"), (pyenv, f"{version}.*"), (INSTALLED, "*")):
        yield from sorted(folder.glob(f"{pattern}/bin/{name}"), key=_patch, reverse=True)


def _patch(python: Path) -> list[int]:
    """Return the numbers in the name of a Python's folder, so that 3.13.10 sorts after 3.13.9."""
    return [int(part) for part in python.parts[-3].replace("-", ".").split(".") if part.isdecimal()]


def _runs(python: Path) -> bool:
    """Return whether the file runs: it may be a mere shim, or a build for another machine."""
    try:
        return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _install_by_uv(version: str) -> bool:
    command = [str(UV), "python", "install", version, "--no-bin", f"--install-dir={INSTALLED}"]
    # By default, uv takes ten seconds to find that a host does not exist.
    environment = {"UV_HTTP_RETRIES": "1", **uv_environment()}
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0


def _install_by_go(version: str) -> bool:
    go, module = shutil.which("go"), _GO_MODULES.get(version)
    if go is None or module is None:
        return False
    machine = _GO_MACHINES.get(platform.machine().lower(), "")
    with tempfile.TemporaryDirectory(dir=INSTALLED) as draft:
        fetched = _fetch(go, module, Path(draft))
        embedded = fetched and fetched / "python/internal/data" / f"{platform.system().lower()}-{machine}"
        if embedded is None or not embedded.is_dir():
            return False
        unpacked = Path(draft) / "python"
        _unpack(embedded, unpacked)
        target = INSTALLED / module.path.rpartition("@")[2]
        shutil.rmtree(target, ignore_errors=True)
        unpacked.rename(target)
    return True


def _fetch(go: str, module: GoModule, draft: Path) -> Path | None:
    """Download a module into a temporary cache and return its folder; None if that fails or the hash differs."""
    environment = {
        **os.environ,
        "GOMODCACHE": str(draft / "cache"),
        "GOFLAGS": "-modcacherw",
        "GOWORK": "off",
    }
    command = [go, "mod", "download", "-json", module.path]
    run = subprocess.run(command, cwd=draft, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        return None
    answer = json.loads(run.stdout)
    if answer["Sum"] != module.sum:
        say(f"{module.path} is {answer['Sum']} instead of {module.sum}: not used")
        return None
    return Path(answer["Dir"])


def _unpack(embedded: Path, target: Path) -> None:
    """Write the files that a module embeds, decompressing those that its list marks as compressed."""
    for entry in json.loads((embedded / "files.json").read_text())["files"]:
        source, to = embedded / entry["name"], target / entry["name"]
        if entry["perm"] & _DIRECTORY:
            to.mkdir(parents=True)
        elif entry.get("symlink"):
            to.symlink_to(entry["symlink"])
        else:
            content = source.with_name(f"{source.name}.gz") if entry.get("compressed") else source
            data = content.read_bytes()
            to.write_bytes(gzip.decompress(data) if entry.get("compressed") else data)
            to.chmod(entry["perm"] & 0o777)
