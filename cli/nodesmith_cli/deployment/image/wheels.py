"""The forwarder's dependencies as wheels for the image's platform, fetched by pip with verified hashes, and unpacked.

pip uses its configured index, proxy and certificates. No code from wheels is executed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from zipfile import BadZipFile, ZipFile, ZipInfo

from nodesmith.errors import Rejected, Transient
from nodesmith_cli.deployment.image.layers import Entry

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""The supported architectures, with their names in wheels."""
# Debian 10's; pip itself knows which older tags manylinux2014 includes.
_NEWEST_GLIBC, _OLDEST_GLIBC = (
    28,
    17,
)
_DATA = re.compile(r"[^/]+\.data/(?P<scheme>[^/]+)/(?P<rest>.+)")
_IMPORTABLE = {"purelib", "platlib"}
_PATIENCE_SECONDS = 900
_LAST_LINES = 5


def fetch_wheels(
    requirements: Path, python: str, architecture: str, target: Path, folder: Path | None = None
) -> list[Path]:
    """Fetch the pinned wheels for a Python version (3.13) on Linux into `target`, from the index or from `folder`.

    Raises Rejected if a wheel is unavailable or does not match its hash, Transient if the index is unreachable.
    """
    if find_spec("pip") is None:
        raise Rejected(
            f"pip is not installed for {sys.executable}: run python -m ensurepip, or reinstall nodesmith"
        )
    target.mkdir(parents=True, exist_ok=True)
    source = [] if folder is None else ["--no-index", f"--find-links={folder.absolute()}"]
    command = [*_pip(python, architecture), *source, f"--dest={target}", f"--requirement={requirements}"]
    try:
        done = subprocess.run(  # noqa: S603 the command is ours
            command, capture_output=True, text=True, check=False, timeout=_PATIENCE_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise Transient(
            f"fetching wheels took longer than {_PATIENCE_SECONDS} s; run the command again"
        ) from None
    if done.returncode:
        raise _failure(done.stderr, python, architecture)
    return sorted(target.glob("*.whl"))


@contextmanager
def wheel_entries(wheels: Sequence[Path]) -> Iterator[dict[str, Entry]]:
    """Yield the importable files of wheels, by their path. They are readable within the block. Raises Rejected.

    Scripts and headers are omitted.
    """
    with ExitStack() as stack:
        entries: dict[str, Entry] = {}
        for wheel in wheels:
            try:
                archive = stack.enter_context(ZipFile(wheel))
            except BadZipFile:
                raise Rejected(f"{wheel.name} is not a wheel") from None
            for member in archive.infolist():
                if place := _place(member, wheel):
                    is_executable = bool(member.external_attr >> 16 & 0o111)
                    entries[place] = Entry(partial(archive.read, member), is_executable)
        yield entries


def _pip(python: str, architecture: str) -> list[str]:
    machine, abi = MACHINES[architecture], f"cp{python.replace('.', '')}"
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(_NEWEST_GLIBC, _OLDEST_GLIBC - 1, -1)]
    return [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"),
        *("--no-deps", "--require-hashes", "--only-binary=:all:"),
        *("--implementation=cp", f"--python-version={python}"),
        *(f"--abi={tag}" for tag in (abi, "abi3", "none")),
        *(f"--platform={tag}" for tag in (*platforms, f"manylinux2014_{machine}")),
    ]


def _failure(pip_output: str, python: str, architecture: str) -> Rejected | Transient:
    lines = [line.strip() for line in pip_output.splitlines() if line.strip()]
    output = "\n".join(f"  {line}" for line in lines[-_LAST_LINES:])
    about = f"wheels for Python {python} on linux/{architecture}: pip reports\n{output}"
    stays = "No matching distribution" in pip_output or "DO NOT MATCH THE HASHES" in pip_output
    return Rejected(about) if stays and "Retrying" not in pip_output else Transient(about)


def _place(member: ZipInfo, wheel: Path) -> str:
    """Return the path of a member, or an empty string for a folder or a file that is not importable."""
    name = "" if member.is_dir() else member.filename
    if match := _DATA.fullmatch(name):
        name = match["rest"] if match["scheme"] in _IMPORTABLE else ""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise Rejected(f"{wheel.name}: {member.filename!r} is outside the archive")
    return str(path) if name else ""
