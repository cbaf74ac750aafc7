"""HTTP with a Kubernetes API server: the official client's connections and authentication, the API's own JSON.

Raw JSON because the generated models are ten times slower to read, and drop fields that they do not know. The client is
imported with the first call: that takes a seventh of a second, and most looks at a quiet cluster call nothing.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import quote

from urllib3.exceptions import HTTPError

from nodesmith.adapters.kubernetes.deepjson import read_json
from nodesmith.adapters.kubernetes.retryafter import send_patiently
from nodesmith.errors import Conflict, NodesmithError, Rejected, Transient
from nodesmith.model.apimachinery.frozen import thaw

if TYPE_CHECKING:
    from kubernetes.client import ApiClient, Configuration

Manifest: TypeAlias = Mapping[str, Any]
Body: TypeAlias = Manifest | Sequence[Manifest]
Method: TypeAlias = Literal["GET", "POST", "PATCH", "DELETE"]
PAGE_SIZE = 100
"""Objects a page. With the usual 500, listing 5,000 pods of 7 KB took the forwarder 133 MiB, with this 92."""
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0
_CONNECTIONS = 32  # the forwarder watches each kind on one of its own
_PATIENCE_SECONDS = 2.0
"""A function that waits longer is paid for it: its messages come back within seconds."""
_PLAIN = "application/json"
_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_RETRIED_4XX = frozenset({401, 403, 408, 429})


class Expired(Transient):
    """The resourceVersion is older than what the API server remembers: list again."""


class Unfit(Rejected):
    """What is asked does not go with what the object has become."""


class NotServed(Transient):
    """The API server does not know the kind: its CRD is not installed (yet)."""


class ApiServer:
    """One API server. Every method may raise Transient, Rejected or Conflict; see `failure`.

    `client` is called once, before the first request, where it is a function. What the server says will pass is waited
    for, up to `patience_seconds` a request.
    """

    def __init__(
        self, client: ApiClient | Callable[[], ApiClient], patience_seconds: float = _PATIENCE_SECONDS
    ) -> None:
        self._made = client
        self._lock = Lock()
        self._patience_seconds = patience_seconds

    @property
    def _client(self) -> ApiClient:
        """Return the client; of threads that come first one makes it."""
        with self._lock:
            if callable(self._made):
                self._made = self._made()
            return self._made

    def get(self, path: str, *, read_seconds: float = _READ_SECONDS) -> dict[str, Any] | None:
        """Read one object; None when it is not there."""
        return self._call("GET", path, read_seconds=read_seconds)

    def create(self, path: str, manifest: Manifest) -> dict[str, Any]:
        """Create an object. Raises Conflict where one of that name exists, NotServed where its kind does not."""
        created = self._call("POST", path, manifest, "application/json")
        if created is None:
            raise NotServed(
                f"POST {path}: the API server does not know this kind, install its CRD", "NotFound"
            )
        return created

    def patch(self, path: str, patch: Manifest) -> dict[str, Any] | None:
        """Merge into an object (RFC 7396); None when it is not there. Raises Conflict if its resourceVersion moved."""
        return self._call("PATCH", path, patch, "application/merge-patch+json")

    def patch_if(self, path: str, operations: Sequence[Manifest], *, read_seconds: float) -> None:
        """Apply a JSON patch (RFC 6902), blind: of the object nothing but its metadata is sent back.

        One that is not there is fine. Raises Unfit where a `test` among the operations fails.
        """
        self._call("PATCH", path, operations, "application/json-patch+json", read_seconds, _METADATA_ONLY)

    def delete(self, path: str, uid: str = "", *, orphan: bool = False) -> dict[str, Any] | None:
        """Delete an object; gives what it was while finalizers hold it, else a Status; None when it is not there.

        With `orphan` the objects that it owns stay, without it as their owner. Raises Conflict where the object of
        that name is not the one with `uid`.
        """
        options: dict[str, Any] = {"preconditions": {"uid": uid}} if uid else {}
        if orphan:
            options["propagationPolicy"] = "Orphan"
        return self._call("DELETE", path, options or None, _PLAIN if options else "")

    def ask(
        self, method: Method, path: str, body: Manifest, *, read_seconds: float
    ) -> tuple[int, dict[str, Any]]:
        """Send a request of which a refusal is an answer too; gives the HTTP status and what was said.

        What it does not know what to do about, the caller gives to `failure`.
        """
        status, content = self._exchange(method, path, body, _PLAIN, read_seconds)
        return status, read_status(content)

    def pages(self, path: str, selector: str = "") -> Iterator[dict[str, Any]]:
        """List objects, page by page, as Kubernetes' lists. Raises Expired when the listing took too long.

        `selector` is a query of `fieldSelector` or `labelSelector`, quoted; empty lists all.
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
        """Open a response that goes on (a watch) and give its lines, until it ends or is silent for `read_seconds`."""
        try:
            response = self._request("GET", f"{path}?{query}", None, "", read_seconds)
            if response.status == 404:
                raise NotServed(f"GET {path}: the API server does not know this kind", "NotFound")
            if response.status != 200:
                raise failure(response.status, read_status(response.read()), f"GET {path}")
        except (HTTPError, OSError) as error:
            raise Transient(f"GET {path}: {error}") from error
        return _lines(response.response, path)

    def _call(
        self,
        method: Method,
        path: str,
        body: Body | None = None,
        content_type: str = "",
        read_seconds: float = _READ_SECONDS,
        accept: str = _PLAIN,
    ) -> dict[str, Any] | None:
        what = _what(method, path)
        status, content = self._exchange(method, path, body, content_type, read_seconds, accept)
        if status == 404:
            return None
        if status >= 400:
            raise failure(status, read_status(content), what)
        try:
            answer: dict[str, Any] = read_json(content)
        except ValueError as error:
            raise Transient(f"{what}: the answer is not JSON: {error}") from error
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
            return response.status, response.read()
        except (HTTPError, OSError) as error:
            raise Transient(f"{_what(method, path)}: {error}") from error

    def _request(
        self,
        method: Method,
        path: str,
        body: Body | None,
        content: str,
        read: float,
        accept: str = _PLAIN,
    ) -> Any:
        client = self._client
        from kubernetes.client import ApiException

        headers = {"Accept": accept} | ({"Content-Type": content} if content else {})
        signed = client.param_serialize(
            method, path, header_params=headers, body=thaw(body), auth_settings=["BearerToken"]
        )
        try:
            return send_patiently(
                lambda: client.call_api(*signed, _request_timeout=(_CONNECT_SECONDS, read)),
                self._patience_seconds,
            )
        except ApiException as error:  # TLS failures are wrapped; refusals of the server are not raised here
            raise Transient(f"{method} {path}: {error.reason}") from error


def failure(status: int, said: Manifest, what: str) -> NodesmithError:
    """Return what to do about a refusal.

    409 Conflict, 410 Expired, 422 Unfit, what may pass Transient, the rest Rejected.

    Missing rights (401, 403) may pass, for somebody will grant them; the server's message names them.
    """
    reason, message = str(said.get("reason") or ""), str(said.get("message") or "")
    text = f"{what}: {status} {reason}: {message}"
    if status == 409:
        return Conflict(text)
    if status == 410:
        return Expired(text, reason)
    if status == 422:
        return Unfit(text)
    if status in _RETRIED_4XX or status >= 500:
        return Transient(text, reason)
    return Rejected(text)


def _what(method: Method, path: str) -> str:
    return f"{method} {path.partition('?')[0]}"


def read_status(content: bytes) -> dict[str, Any]:
    """Read a Status; what a proxy says in other ways becomes its message."""
    try:
        said = json.loads(content)
    except ValueError:
        said = None
    return said if isinstance(said, dict) else {"message": content[:200].decode(errors="replace")}


def _lines(response: Any, path: str) -> Iterator[bytes]:
    try:
        yield from _split(response.stream(65_536, decode_content=True))
    except (HTTPError, OSError) as error:
        raise Transient(f"GET {path}: {error}") from error
    finally:
        response.close()


def _split(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line for line in whole if line)
    if rest:
        yield rest


def connect(endpoint: str, ca_bundle: str, token: Callable[[], str]) -> ApiClient:
    """Return a client; `ca_bundle` is base64 PEM (empty: the system's), `token` is asked before every request."""
    from kubernetes.client import Configuration

    from nodesmith.adapters.kubernetes.apiclient import api_client

    configuration = Configuration(host=endpoint.rstrip("/"))
    configuration.retries = False  # who calls decides, with a back-off
    configuration.connection_pool_maxsize = _CONNECTIONS
    if ca_bundle:
        configuration.ca_cert_data = base64.b64decode(ca_bundle).decode()
    configuration.api_key_prefix["BearerToken"] = "Bearer"

    def refresh(current: Configuration) -> None:
        current.api_key["BearerToken"] = token()

    refresh(configuration)
    configuration.refresh_api_key_hook = refresh  # type: ignore[assignment]
    return api_client(configuration)
