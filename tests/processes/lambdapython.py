"""Run tests on the Python version of Lambda: `make test-lambda`.

    python -m tests.processes.lambdapython tests/unit tests/property
        python -m tests.processes.lambdapython      only installs what is needed; `make setup` runs it

It uses a virtual environment of its own in build/, installed from the same hashed pins. If this machine has no such
Python, it writes NOT_TRIED, which `.ci/run` repeats in its summary.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from layers.vendor.build import LAMBDA
from requirements.install import ROOT, UV, run, uv_environment
from requirements.interpreter import find

VENV = ROOT / "build" / f"venv-{LAMBDA.python}"
NOT_TRIED = ROOT / "build" / "lambda-python-not-tried"
_SETS = ("bootstrap", "run", "dev")
_ONLY_READ_FILES = (
    "tests/unit/repository/test_house_rules.py",
    "tests/unit/docs/test_prose.py",
)
"""Tests of the sources' text, which has no other content on another Python."""


def main(suites: list[str]) -> int:
    """Run pytest for these folders and return its exit status; print a message and return 0 without such a Python.

    Without folders, only install what is needed.
    """
    NOT_TRIED.unlink(missing_ok=True)
    python = find(LAMBDA.python)
    if python is None:
        said = f"this machine has no Python {LAMBDA.python}: the suites were NOT tried on Lambda's Python"
        NOT_TRIED.parent.mkdir(exist_ok=True)
        NOT_TRIED.write_text(f"{said}\n")
        print(said, file=sys.stderr)
        return 0
    installed = _installed(python)
    subprocess.run([installed, "-m", "tests.processes.interpreters"], cwd=ROOT, check=True)
    if not suites:
        return 0
    print(f"on {subprocess.check_output([installed, '-VV'], text=True).strip()}", flush=True)
    command = [
        str(installed),
        "-m",
        "pytest",
        "-n",
        "2",
        "--dist",
        "loadgroup",
        "-p",
        "no:cacheprovider",
        *(f"--ignore={path}" for path in _ONLY_READ_FILES),
        *suites,
    ]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def _installed(python: Path) -> Path:
    """Return the Python of the virtual environment, after installing the pinned packages if necessary."""
    pins = [ROOT / "requirements" / f"{name}.txt" for name in _SETS]
    content = b"".join(file.read_bytes() for file in (*pins, ROOT / "pyproject.toml"))
    wanted = f"{python.resolve()} {sha256(content).hexdigest()}"
    theirs, stamp = VENV / "bin" / "python", VENV / "installed"
    if not stamp.is_file() or stamp.read_text() != wanted:
        shutil.rmtree(VENV, ignore_errors=True)
        environment = uv_environment()
        run([str(UV), "venv", "--quiet", "--no-project", f"--python={python}", str(VENV)], environment)
        install = [str(UV), "pip", "install", "--quiet", "--no-deps", f"--python={theirs}"]
        hashed = ["--require-hashes", *(f"--requirements={file}" for file in pins)]
        run([*install, *hashed], environment)
        run([*install, "--no-build-isolation", "--editable=."], environment)
        stamp.write_text(wanted)
    return theirs


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
