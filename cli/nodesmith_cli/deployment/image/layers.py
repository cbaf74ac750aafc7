"""Layers of an image. The same files always give the same bytes, regardless of the time and the machine."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO

_LEVEL = 6  # level 9 takes three times as long and saves 1%


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a layer: a function that reads its content, and whether it is executable."""

    read: Callable[[], bytes]
    is_executable: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer in a file. `digest` and `size` (bytes) are those of the file; `diff_id` is that of the unpacked tar."""

    path: Path
    digest: str
    diff_id: str
    size: int
    what: str


class _Counted:
    """A writer that passes data on, and computes its digest and size."""

    def __init__(self, target: BinaryIO | gzip.GzipFile) -> None:
        self._target, self._digest, self.size = target, sha256(), 0

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        self.size += len(data)
        return self._target.write(data)

    def flush(self) -> None:
        self._target.flush()

    @property
    def digest(self) -> str:
        return f"sha256:{self._digest.hexdigest()}"


def write_layer(path: Path, entries: Mapping[str, Entry], folder: str, what: str) -> Layer:
    """Write a layer with entries, by relative path, under `folder` of the image."""
    root = PurePosixPath(folder.strip("/"))
    with path.open("wb") as file:
        packed = _Counted(file)
        with gzip.GzipFile("", "wb", _LEVEL, packed, mtime=0) as stream:
            plain = _Counted(stream)
            with tarfile.open(fileobj=plain, mode="w|") as archive:  # type: ignore[call-overload]
                for name, entry in _with_folders({str(root / name): e for name, e in entries.items()}):
                    _add(archive, name, entry)
    return Layer(path, packed.digest, plain.digest, packed.size, what)


def package_entries(package: Path) -> dict[str, Entry]:
    """Return a Python package's files without compiled ones. Their names start with the package's name."""
    files = (path for path in sorted(package.rglob("*")) if path.is_file())
    return {
        str(PurePosixPath(package.name, *path.relative_to(package).parts)): Entry(path.read_bytes)
        for path in files
        if path.suffix != ".pyc"
    }


def _with_folders(entries: Mapping[str, Entry]) -> Iterator[tuple[str, Entry | None]]:
    folders = {str(parent) for name in entries for parent in PurePosixPath(name).parents} - {"."}
    everything: dict[str, Entry | None] = {**dict.fromkeys(folders), **entries}
    yield from sorted(everything.items(), key=lambda item: item[0])


def _add(archive: tarfile.TarFile, name: str, entry: Entry | None) -> None:
    """Add a file, or a folder if there is no entry: owned by root, without a time, readable by all."""
    info = tarfile.TarInfo(name)
    if entry is None:
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(info)
        return
    content = entry.read()
    info.size, info.mode = len(content), 0o755 if entry.is_executable else 0o644
    archive.addfile(info, BytesIO(content))
