"""AWS's API models, read once for the process: botocore reads them once a session, and each function has its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from unittest.mock import patch

from botocore.loaders import JSONFileLoader


@contextmanager
def models_are_shared() -> Iterator[None]:
    """Share the models between the sessions that are opened in the block; a second of start-up in every four."""
    read = JSONFileLoader().load_file
    with patch.object(JSONFileLoader, "load_file", staticmethod(cache(read))):
        yield
