"""A second Python besides the one that runs the tests: decisions must not depend on the version.

    python -m tests.processes.interpreters

finds one and fetches the packages that decisions import; `make setup` runs it.

Pure Python modules come from this checkout and from .venv; compiled ones are fetched for the other Python, with the
same pins.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from layers.vendor.build import LAMBDA
from requirements.install import OLDEST_PYTHON, UV, run, uv_environment
from requirements.interpreter import find

ROOT = Path(__file__).resolve().parents[2]
_COMPILED = ROOT / "requirements" / "lambda-packing.txt"
_OURS = ("layers/core/python", "cli", "formats", "forwarder", "local", ".")
_NEWEST_MINOR = int(LAMBDA.python.partition(".")[2])
"""Lambda's minor version: the pinned packages may have no compiled wheels for later ones."""
NONE_FOUND = "only one Python is on this machine: whether plans are the same on another was NOT tried"


@cache
def other_python() -> Path | None:
    """Return the newest Python up to Lambda's with another minor version than this one, or None if there is none."""
    major, oldest = OLDEST_PYTHON
    minors = (each for each in range(_NEWEST_MINOR, oldest - 1, -1) if (major, each) != sys.version_info[:2])
    return next(filter(None, (find(f"{major}.{minor}") for minor in minors)), None)


def environment(python: Path, seed: str) -> Mapping[str, str]:
    """Return an environment that runs this checkout on a Python with a hash seed; fetch compiled packages if needed."""
    theirs = [] if python == Path(sys.executable) else [compiled(python)]
    path = [*theirs, *(ROOT / name for name in _OURS), Path(sysconfig.get_path("purelib"))]
    return {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(map(str, path))}


def compiled(python: Path) -> Path:
    """Return the folder with the compiled packages for a Python, after filling it if necessary.

    Tests of several processes may ask for it at the same time, so one of them fills it under a lock.
    """
    folder = ROOT / "build" / "interpreters" / python.name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{python.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _fill(folder, python)
    return folder


def _fill(folder: Path, python: Path) -> None:
    pins = folder / "pins.txt"
    wanted = f"{python.resolve()}\n{_COMPILED.read_text()}"
    if pins.is_file() and pins.read_text() == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    install = [str(UV), "pip", "install", "--quiet", "--require-hashes", "--no-deps", "--only-binary=:all:"]
    run(
        [*install, f"--python={python}", f"--target={folder}", f"--requirements={_COMPILED}"],
        uv_environment(),
    )
    pins.write_text(wanted)


if __name__ == "__main__":
    found = other_python()
    if found:
        compiled(found)
    else:
        print(NONE_FOUND, file=sys.stderr)
