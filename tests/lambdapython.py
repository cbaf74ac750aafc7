"""Run tests on the Python that Lambda runs: `make test-lambda`.

    python -m tests.lambdapython tests/unit tests/property
    python -m tests.lambdapython      only installs what is needed; `make setup` does it

It gets a virtual environment of its own in build/, filled from the same hashed pins. Where no such Python is on this
machine, NOT_TRIED is written, and `.ci/run` repeats it in its summary.
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


def main(suites: list[str]) -> int:
    """Run pytest for some folders and return its exit status; 0 where there is no such Python, which is said.

    Without folders, only install what is needed.
    """
    NOT_TRIED.unlink(missing_ok=True)
    python = find(LAMBDA.python)
    if python is None:
        said = f"no Python {LAMBDA.python} is on this machine: the suites were NOT tried on what Lambda runs"
        NOT_TRIED.parent.mkdir(exist_ok=True)
        NOT_TRIED.write_text(f"{said}\n")
        print(said, file=sys.stderr)
        return 0
    installed = _installed(python)
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
        *suites,
    ]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def _installed(python: Path) -> Path:
    """Return the Python of the virtual environment, which holds what is pinned by now."""
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
