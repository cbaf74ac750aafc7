"""A repository of a registry, through dxf: what is read is checked by digest and size."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import requests
from dxf import DXF, DXFBase
from dxf.exceptions import DXFMountFailed

from nodesmith.errors import Rejected
from nodesmith_cli.image.credentials import Credentials
from nodesmith_cli.image.documents import Descriptor, Encoded
from nodesmith_cli.image.failures import told
from nodesmith_cli.image.references import Reference

Sent = Callable[[int], None]
"""Called with the number of bytes that have gone since the last time."""

_TIMEOUT_SECONDS = 60.0
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest or an index as a registry has it: its own bytes, and what they say."""

    descriptor: Descriptor
    document: Mapping[str, Any]


class Repository:
    """One repository. A context manager that keeps the connection, and the token that it was given.

    Where `writes`, a token is asked for that is good for both: who looks first whether something is there needs no two.
    Every call raises Rejected or Transient, by what may be done about it.
    """

    def __init__(
        self,
        reference: Reference,
        credentials: Credentials | None = None,
        *,
        is_plain: bool = False,
        writes: bool = False,
    ) -> None:
        self.reference = reference
        self._writes = writes
        self._credentials = credentials
        self._dxf = DXF(
            reference.host,
            reference.repository,
            self._authenticate,
            insecure=is_plain,
            timeout=_TIMEOUT_SECONDS,
        )

    def __enter__(self) -> Self:
        self._dxf.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._dxf.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]

    def manifest(self, tag_or_digest: str) -> Manifest:
        """Read a manifest, and hold its bytes against the digest that was asked for, or that the registry gives."""
        with self._told(f"the manifest {tag_or_digest}"):
            _, response = self._dxf.get_manifest_and_response(tag_or_digest)
        digest = f"sha256:{sha256(response.content).hexdigest()}"
        wanted = (
            tag_or_digest if ":" in tag_or_digest else response.headers.get("Docker-Content-Digest", digest)
        )
        if digest != wanted:
            raise Rejected(f"{self.reference.name}: {wanted} was promised, what came is {digest}")
        document = _document(response.content, f"{self.reference.name}@{digest}")
        kind = str(document.get("mediaType") or response.headers.get("Content-Type", ""))
        return Manifest(Descriptor(kind, digest, len(response.content)), document)

    def digest_of(self, tag_or_digest: str) -> str:
        """Return the digest of a manifest that is there; empty where there is none."""
        with self._told(f"the manifest {tag_or_digest}", missing_is_fine=True):
            digest, _ = self._dxf.head_manifest_and_response(tag_or_digest)
            return digest or ""
        return ""

    def has(self, blob: Descriptor) -> bool:
        """Return whether a blob is there."""
        with self._told(f"the blob {blob.digest}", missing_is_fine=True):
            self._dxf.blob_size(blob.digest)
            return True
        return False

    def read(self, blob: Descriptor) -> bytes:
        """Read a small blob, checked by digest and size."""
        return b"".join(self._chunks(blob))

    def document(self, blob: Descriptor) -> Mapping[str, Any]:
        """Read a blob of JSON, checked by digest and size."""
        return _document(self.read(blob), f"{self.reference.name}@{blob.digest}")

    def download(self, blob: Descriptor, path: Path) -> None:
        """Read a blob into a file, checked by digest and size."""
        with path.open("wb") as file:
            for chunk in self._chunks(blob):
                file.write(chunk)

    def upload(self, blob: Descriptor, path: Path, sent: Sent) -> None:
        """Send a blob from a file; the registry holds it against its digest."""

        def progress(_digest: str, chunk: bytes, _size: int) -> None:
            sent(len(chunk))

        with self._told(f"the upload of {blob.digest}"):
            self._dxf.push_blob(str(path), progress=progress, check_exists=False)

    def mount(self, blob: Descriptor, source: Reference) -> bool:
        """Let the registry take a blob over from another repository of its own; False where it does not."""
        try:
            with self._told(f"taking {blob.digest} over from {source.repository}"):
                self._dxf.mount_blob(source.repository, blob.digest)
        except (DXFMountFailed, Rejected):  # not offered, or not ours to read there: it is copied instead
            return False
        return True

    def put(self, manifest: Encoded, tag_or_digest: str) -> None:
        """Store a manifest under a tag or its digest, and hold what is there then against it."""
        with self._told(f"the manifest {tag_or_digest}"):
            self._dxf.set_manifest(tag_or_digest, manifest.content.decode())
        found = self.digest_of(tag_or_digest)
        if found != manifest.descriptor.digest:
            wanted = f"{manifest.descriptor.digest} was pushed as {tag_or_digest}"
            raise Rejected(f"{self.reference.name}: {wanted}, the registry has {found or 'nothing'} there")

    def _chunks(self, blob: Descriptor) -> Iterator[bytes]:
        size = 0
        with self._told(f"the blob {blob.digest}"):
            for chunk in cast("Iterable[bytes]", self._dxf.pull_blob(blob.digest, chunk_size=_CHUNK)):
                size += len(chunk)
                if size > blob.size:
                    break
                yield chunk
        if size != blob.size:
            raise Rejected(
                f"{self.reference.name}@{blob.digest}: {blob.size:,} bytes were promised, {size:,} came"
            )

    def _authenticate(self, dxf: DXFBase, response: requests.Response) -> None:
        given = self._credentials
        name, password = (given.username, given.password) if given else (None, None)
        # Who takes a blob over from another repository is asked for rights in both, and then answers just that.
        is_of_one = response.headers.get("WWW-Authenticate", "").count("repository:") < 2
        actions = ["pull", "push"] if self._writes and is_of_one else None
        dxf.authenticate(name, password, actions, response)

    def _told(self, about: str, *, missing_is_fine: bool = False) -> AbstractContextManager[None]:
        return told(self.reference, self._credentials, about, missing_is_fine=missing_is_fine)


def _document(content: bytes, where: str) -> Mapping[str, Any]:
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise Rejected(f"{where} is no JSON object")
    return document
