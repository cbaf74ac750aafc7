"""Wheels for tests and their pins: small ones, or installed packages packed again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile, ZipInfo

_WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n"


def make_wheel(
    folder: Path, name: str, files: Mapping[str, bytes], *, version: str = "1.0", tag: str = "py3-none-any"
) -> Path:
    """Make a wheel with these files, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path, info = folder / f"{name}-{version}-{tag}.whl", f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    written = {
        **files,
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": _WHEEL.format(tag=tag).encode(),
    }
    with ZipFile(path, "w") as archive:
        for each, content in written.items():
            archive.writestr(ZipInfo(each), content)  # has no time: equal wheels have equal bytes
        record = "".join(f"{each},,\n" for each in (*written, f"{info}/RECORD"))
        archive.writestr(ZipInfo(f"{info}/RECORD"), record)
    return path


def pack_installed(folder: Path, names: Sequence[str]) -> list[Path]:
    """Pack installed packages into wheels for this Python and machine."""
    return [_pack(folder, name) for name in names]


def _pack(folder: Path, name: str) -> Path:
    package = distribution(name)
    tags = re.findall(r"^Tag: (\S+?)-(\S+?)-(\S+)$", package.read_text("WHEEL") or "", re.MULTILINE)
    tag = "-".join(".".join(sorted(set(each))) for each in zip(*tags, strict=True))
    tag = tag.replace("-linux_", "-manylinux_2_17_")  # a build of this machine runs on this machine
    files = {
        str(file): Path(str(package.locate_file(file))).read_bytes()
        for file in package.files or ()
        if not {"..", "__pycache__"} & set(file.parts) and ".dist-info" not in file.parts[0]
    }
    called = package.metadata["Name"].replace("-", "_").replace(".", "_").lower()
    return make_wheel(folder, called, files, version=package.version, tag=tag)


def write_pins(path: Path, wheels: Sequence[Path]) -> Path:
    """Write a requirements file that pins the wheels by hash."""
    hashes: dict[str, list[str]] = {}
    for wheel in wheels:
        name, version = wheel.name.split("-")[:2]
        hashes.setdefault(f"{name}=={version}", []).append(sha256(wheel.read_bytes()).hexdigest())
    path.write_text(
        "".join(
            f"{pin} {' '.join(f'--hash=sha256:{each}' for each in all_)}\n" for pin, all_ in hashes.items()
        )
    )
    return path
