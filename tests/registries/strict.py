"""An in-process registry that follows the OCI distribution specification strictly, and can be made to fail.

It checks blobs against their digests and lengths, and accepts a manifest only if everything that it references exists.
With `login`, every request must carry it; with `gives_tokens`, only /token accepts it and returns a token for the
requested scope, as Docker Hub does. `requests` lists the requests: method and path.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from tests.registries.bases import Remote, digest_of

_PATH = re.compile(r"/v2/(?P<repository>.+)/(?P<kind>manifests|blobs|blobs/uploads)/(?P<name>[^/]*)")
_INDEXES = {
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
}


@dataclass(slots=True)
class _Stored:
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: status, headers and body."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class Refusal(Exception):
    """An error answer in the specification's format."""

    def __init__(
        self, status: int, code: str, message: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(code)
        body = json.dumps({"errors": [{"code": code, "message": message or code.lower()}]}).encode()
        self.answer = Answer(status, headers or {}, body)


@dataclass(slots=True)
class Registry:
    """The registry's content, its requests, and its faults: `broken` is called first and may answer itself."""

    address: str = ""
    login: tuple[str, str] | None = None
    broken: Callable[[str, str], Answer | None] = lambda _method, _path: None
    can_mount: bool = True
    gives_tokens: bool = False
    requests: list[tuple[str, str]] = field(default_factory=list)
    repositories: dict[str, _Stored] = field(default_factory=dict)
    _uploads: int = 0

    def remote(self, repository: str) -> Remote:
        """Return a repository to upload a base to."""
        return Remote(f"http://{self.address}/v2/{repository}/", self.login)

    def written(self) -> list[tuple[str, str]]:
        """Return the requests that write."""
        return [asked for asked in self.requests if asked[0] in {"POST", "PUT", "PATCH"}]

    def document(self, repository: str, name: str) -> Any:
        """Return a manifest or a JSON blob, by tag or digest."""
        stored = self.repositories[repository]
        name = stored.tags.get(name, name)
        return json.loads(stored.manifests[name][1] if name in stored.manifests else stored.blobs[name])

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Answer a request."""
        self.requests.append((method, path))
        if own := self.broken(method, path):
            return own
        url = urlsplit(path)
        self._admit(method, url, headers.get("Authorization", ""))
        if url.path == "/token":
            return Answer(200, {}, json.dumps({"token": " ".join(parse_qs(url.query)["scope"])}).encode())
        asked = _PATH.fullmatch(url.path)
        if asked is None:
            return Answer(200 if url.path == "/v2/" else 404)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        repository, name = asked["repository"], asked["name"]
        if asked["kind"] == "blobs/uploads":
            return self._upload(method, repository, query, body)
        if asked["kind"] == "blobs":
            return self._blob(repository, name)
        if method == "PUT":
            return self._put_manifest(repository, name, headers.get("Content-Type", ""), body)
        return self._manifest(repository, name, headers.get("Accept", ""))

    def _admit(self, method: str, url: SplitResult, authorization: str) -> None:
        """Reject requests without the login, or without a token for the required scope."""
        if self.gives_tokens and url.path != "/token":
            asked = _PATH.fullmatch(url.path)
            action = "pull" if method in {"GET", "HEAD"} else "pull,push"
            needed = [f"repository:{asked['repository']}:{action}"] if asked else []
            needed += [f"repository:{source}:pull" for source in parse_qs(url.query).get("from", ())]
            if any(scope not in authorization.removeprefix("Bearer ") for scope in needed):
                realm = f"https://{self.address}/token"
                challenge = f'Bearer realm="{realm}",service="strict",scope="{" ".join(needed)}"'
                raise Refusal(401, "UNAUTHORIZED", headers={"WWW-Authenticate": challenge})
        elif self.login is not None:
            wanted = b64encode(":".join(self.login).encode()).decode()
            if authorization != f"Basic {wanted}":
                raise Refusal(401, "UNAUTHORIZED", headers={"WWW-Authenticate": 'Basic realm="strict"'})

    def _stored(self, repository: str) -> _Stored:
        if repository not in self.repositories:
            raise Refusal(404, "NAME_UNKNOWN")
        return self.repositories[repository]

    def _blob(self, repository: str, digest: str) -> Answer:
        blobs = self._stored(repository).blobs
        if digest not in blobs:
            raise Refusal(404, "BLOB_UNKNOWN")
        return Answer(200, {"Docker-Content-Digest": digest}, blobs[digest])

    def _upload(self, method: str, repository: str, query: Mapping[str, str], body: bytes) -> Answer:
        place = f"/v2/{repository}/blobs/uploads/{self._uploads}?state=opaque"
        if method == "POST":
            self._uploads += 1
            mounted = self.repositories.get(query.get("from", ""), _Stored()).blobs.get(
                query.get("mount", "")
            )
            if mounted is None or not self.can_mount:
                return Answer(202, {"Location": place})
            body, query = mounted, {"digest": query["mount"]}
        elif method != "PUT" or query.get("state") != "opaque":
            raise Refusal(404, "BLOB_UPLOAD_UNKNOWN")
        digest = query.get("digest", "")
        if digest != digest_of(body):
            raise Refusal(400, "DIGEST_INVALID")
        self.repositories.setdefault(repository, _Stored()).blobs[digest] = body
        return Answer(201, {"Docker-Content-Digest": digest, "Location": f"/v2/{repository}/blobs/{digest}"})

    def _manifest(self, repository: str, name: str, accepted: str) -> Answer:
        stored = self._stored(repository)
        digest = stored.tags.get(name, name)
        if digest not in stored.manifests:
            raise Refusal(404, "MANIFEST_UNKNOWN")
        kind, content = stored.manifests[digest]
        if kind not in accepted:
            raise Refusal(404, "MANIFEST_UNKNOWN", f"{kind} is not accepted")
        return Answer(200, {"Content-Type": kind, "Docker-Content-Digest": digest}, content)

    def _put_manifest(self, repository: str, name: str, kind: str, body: bytes) -> Answer:
        stored, document, digest = self._stored(repository), json.loads(body), digest_of(body)
        if document["mediaType"] != kind or (":" in name and name != digest):
            raise Refusal(400, "MANIFEST_INVALID")
        for part in document.get("manifests", ()) if kind in _INDEXES else ():
            if part["size"] != len(stored.manifests.get(part["digest"], ("", b""))[1]):
                raise Refusal(404, "MANIFEST_UNKNOWN", part["digest"])
        for part in () if kind in _INDEXES else (document["config"], *document["layers"]):
            if part["size"] != len(stored.blobs.get(part["digest"], b"")):
                raise Refusal(404, "MANIFEST_BLOB_UNKNOWN", part["digest"])
        stored.manifests[digest] = kind, body
        if ":" not in name:
            stored.tags[name] = digest
        return Answer(
            201, {"Docker-Content-Digest": digest, "Location": f"/v2/{repository}/manifests/{digest}"}
        )


@contextmanager
def running(*, certificates: Path | None = None, **how: Any) -> Iterator[Registry]:
    """Run a registry on a free loopback port; with TLS if `certificates` holds serving.crt and serving.key."""
    registry = Registry(**how)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one(self) -> None:
            length = self.headers.get("Content-Length")
            body = self.rfile.read(int(length or 0))
            try:
                if self.command == "PUT" and length is None:
                    raise Refusal(411, "SIZE_INVALID", "PUT without Content-Length")
                answer = registry.answer(self.command, self.path, self.headers, body)  # type: ignore[arg-type]
            except Refusal as refusal:
                answer = refusal.answer
            if answer.status == 0:  # break the connection
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = handle_one  # noqa: N815 the names are http.server's

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificates is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificates / "serving.crt", certificates / "serving.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    registry.address = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
