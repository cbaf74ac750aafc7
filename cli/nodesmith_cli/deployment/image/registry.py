"""A repository in a registry, accessed through dxf. Everything read is verified by digest and size."""

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
from nodesmith_cli.deployment.image.credentials import Credentials
from nodesmith_cli.deployment.image.documents import Descriptor, Encoded
from nodesmith_cli.deployment.image.failures import failure
from nodesmith_cli.deployment.image.references import Reference

Sent = Callable[[int], None]
"""Called with the number of bytes sent since the last call."""

_TIMEOUT_SECONDS = 60.0
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest or an index in a registry, with its descriptor."""

    descriptor: Descriptor
    document: Mapping[str, Any]


class Repository:
    """One repository: a context manager that keeps the connection and its token.

    With `writes`, it requests a token for both reading and writing, to avoid a second one after the existence checks.
    Every call raises Rejected for permanent errors, and Transient for others.
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
        """Read a manifest, and verify its content against the requested digest, or the one from the registry."""
        with self._errors(f"the manifest {tag_or_digest}"):
            _, response = self._dxf.get_manifest_and_response(tag_or_digest)
        digest = f"sha256:{sha256(response.content).hexdigest()}"
        wanted = (
            tag_or_digest if ":" in tag_or_digest else response.headers.get("Docker-Content-Digest", digest)
        )
        if digest != wanted:
            raise Rejected(f"{self.reference.name}: expected {wanted}, but received {digest}")
        document = _document(response.content, f"{self.reference.name}@{digest}")
        kind = str(document.get("mediaType") or response.headers.get("Content-Type", ""))
        return Manifest(Descriptor(kind, digest, len(response.content)), document)

    def digest_of(self, tag_or_digest: str) -> str:
        """Return the digest of a manifest, or an empty string if it does not exist."""
        with self._errors(f"the manifest {tag_or_digest}", missing_is_fine=True):
            digest, _ = self._dxf.head_manifest_and_response(tag_or_digest)
            return digest or ""
        return ""

    def has(self, blob: Descriptor) -> bool:
        """Return whether a blob exists."""
        with self._errors(f"the blob {blob.digest}", missing_is_fine=True):
            self._dxf.blob_size(blob.digest)
            return True
        return False

    def read(self, blob: Descriptor) -> bytes:
        """Read a small blob, verified by digest and size."""
        return b"".join(self._chunks(blob))

    def document(self, blob: Descriptor) -> Mapping[str, Any]:
        """Read a JSON blob, verified by digest and size."""
        return _document(self.read(blob), f"{self.reference.name}@{blob.digest}")

    def download(self, blob: Descriptor, path: Path) -> None:
        """Read a blob into a file, verified by digest and size."""
        with path.open("wb") as file:
            for chunk in self._chunks(blob):
                file.write(chunk)

    def upload(self, blob: Descriptor, path: Path, sent: Sent) -> None:
        """Send a blob from a file. The registry verifies its digest."""

        def progress(_digest: str, chunk: bytes, _size: int) -> None:
            sent(len(chunk))

        with self._errors(f"the upload of {blob.digest}"):
            self._dxf.push_blob(str(path), progress=progress, check_exists=False)

    def mount(self, blob: Descriptor, source: Reference) -> bool:
        """Mount a blob from another repository of the same registry. Returns False if the registry does not do it."""
        try:
            with self._errors(f"mounting {blob.digest} from {source.repository}"):
                self._dxf.mount_blob(source.repository, blob.digest)
        except (DXFMountFailed, Rejected):  # not supported, or no access to the source: copy the blob instead
            return False
        return True

    def put(self, manifest: Encoded, tag_or_digest: str) -> None:
        """Store a manifest under a tag or its digest, and verify that the registry has it."""
        with self._errors(f"the manifest {tag_or_digest}"):
            self._dxf.set_manifest(tag_or_digest, manifest.content.decode())
        existing_digest = self.digest_of(tag_or_digest)
        if existing_digest != manifest.descriptor.digest:
            wanted = f"{manifest.descriptor.digest} was pushed as {tag_or_digest}"
            raise Rejected(
                f"{self.reference.name}: {wanted}, but the registry has {existing_digest or 'nothing'}"
            )

    def _chunks(self, blob: Descriptor) -> Iterator[bytes]:
        size = 0
        with self._errors(f"the blob {blob.digest}"):
            for chunk in cast("Iterable[bytes]", self._dxf.pull_blob(blob.digest, chunk_size=_CHUNK)):
                size += len(chunk)
                if size > blob.size:
                    break
                yield chunk
        if size != blob.size:
            raise Rejected(
                f"{self.reference.name}@{blob.digest}: expected {blob.size:,} bytes, but received {size:,}"
            )

    def _authenticate(self, dxf: DXFBase, response: requests.Response) -> None:
        given = self._credentials
        name, password = (given.username, given.password) if given else (None, None)
        # To mount a blob, the registry demands access to both repositories. Answer exactly that challenge.
        is_of_one = response.headers.get("WWW-Authenticate", "").count("repository:") < 2
        actions = ["pull", "push"] if self._writes and is_of_one else None
        dxf.authenticate(name, password, actions, response)

    def _errors(self, about: str, *, missing_is_fine: bool = False) -> AbstractContextManager[None]:
        return failure(self.reference, self._credentials, about, missing_is_fine=missing_is_fine)


def _document(content: bytes, where: str) -> Mapping[str, Any]:
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise Rejected(f"{where} is not a JSON object")
    return document
