"""The port of objects that have several writers or are read repeatedly. Every call may raise Transient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

NONE_THERE = ""
"""The version of an object that does not exist"""


@dataclass(frozen=True, slots=True)
class Version:
    """An object as read. `data` is None if the object is still the version that the caller knows."""

    tag: str
    data: bytes | None


class VersionedBlobs(Protocol):
    """Objects by key (S3). Each write creates a new version."""

    def read(self, key: str, known: str = NONE_THERE, largest_bytes: int = ...) -> Version:
        """Read an object unless it is still the version `known`. A missing object has the tag NONE_THERE.

        Raises Rejected for an object of more than `largest_bytes`.
        """

    def replace(self, key: str, data: bytes, known: str) -> str:
        """Write an object if it is still the version `known`. Return its new version. Raises Conflict otherwise."""
