"""From a request to an answer: paths, parameters and verbs of the Kubernetes API."""

from __future__ import annotations

from dataclasses import dataclass
from random import uniform

from nodesmith_cli.local.apiserver import discovery, openapi, reviews
from nodesmith_cli.local.apiserver.deletion import DeleteOptions
from nodesmith_cli.local.apiserver.errors import ApiError, bad_request, no_such_path
from nodesmith_cli.local.apiserver.kinds import Resource
from nodesmith_cli.local.apiserver.messages import Reply, Request, Stream, reply
from nodesmith_cli.local.apiserver.objects import Object, View, dig, name_of, namespace_of
from nodesmith_cli.local.apiserver.paging import Pages
from nodesmith_cli.local.apiserver.patches import json_patch, merge_patch
from nodesmith_cli.local.apiserver.presentation import Look, form_asked
from nodesmith_cli.local.apiserver.selectors import field_matcher, label_matcher
from nodesmith_cli.local.apiserver.store import PatchKind, Store, Write
from nodesmith_cli.local.apiserver.subresources import bound, delete_options, evicted, scale_of, scaled
from nodesmith_cli.local.apiserver.watching import WatchWish, stream

VERSION = {"major": "1", "minor": "33", "gitVersion": "v1.33.0-nodesmith", "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "linux/amd64"}  # fmt: skip
_PATCH_KINDS: dict[str, PatchKind] = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
}
_REVIEW_GROUPS = ("authentication.k8s.io", "authorization.k8s.io")


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names. An empty `name` is the whole collection, an empty `namespace` all of them."""

    resource: Resource
    version: str
    namespace: str
    name: str = ""
    subresource: str = ""


class Api:
    """Answers requests on a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pages = Pages()

    def answer(self, request: Request) -> Reply | Stream:
        """Answer one request; what is refused is answered with a Status."""
        try:
            return self._answer(request)
        except ApiError as error:
            headers = {"Retry-After": "10"} if error.code == 429 else {}
            refused = reply(error.status(), error.code)
            return Reply(refused.body, error.code, headers=headers)

    def _answer(self, request: Request) -> Reply | Stream:
        words = request.path.strip("/").split("/")
        match words:
            case ["healthz" | "readyz" | "livez", *_]:
                return Reply(b"ok", content_type="text/plain; charset=utf-8")
            case ["version"]:
                return reply(VERSION)
            case ["openapi", "v3", *rest]:
                return openapi.described(self._store.registry, "/".join(rest))
            case ["api"] | ["apis"] | ["apis", _]:
                return discovery.discovered(self._store.registry, request)
            case ["api", version, *rest]:
                group = ""
            case ["apis", group, version, *rest]:
                pass
            case _:
                raise no_such_path()
        if not rest:
            return discovery.discovered(self._store.registry, request)
        if group in _REVIEW_GROUPS and version == "v1" and request.method == "POST":
            return reviews.reviewed(rest[-1], request)
        if (group, rest[-1:], request.method) == ("", ["bindings"], "POST") and rest[:1] == ["namespaces"]:
            binding = _body(request)
            bound(self._store, name_of(binding), rest[1], binding, _write(request))
            return _success(201)
        return self._on_target(self._target(group, version, rest), request)

    def _target(self, group: str, version: str, words: list[str]) -> Target:
        namespace = ""
        if (
            words[0] == "namespaces"
            and not group
            and len(words) > 2
            and words[2] not in ("status", "finalize")
        ) or (words[0] == "namespaces" and group and len(words) > 2):
            namespace, words = words[1], words[2:]
        resource = self._store.registry.at(group, version, words[0])
        if resource is None or len(words) > 3 or (namespace and not resource.namespaced):
            raise no_such_path()
        name, subresource = ([*words[1:], "", ""])[:2]
        if resource.namespaced and not namespace and name:
            raise no_such_path()
        return Target(resource, version, namespace, name, subresource)

    def _on_target(self, target: Target, request: Request) -> Reply | Stream:
        match request.method, bool(target.name), target.subresource:
            case "GET", _, "" if request.flag("watch"):
                return self._watch(target, request)
            case "GET", False, _:
                return self._list(target, request)
            case "GET", True, "" | "status" | "resize":
                return self._get(target, request)
            case "GET", True, "scale":
                return reply(scale_of(target.resource, self._found(target)))
            case "GET" | "POST", True, "log" | "exec" | "attach" | "portforward" | "proxy":
                message = f"this local cluster runs no containers, so there is nothing to {target.subresource} in {target.name}"
                raise ApiError(501, "NotImplemented", message)
            case "POST", False, "":
                return self._create(target, request)
            case "POST", True, "binding":
                bound(self._store, target.name, target.namespace, _body(request), _write(request))
                return _success(201)
            case "POST", True, "eviction":
                evicted(self._store, target.name, target.namespace, _body(request), _write(request))
                return _success(201)
            case "PUT", True, _:
                return self._update(target, request)
            case "PATCH", True, _:
                return self._patch(target, request)
            case "DELETE", True, "":
                return self._delete(target, request)
            case "DELETE", False, "":
                return self._delete_many(target, request)
            case _:
                message = "the server does not allow this method on the requested resource"
                raise ApiError(405, "MethodNotAllowed", message)

    # Reading

    def _look(self, target: Target, request: Request) -> Look:
        include = request.query.get("includeObject", "Metadata")
        return Look(form_asked(request.accept), target.resource, target.version, include, self._store.now)

    def _found(self, target: Target) -> View:
        return self._store.get(target.resource, target.name, target.namespace)

    def _get(self, target: Target, request: Request) -> Reply:
        revision = self._store.revision(target.resource, target.name, target.namespace)
        return Reply(self._look(target, request).one(revision))

    def _list(self, target: Target, request: Request) -> Reply:
        limit, token = request.number("limit"), request.query.get("continue", "")
        labels, fields = request.query.get("labelSelector", ""), request.query.get("fieldSelector", "")
        if token:
            revision, found = self._pages.next(token)
        else:
            with self._store.history.lock:
                revision = self._store.history.revision
                found = self._store.revisions(target.resource, target.namespace, labels, fields)
        page, metadata = self._pages.page(found, revision, limit)
        if labels or fields:
            metadata.pop("remainingItemCount", None)
        return Reply(self._look(target, request).many(page, metadata))

    def _watch(self, target: Target, request: Request) -> Stream:
        fields = request.query.get("fieldSelector", "")
        if target.name:
            fields = ",".join(filter(None, (fields, f"metadata.name={target.name}")))
        labels = request.query.get("labelSelector", "")
        tests = [t for t in (label_matcher(labels), field_matcher(target.resource, fields)) if t]
        since = request.number("resourceVersion") or None
        initial = request.flag("sendInitialEvents")
        wish = WatchWish(
            look=self._look(target, request),
            namespace=target.namespace,
            tests=tests,
            since=None if initial else since,
            bookmarks=request.flag("allowWatchBookmarks"),
            initial_end=initial and request.flag("allowWatchBookmarks"),
            seconds=float(request.number("timeoutSeconds") or uniform(1800, 3600)),  # noqa: S311 spreads reconnects
        )
        return Stream(stream(self._store.history, wish))

    # Writing

    def _create(self, target: Target, request: Request) -> Reply:
        obj, write = self._object(target, request), _write(request)
        created = self._store.create(target.resource, obj, write)
        return self._written(target, request, created, write, 201)

    def _update(self, target: Target, request: Request) -> Reply:
        write = _write(request)
        if target.subresource == "scale":
            self._scale(target, _body(request), write)
            return reply(scale_of(target.resource, self._found(target)))
        obj = self._object(target, request)
        if target.resource.custom and not dig(obj, "metadata", "resourceVersion"):
            problem = f'{target.resource.qualified_kind} "{target.name}" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update'  # fmt: skip
            raise ApiError(422, "Invalid", problem)
        updated = self._store.update(target.resource, obj, subresource=self._part(target), write=write)
        return self._written(target, request, updated, write)

    def _patch(self, target: Target, request: Request) -> Reply:
        write, kind = _write(request), request.content_type.partition(";")[0].strip()
        patch = request.decoded()
        if target.subresource == "scale":
            scale = scale_of(target.resource, self._found(target))
            self._scale(
                target, json_patch(scale, patch) if "json-patch" in kind else merge_patch(scale, patch), write
            )
            return reply(scale_of(target.resource, self._found(target)))
        part = self._part(target)
        if kind == "application/apply-patch+yaml":
            self._named(target, patch)
            applied, new = self._store.apply(target.resource, patch, subresource=part, write=write)
            return self._written(target, request, applied, write, 201 if new else 200)
        if kind not in _PATCH_KINDS:
            accepted = ", ".join((*_PATCH_KINDS, "application/apply-patch+yaml"))
            message = (
                f"the body of the request was in an unknown format - accepted media types include: {accepted}"
            )
            raise ApiError(415, "UnsupportedMediaType", message)
        patched = self._store.patch(
            target.resource,
            target.name,
            patch,
            target.namespace,
            subresource=part,
            kind=_PATCH_KINDS[kind],
            write=write,
        )
        return self._written(target, request, patched, write)

    def _delete(self, target: Target, request: Request) -> Reply:
        last, gone = self._store.delete(target.resource, target.name, target.namespace, _deletion(request))
        if not gone or target.resource.name == "pods":
            return reply(self._look(target, request).shaped(last))
        details = {"name": target.name, "kind": target.resource.plural, "uid": last["metadata"]["uid"]}
        return _success(200, details | ({"group": target.resource.group} if target.resource.group else {}))

    def _delete_many(self, target: Target, request: Request) -> Reply:
        options = _deletion(request)
        labels, fields = request.query.get("labelSelector", ""), request.query.get("fieldSelector", "")
        with self._store.history.lock:
            doomed = self._store.revisions(target.resource, target.namespace, labels, fields)
            for each in doomed:
                if self._store.find(target.resource, name_of(each.object), namespace_of(each.object)):
                    self._store.delete(
                        target.resource, name_of(each.object), namespace_of(each.object), options
                    )
        metadata = {"resourceVersion": str(self._store.history.revision)}
        return Reply(self._look(target, request).many(doomed, metadata))

    def _scale(self, target: Target, scale: View, write: Write) -> None:
        scaled(self._store, target.resource, self._found(target), scale, write)

    def _part(self, target: Target) -> str:
        """Give the subresource if the kind has it. Raises ApiError 404."""
        allowed = {"": True, "status": target.resource.status, "resize": target.resource.name == "pods"}
        allowed["finalize"] = target.resource.name == "namespaces"
        if not allowed.get(target.subresource):
            raise no_such_path()
        return target.subresource

    def _object(self, target: Target, request: Request) -> Object:
        obj = _body(request)
        self._named(target, obj)
        return obj

    def _named(self, target: Target, obj: object) -> None:
        """Check that the body is of the kind, the name and the namespace that the path says."""
        if not isinstance(obj, dict) or not isinstance(obj.setdefault("metadata", {}), dict):
            raise bad_request("the body must be a Kubernetes object")
        kind, version = target.resource.kind, target.resource.api_version(target.version)
        if (obj.setdefault("apiVersion", version), obj.setdefault("kind", kind)) != (version, kind):
            raise bad_request(
                f"{obj['kind']} in version {obj['apiVersion']!r} cannot be handled as a {kind}: expected {kind} in {version}"
            )
        metadata = obj["metadata"]
        if target.name and metadata.setdefault("name", target.name) != target.name:
            raise bad_request(f"the name of the object ({metadata['name']}) does not match the name on the URL ({target.name})")  # fmt: skip
        if target.resource.namespaced:
            namespace = target.namespace or "default"
            if (metadata.get("namespace") or namespace) != namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
            metadata["namespace"] = namespace

    def _written(self, target: Target, request: Request, obj: View, write: Write, code: int = 200) -> Reply:
        return reply(self._look(target, request).shaped(obj), code, tuple(write.warnings))


def _write(request: Request) -> Write:
    manager = request.query.get("fieldManager") or (
        "" if "apply-patch" in request.content_type else request.user_agent.partition("/")[0]
    )
    return Write(
        manager=manager,
        dry_run=request.query.get("dryRun") == "All",
        force=request.flag("force"),
        field_validation=request.query.get("fieldValidation") or "Warn",
    )


def _body(request: Request) -> Object:
    body = request.decoded()
    if not isinstance(body, dict):
        raise bad_request("the body must be a JSON object")
    return body


def _deletion(request: Request) -> DeleteOptions:
    given = _body(request) if request.body.strip() else {}
    query: Object = {}
    if request.query.get("propagationPolicy"):
        query["propagationPolicy"] = request.query["propagationPolicy"]
    if request.query.get("gracePeriodSeconds"):
        query["gracePeriodSeconds"] = request.number("gracePeriodSeconds")
    return delete_options({**given, **query}, dry_run=request.query.get("dryRun") == "All")


def _success(code: int, details: Object | None = None) -> Reply:
    status: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return reply({**status, "details": details} if details else {**status, "code": code}, code)
