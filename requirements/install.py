"""Install requirement sets and this checkout into .venv: the first step of every make target.

    python3 requirements/install.py run dev infra

Uses the standard library only, because nothing else is installed yet. It makes .venv, has pip fetch uv, has uv fetch
the rest with hashes checked, and installs the checkout as editable, so that `.venv/bin/nodesmith` runs the working
tree. A stamp in .venv records its content; while nothing has changed, only the stamp is read. Other packages stay.

Packages come from the index in pip's own configuration (pip.conf, PIP_*). uv does not read that, so it is translated.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

OLDEST_PYTHON = (3, 11)
ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
UV = VENV / "bin" / "uv"
STAMP = VENV / "installed.json"
PIP_PACKAGE = VENV / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages" / "pip"

# pip's setting: the variable with the same meaning for uv.
TRANSLATION = {
    "index-url": "UV_INDEX_URL",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
    "proxy": "ALL_PROXY",
    "cert": "SSL_CERT_FILE",
}
PIP_SECTIONS = ("global", "user", "site", "install", ":env:")  # later ones override earlier ones


def install(sets: list[str]) -> None:
    """Bring .venv up to date with requirements/SET.txt of each set; exit with a message if a step fails."""
    present = read_stamp()
    wanted = {name: digest(f"requirements/{name}.txt") for name in ["bootstrap", *sets]}
    if sets:
        wanted["project"] = digest("pyproject.toml")
    missing = [name for name, value in wanted.items() if present.get(name) != value]
    if not missing:
        return
    started = time.monotonic()
    say(f"installing {', '.join(missing)} into {VENV.name} …")
    if "bootstrap" in missing:
        bootstrap()
    environment = uv_environment()
    uv_install = [str(UV), "pip", "install", "--quiet", "--no-deps", "--python", str(PYTHON)]
    for name in missing:
        if name in sets:
            run([*uv_install, "--require-hashes", f"--requirements=requirements/{name}.txt"], environment)
    if "project" in missing:
        run([*uv_install, "--no-build-isolation", "--editable=."], environment)
    write_stamp({**present, **wanted})
    say(f"installed in {time.monotonic() - started:.1f} s")


def digest(path: str) -> str:
    """Return the digest of a file of the checkout."""
    try:
        return sha256((ROOT / path).read_bytes()).hexdigest()
    except FileNotFoundError:
        sys.exit(f"nodesmith: there is no {path}")


def read_stamp() -> dict[str, str]:
    """Return the content of .venv, set → digest; empty if it is missing, broken, or for another Python."""
    try:
        stamp: dict[str, str] = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}
    return stamp if usable() else {}


def write_stamp(stamp: dict[str, str]) -> None:
    """Record the content of .venv atomically: an interrupted run leaves either the old stamp or the new one."""
    draft = STAMP.with_suffix(".new")
    draft.write_text(json.dumps(stamp, indent=1))
    draft.replace(STAMP)


def usable() -> bool:
    """Return whether .venv is usable: it has an interpreter, and pip for this Python version."""
    return PYTHON.exists() and PIP_PACKAGE.is_dir()


def bootstrap() -> None:
    """Make .venv unless a usable one exists, and have pip install uv and the build backend into it."""
    if not usable():
        run([sys.executable, "-m", "venv", "--clear", str(VENV)], dict(os.environ))
    pip_install = [str(PYTHON), "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    run([*pip_install, "--requirement=requirements/bootstrap.txt"], dict(os.environ))


def uv_environment() -> dict[str, str]:
    """Return the environment for uv.

    It holds pip's configuration in uv's variables; uv's own variables take precedence.
    """
    pip_config = [str(PYTHON), "-m", "pip", "config", "list"]
    listing = subprocess.run(pip_config, capture_output=True, text=True, check=True).stdout
    # As pip does: use the system's certificates, and treat all indexes alike (safe, because the hashes are pinned).
    as_pip_does = {"UV_SYSTEM_CERTS": "1", "UV_INDEX_STRATEGY": "unsafe-best-match"}
    return {**as_pip_does, **translated(listing), **os.environ}


def translated(listing: str) -> dict[str, str]:
    """Translate the output of `pip config list`, such as global.index-url='…' or :env:.cert='…', to uv's variables."""
    found = re.findall(r"^([\w:]+)\.([\w-]+)=(.*)$", listing, re.MULTILINE)
    settings = {}
    for section in PIP_SECTIONS:
        settings.update({key: ast.literal_eval(value) for where, key, value in found if where == section})
    words = {TRANSLATION[key]: value.split() for key, value in settings.items() if key in TRANSLATION}
    # uv wants commas here and rejects a missing folder, which pip ignores.
    links = [link for link in words.pop("UV_FIND_LINKS", []) if "://" in link or Path(link).is_dir()]
    variables = {name: " ".join(value) for name, value in words.items()}
    return {**variables, "UV_FIND_LINKS": ",".join(links)} if links else variables


def run(command: list[str], environment: dict[str, str]) -> None:
    """Run one step in the checkout's root; its output goes to the terminal. Exit if it fails."""
    if subprocess.run(command, cwd=ROOT, env=environment, stdout=sys.stderr).returncode:
        sys.exit(
            f"nodesmith: this step failed: {' '.join(command)}\n"
            "  Its own message is above. Set-up needs Python's venv module (Debian, Ubuntu: apt install python3-venv)\n"
            "  and the package index that pip is configured for (python3 -m pip config list); later, no network."
        )


def say(message: str) -> None:
    """Print a progress message to the terminal."""
    print(f"nodesmith: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    if sys.version_info < OLDEST_PYTHON:
        found = f"{sys.executable} is {sys.version.split()[0]}"
        sys.exit(f"nodesmith needs Python 3.11 or newer; {found}. Name one that is: make PYTHON=python3.12 …")
    install(sys.argv[1:])
