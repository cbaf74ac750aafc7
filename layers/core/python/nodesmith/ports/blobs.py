"""The port of objects that several write, or that are read again and again. Every call may raise Transient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

NONE_THERE = ""
"""The version of an object that is not there"""


@dataclass(frozen=True, slots=True)
class Version:
    """What an object held when it was read. `data` is None where it is still what it was in the version known."""

    tag: str
    data: bytes | None


class VersionedBlobs(Protocol):
    """Objects by key, each write of which is another version (S3)."""

    def read(self, key: str, known: str = NONE_THERE, largest_bytes: int = ...) -> Version:
        """Read an object unless it is still the version `known`; one that is not there has the tag NONE_THERE.

        Raises Rejected for one that is larger.
        """

    def replace(self, key: str, data: bytes, known: str) -> str:
        """Write an object that is still the version `known`; return its new one. Raises Conflict where it is not."""
