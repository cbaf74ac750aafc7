"""A repository of a registry, through dxf: what is read is checked by digest, and failures say what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import requests
from dxf import DXF, DXFBase
from dxf.exceptions import DXFAuthInsecureError, DXFDigestMismatchError, DXFMountFailed, DXFUnauthorizedError

from nodesmith.errors import NodesmithError, Rejected, Transient
from nodesmith_cli.image.credentials import Credentials
from nodesmith_cli.image.documents import Descriptor, Encoded
from nodesmith_cli.image.references import Reference

Sent = Callable[[int], None]
"""Called with the number of bytes that have gone since the last time."""

_TIMEOUT_SECONDS = 60.0
_CHUNK = 1 << 20
_PASSING = {408, 425, 429}
_NOT_FOUND = 404
_OBJECT = re.compile(r"^(?:<.*?>|\w+\(host=.*?\)): ")  # urllib3 says first which connection it was


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest or an index as a registry has it: its own bytes, and what they say."""

    descriptor: Descriptor
    document: Mapping[str, Any]


class Repository:
    """One repository. A context manager that keeps the connection, and the token that it was given.

    Every call raises Rejected or Transient, by what may be done about it.
    """

    def __init__(
        self, reference: Reference, credentials: Credentials | None = None, *, is_plain: bool = False
    ) -> None:
        self.reference = reference
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
        """Give the digest of a manifest that is there; empty where there is none."""
        with self._told(f"the manifest {tag_or_digest}", missing_is_fine=True):
            digest, _ = self._dxf.head_manifest_and_response(tag_or_digest)
            return digest or ""
        return ""

    def has(self, blob: Descriptor) -> bool:
        """Tell whether a blob is there."""
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
        dxf.authenticate(name, password, response=response)

    @contextmanager
    def _told(self, about: str, *, missing_is_fine: bool = False) -> Iterator[None]:
        """Say whose error it is, what it was about, and what to do."""
        where = f"{self.reference.name}: {about}"
        try:
            yield
        except DXFUnauthorizedError:
            raise Rejected(f"{where}: 401: {self._login_hint()}") from None
        except DXFAuthInsecureError:
            raise Rejected(
                f"{where}: it wants credentials, which are not sent over http: use https"
            ) from None
        except DXFDigestMismatchError as error:
            raise Rejected(f"{where}: what came is another: {error}") from None
        except requests.HTTPError as error:
            response = cast("requests.Response", error.response)  # requests sets it where it raises this
            if not (missing_is_fine and response.status_code == _NOT_FOUND):
                raise self._refusal(where, response) from None
        except requests.exceptions.SSLError as error:
            plain = "; --insecure is for a registry that speaks http only"
            raise Rejected(f"{where}: no TLS with {self.reference.host}: {_cause(error)}{plain}") from None
        except (requests.RequestException, OSError) as error:
            raise Transient(f"{where}: {self.reference.host}: {_cause(error)}") from None
        except (KeyError, ValueError, TypeError) as error:
            raise Rejected(f"{where}: {self.reference.host} answers as no registry does: {error!r}") from None

    def _refusal(self, where: str, response: requests.Response) -> NodesmithError:
        status, said = response.status_code, _said(response)
        about = f"{where}: {status}{f': {said}' if said else ''}"
        if status in _PASSING or status >= 500:
            return Transient(about)
        return Rejected(f"{about}: {self._rights_hint()}" if status == 403 else about)

    def _login_hint(self) -> str:
        if self._credentials is None:
            return "no credentials are known: docker login, or --username with --password-stdin"
        return f"it does not take the credentials of {self._credentials.origin}"

    def _rights_hint(self) -> str:
        who = self._credentials.origin if self._credentials else "an anonymous user"
        return f"{who} may not do this there"


def _document(content: bytes, where: str) -> Mapping[str, Any]:
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise Rejected(f"{where} is no JSON object")
    return document


def _said(response: requests.Response) -> str:
    """Give what a registry says of a failure: {"errors": [{"code": …, "message": …}]}."""
    try:
        errors = response.json()["errors"]
        return "; ".join(f"{each.get('code', '')} {each.get('message', '')}".strip() for each in errors)
    except (ValueError, KeyError, TypeError, AttributeError):
        return response.reason or ""


def _cause(error: BaseException) -> str:
    """Give the innermost cause: what wraps it says less."""
    inner = error.args[0] if error.args and isinstance(error.args[0], BaseException) else None
    inner = inner or getattr(error, "reason", None)
    if isinstance(inner, BaseException) and inner is not error:
        return _cause(inner)
    return _OBJECT.sub("", str(error)) or type(error).__name__
