"""The folder of one control plane: used exclusively, and emptied of earlier runs."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nodesmith.errors import Rejected

_MARK = "nodesmith-control-plane"  # marks the folder as a control plane's, and is locked while in use


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Use a folder exclusively during the block, emptied of an earlier control plane's files.

    Raises Rejected for a folder in use, and for one that contains other files.
    """
    mark = folder / _MARK
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not mark.exists() and any(folder.iterdir()):
            raise Rejected(
                f"{folder}: contains other files and stays untouched: name another folder, or an empty one"
            )
        lock = mark.open("a")
    except OSError as error:
        raise Rejected(f"{folder}: {error.strerror}: name another folder") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Rejected(
                f"{folder}: another control plane runs in it: end that one, or name another folder"
            ) from None
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path != mark:
                path.unlink()
        yield
