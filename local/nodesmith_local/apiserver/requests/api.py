"""Request routing: map a path of the API to the code that answers it."""

from __future__ import annotations

from nodesmith_formats.kubernetes.errors import ApiError, no_such_path
from nodesmith_local.apiserver.requests import discovery, openapi, reviews
from nodesmith_local.apiserver.requests.messages import NO_SUCH_PAGE, Reply, Request, Stream, reply
from nodesmith_local.apiserver.requests.reading import Reading
from nodesmith_local.apiserver.requests.subresources import scale_of
from nodesmith_local.apiserver.requests.targets import Target, target_of
from nodesmith_local.apiserver.requests.writing import Writing
from nodesmith_local.apiserver.storage.store import Store

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0-nodesmith",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
_REVIEW_GROUPS = ("authentication.k8s.io", "authorization.k8s.io")
_INTO_CONTAINERS = ("log", "exec", "attach", "portforward", "proxy")


class Api:
    """Answers requests on a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reading = Reading(store)
        self._writing = Writing(store)

    def hang_up(self) -> None:
        """End every watch that this server answers."""
        self._reading.hang_up()

    def answer(self, request: Request) -> Reply | Stream:
        """Answer one request. A refused request is answered with a Status object."""
        try:
            return self._answer(request)
        except ApiError as error:
            refused = reply(error.status(), error.code)
            seconds = error.details.get("retryAfterSeconds")
            headers = {"Retry-After": str(seconds)} if seconds else {}
            return Reply(refused.body, error.code, headers=headers)

    def _answer(self, request: Request) -> Reply | Stream:
        segments = request.path.strip("/").split("/")
        match segments:
            case ["healthz" | "readyz" | "livez", *_]:
                return Reply(b"ok", content_type="text/plain; charset=utf-8")
            case ["version"]:
                return reply(VERSION)
            case ["openapi", "v3", *rest]:
                return openapi.described(self._store.registry, "/".join(rest))
            case ["api"] | ["apis"] | ["apis", _] | ["api", _] | ["apis", _, _]:
                return discovery.discovered(self._store.registry, request)
            case ["api", version, *rest]:
                return self._on_objects("", version, rest, request)
            case ["apis", group, *_] if group not in _REVIEW_GROUPS and not self._store.registry.knows(group):
                return NO_SUCH_PAGE
            case ["apis", group, version, *rest]:
                return self._on_objects(group, version, rest, request)
            case _:
                return NO_SUCH_PAGE

    def _on_objects(self, group: str, version: str, segments: list[str], request: Request) -> Reply | Stream:
        if group in _REVIEW_GROUPS and version == "v1" and request.method == "POST":
            return reviews.reviewed(segments[-1], request)
        if (
            not group
            and request.method == "POST"
            and segments[:1] == ["namespaces"]
            and segments[2:] == ["bindings"]
        ):
            pods = Target(self._store.resource("pods"), version, segments[1])
            return self._writing.bind(pods, request)
        target = target_of(self._store.registry, group, version, segments)
        if target.name and target.subresource in _INTO_CONTAINERS:
            action = f"{target.subresource} in {target.name}"
            text = f"this local cluster runs no containers, so there is nothing to {action}"
            raise ApiError(501, "NotImplemented", text)
        match request.method:
            case "GET":
                return self._read(target, request)
            case "POST":
                return self._post(target, request)
            case "PUT" if target.name:
                return self._writing.update(target, request)
            case "PATCH" if target.name:
                return self._writing.patch(target, request)
            case "DELETE" if target.name and not target.subresource:
                return self._writing.delete(target, request)
            case "DELETE" if not target.name:
                return self._writing.delete_many(target, request)
            case _:
                raise _not_allowed()

    def _read(self, target: Target, request: Request) -> Reply | Stream:
        match bool(target.name), target.subresource:
            case False, "" if request.flag("watch"):
                return self._reading.watch(target, request)
            case False, _:
                return self._reading.list(target, request)
            case True, "" | "status" | "resize":
                return self._reading.get(target, request)
            case True, "scale":
                obj = self._store.get(target.resource, target.name, target.namespace)
                return reply(scale_of(target.resource, obj))
            case _:
                raise no_such_path()

    def _post(self, target: Target, request: Request) -> Reply:
        match bool(target.name), target.subresource:
            case False, "" if target.namespace or not target.resource.namespaced:
                return self._writing.create(target, request)
            case True, "binding" if target.resource.name == "pods":
                return self._writing.bind(target, request)
            case True, "eviction" if target.resource.name == "pods":
                return self._writing.evict(target, request)
            case _:
                raise _not_allowed()


def _not_allowed() -> ApiError:
    return ApiError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
    )
