"""Requests to a Kubernetes API server, with raw JSON.

The models of generated clients are ten times slower to read and drop unknown fields.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError

from nodesmith.adapters.kubernetes.connection import Connection, connection_pool, send_patiently
from nodesmith.errors import Conflict, NodesmithError, Rejected, Transient
from nodesmith.model.apimachinery.frozen import thaw

Manifest: TypeAlias = Mapping[str, Any]
Body: TypeAlias = Manifest | Sequence[Manifest]
Method: TypeAlias = Literal["GET", "POST", "PATCH", "DELETE"]
PAGE_SIZE = 100
"""Objects per page. Listing 5,000 pods of 7 KB took the forwarder 92 MiB, and 133 MiB with the usual 500."""
_READ_SECONDS = 30.0
_PATIENCE_SECONDS = 2.0
"""Waiting longer would only add function cost, since its messages return within seconds."""
_PLAIN = "application/json"
_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_RETRIED_4XX = frozenset({401, 403, 408, 429})


class Expired(Transient):
    """The resourceVersion is older than the API server's history, so the caller must list again."""


class Unfit(Rejected):
    """The request does not fit the current state of the object."""


class NotServed(Transient):
    """The API server does not serve the kind, because its CRD is not installed (yet)."""


class ApiServer:
    """One API server. Every method may raise Transient, Rejected or Conflict; see `failure`.

    If `connection` is a function, it is called once, before the first request. Failures that the server declares
    temporary are retried for up to `patience_seconds` per request.
    """

    def __init__(
        self,
        connection: Connection | Callable[[], Connection],
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        self._made = connection
        self._lock = Lock()
        self._patience_seconds = patience_seconds

    @property
    def _connection(self) -> Connection:
        """Return the connection. The first thread that needs it creates it."""
        with self._lock:
            if callable(self._made):
                self._made = self._made()
            return self._made

    def get(self, path: str, *, read_seconds: float = _READ_SECONDS) -> dict[str, Any] | None:
        """Return an object, or None if it does not exist."""
        return self._call("GET", path, read_seconds=read_seconds)

    def create(self, path: str, manifest: Manifest) -> dict[str, Any]:
        """Create an object and return it. Raises Conflict if its name exists, NotServed if its kind is unknown."""
        created = self._call("POST", path, manifest, "application/json")
        if created is None:
            raise NotServed(
                f"POST {path}: the API server does not know this kind; install its CRD", "NotFound"
            )
        return created

    def patch(self, path: str, patch: Manifest) -> dict[str, Any] | None:
        """Apply a merge patch (RFC 7396) and return the object, or None if it does not exist.

        Raises Conflict if the object no longer has the resourceVersion that the patch names.
        """
        return self._call("PATCH", path, patch, "application/merge-patch+json")

    def patch_if(self, path: str, operations: Sequence[Manifest], *, read_seconds: float) -> None:
        """Apply a JSON patch (RFC 6902). The server returns only the object's metadata.

        A missing object is ignored. Raises Unfit if a `test` operation fails.
        """
        self._call("PATCH", path, operations, "application/json-patch+json", read_seconds, _METADATA_ONLY)

    def delete(self, path: str, uid: str = "", *, orphan: bool = False) -> dict[str, Any] | None:
        """Delete an object. Return the object while finalizers hold it, else a Status; None if it does not exist.

        With `orphan`, objects that it owns stay and lose it as owner. Raises Conflict if the object's uid is not `uid`.
        """
        options: dict[str, Any] = {"preconditions": {"uid": uid}} if uid else {}
        if orphan:
            options["propagationPolicy"] = "Orphan"
        return self._call("DELETE", path, options or None, _PLAIN if options else "")

    def ask(
        self, method: Method, path: str, body: Manifest, *, read_seconds: float
    ) -> tuple[int, dict[str, Any]]:
        """Send a request and return the HTTP status and the decoded body, without raising for an error status.

        The caller passes error statuses that it does not handle to `failure`.
        """
        status, content = self._exchange(method, path, body, _PLAIN, read_seconds)
        return status, read_status(content)

    def pages(self, path: str, selector: str = "") -> Iterator[dict[str, Any]]:
        """Yield a listing page by page, as Kubernetes list objects. Raises Expired if the listing took too long.

        `selector` is a URL-encoded `fieldSelector` or `labelSelector` query. An empty one lists all objects.
        """
        token = ""
        while True:
            query = "&".join(filter(None, [selector, f"limit={PAGE_SIZE}"]))
            query += f"&continue={quote(token)}" if token else ""
            page = self._call("GET", f"{path}?{query}")
            if page is None:
                raise NotServed(f"GET {path}: the API server does not know this kind", "NotFound")
            yield page
            token = (page.get("metadata") or {}).get("continue") or ""
            if not token:
                return

    def stream(self, path: str, query: str, *, read_seconds: float) -> Iterator[bytes]:
        """Open a streaming response (a watch). Return its lines until it ends or is silent for `read_seconds`."""
        try:
            response = self._request("GET", f"{path}?{query}", None, "", read_seconds)
            content = b"" if response.status == 200 else response.data
        except (HTTPError, OSError) as error:
            raise Transient(f"GET {path}: {error}") from error
        if response.status == 404:
            raise NotServed(f"GET {path}: the API server does not know this kind", "NotFound")
        if response.status != 200:
            raise failure(response.status, read_status(content), f"GET {path}")
        return _lines(response, path)

    def _call(
        self,
        method: Method,
        path: str,
        body: Body | None = None,
        content_type: str = "",
        read_seconds: float = _READ_SECONDS,
        accept: str = _PLAIN,
    ) -> dict[str, Any] | None:
        call = _call_name(method, path)
        status, content = self._exchange(method, path, body, content_type, read_seconds, accept)
        if status == 404:
            return None
        if status >= 400:
            raise failure(status, read_status(content), call)
        try:
            answer: dict[str, Any] = read_json(content)
        except ValueError as error:
            raise Transient(f"{call}: the answer is not JSON: {error}") from error
        return answer

    def _exchange(
        self,
        method: Method,
        path: str,
        body: Body | None,
        content_type: str,
        read: float,
        accept: str = _PLAIN,
    ) -> tuple[int, bytes]:
        try:
            response = self._request(method, path, body, content_type, read, accept)
            return response.status, response.data
        except (HTTPError, OSError) as error:
            raise Transient(f"{_call_name(method, path)}: {error}") from error

    def _request(
        self,
        method: Method,
        path: str,
        body: Body | None,
        content: str,
        read: float,
        accept: str = _PLAIN,
    ) -> BaseHTTPResponse:
        connection, thawed = self._connection, thaw(body)
        headers = {"Accept": accept} | ({"Content-Type": content} if content else {})
        return send_patiently(
            lambda: connection.send(method, path, headers, thawed, read_seconds=read), self._patience_seconds
        )


def failure(status: int, status_object: Manifest, call: str) -> NodesmithError:
    """Return the error to raise for an HTTP error status.

    409 is Conflict, 410 Expired and 422 Unfit. A status that may pass is Transient. All others are Rejected.

    Missing permissions (401, 403) are Transient, because they may be granted. The server's message names them.
    """
    reason, message = str(status_object.get("reason") or ""), str(status_object.get("message") or "")
    text = f"{call}: {status} {reason}: {message}"
    if status == 409:
        return Conflict(text)
    if status == 410:
        return Expired(text, reason)
    if status == 422:
        return Unfit(text)
    if status in _RETRIED_4XX or status >= 500:
        return Transient(text, reason)
    return Rejected(text)


def _call_name(method: Method, path: str) -> str:
    return f"{method} {path.partition('?')[0]}"


def read_status(content: bytes) -> dict[str, Any]:
    """Return a Status object. Any other body, such as a proxy's, becomes its message."""
    try:
        status = json.loads(content)
    except ValueError:
        status = None
    return status if isinstance(status, dict) else {"message": content[:200].decode(errors="replace")}


def _lines(response: BaseHTTPResponse, path: str) -> Iterator[bytes]:
    try:
        yield from _split(response.stream(65_536, decode_content=True))
    except (HTTPError, OSError) as error:
        raise Transient(f"GET {path}: {error}") from error
    finally:
        response.close()


def _split(chunks: Iterator[bytes]) -> Iterator[bytes]:
    remainder = b""
    for chunk in chunks:
        *lines, remainder = (remainder + chunk).split(b"\n")
        yield from (line for line in lines if line)
    if remainder:
        yield remainder


def connect(endpoint: str, ca_bundle: str, token: Callable[[], str]) -> Connection:
    """Return a connection.

    `ca_bundle` is base64-encoded PEM; if it is empty, the system's certificates apply. `token` is called before every
    request.
    """
    pool = connection_pool(endpoint, ca_pem=base64.b64decode(ca_bundle).decode())
    return Connection(endpoint, pool, lambda: f"Bearer {token()}")


# API servers accept objects nested ten times deeper than the parser of Python 3.13 and earlier supports. Only
# free-form fields (`spec.kubelet` of an EC2NodeClass) can be that deep, and no meaningful value is. One such
# object must not hide the other objects in its list or watch.
DEEPEST_LEVEL = 100
"""In a text that is too deep to parse, values nested deeper than this become null."""
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def read_json(text: bytes) -> Any:
    """Return the value of a JSON text, with values that are too deep as null. Raises ValueError if it is not JSON."""
    try:
        return json.loads(text)
    except RecursionError:
        return json.loads(_cut(text))


def _cut(text: bytes) -> bytes:
    parts: list[bytes] = []
    depth = start = 0
    for token in _TOKEN.finditer(text):
        match token[0]:
            case b"[" | b"{":
                depth += 1
                if depth == DEEPEST_LEVEL + 1:
                    parts += [text[start : token.start()], b"null"]
            case b"]" | b"}":
                if depth == DEEPEST_LEVEL + 1:
                    start = token.end()
                depth -= 1
    return b"".join([*parts, text[start:]])
