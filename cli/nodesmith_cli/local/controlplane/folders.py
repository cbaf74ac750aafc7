"""The folder of one control plane: nobody else's meanwhile, and nothing of an earlier run in it."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nodesmith.errors import Rejected

_MARK = "nodesmith-control-plane"  # names a folder as ours, and is locked while it is in use


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Have a folder for oneself, empty.

    What an earlier control plane left is removed. Raises Rejected for a folder in use, and for one with anything else
    in it.
    """
    mark = folder / _MARK
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not mark.exists() and any(folder.iterdir()):
            raise Rejected(
                f"{folder}: holds other files and is left alone: name another folder, or an empty one"
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
        for each in folder.iterdir():
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each)
            elif each != mark:
                each.unlink()
        yield
