"""Sending missing parts to a registry, each once: mounted within the registry, copied from the base, or uploaded."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nodesmith.errors import Transient
from nodesmith_cli.deployment.image.documents import Descriptor, Encoded
from nodesmith_cli.deployment.image.outcome import PartResult, PushedPart
from nodesmith_cli.deployment.image.registry import Repository

OnStep = Callable[[str, int], None]
"""Called with the current step, and the number of bytes sent since the last call."""

_TRIES = 3
_PAUSE_SECONDS = 1.0
_Sent = Literal["uploaded", "mounted"]


def say_nothing(_what: str, _sent_bytes: int) -> None:
    """Ignore progress."""


@dataclass(frozen=True, slots=True)
class Part:
    """A blob to send, from a file or another repository."""

    descriptor: Descriptor
    description: str
    origin: Path | Repository


class Sender:
    """Sends parts to one repository. In a dry run, it only checks which ones exist."""

    def __init__(self, target: Repository, folder: Path, on_step: OnStep, *, is_dry: bool) -> None:
        self._target, self._folder, self._on_step, self._is_dry = target, folder, on_step, is_dry
        self._done: dict[str, PartResult] = {}

    def blob(self, part: Part) -> PushedPart:
        """Send a blob unless it exists. Raises Rejected, Transient."""
        digest = part.descriptor.digest
        if digest not in self._done:
            self._done[digest] = self._fate(part)
        return PushedPart(part.description, digest, part.descriptor.size, self._done[digest])

    def content(self, encoded: Encoded, what: str) -> PushedPart:
        """Send a document as a blob unless it exists."""
        path = self._folder / encoded.descriptor.digest.replace(":", "-")
        path.write_bytes(encoded.content)
        return self.blob(Part(encoded.descriptor, what, path))

    def document(self, encoded: Encoded, tag_or_digest: str, what: str) -> PushedPart:
        """Store a manifest or an index unless it exists."""
        digest = encoded.descriptor.digest
        result: PartResult = "missing" if self._is_dry else "uploaded"
        if self._target.digest_of(tag_or_digest) == digest:
            result = "there"
        elif not self._is_dry:
            self._on_step(f"storing the {what} {tag_or_digest}", 0)
            self._target.put(encoded, tag_or_digest)
        return PushedPart(what, digest, encoded.descriptor.size, result)

    def _fate(self, part: Part) -> PartResult:
        if self._target.has(part.descriptor):
            return "there"
        return "missing" if self._is_dry else self._again(part)

    def _again(self, part: Part) -> PartResult:
        """Send a part, and retry after transient errors, such as broken connections."""
        for tries in range(1, _TRIES + 1):
            try:
                return self._sent(part)
            except Transient as error:
                if tries == _TRIES:
                    raise Transient(f"{error}; run the command again to continue") from None
                self._on_step(f"retrying: {error}", 0)
                time.sleep(_PAUSE_SECONDS * tries)
        raise AssertionError("unreachable")

    def _sent(self, part: Part) -> _Sent:
        if isinstance(part.origin, Path):
            return self._upload(part, part.origin)
        source = part.origin.reference
        is_near = source.registry == self._target.reference.registry
        if is_near and self._target.mount(part.descriptor, source):
            return "mounted"
        path = self._folder / part.descriptor.digest.replace(":", "-")
        self._on_step(f"reading {part.description}", 0)
        part.origin.download(part.descriptor, path)
        return self._upload(part, path)

    def _upload(self, part: Part, path: Path) -> Literal["uploaded"]:
        about = f"sending {part.description}"
        self._target.upload(part.descriptor, path, lambda sent: self._on_step(about, sent))
        return "uploaded"
