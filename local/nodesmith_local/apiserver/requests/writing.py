"""Create, update, patch and delete, and the subresources that accept writes."""

from __future__ import annotations

from nodesmith_formats.kubernetes.errors import ApiError, FieldProblem, bad_request, invalid, no_such_path
from nodesmith_formats.kubernetes.objects import Object, View, dig, name_of, namespace_of
from nodesmith_local.apiserver.requests.messages import Reply, Request, reply
from nodesmith_local.apiserver.requests.options import check_write
from nodesmith_local.apiserver.requests.subresources import bound, delete_options, evicted, scale_of, scaled
from nodesmith_local.apiserver.requests.targets import Target, as_target
from nodesmith_local.apiserver.storage.deletion import DeleteOptions
from nodesmith_local.apiserver.storage.patches import json_patch, merge_patch
from nodesmith_local.apiserver.storage.store import PatchKind, Store, Write

_PATCHES: dict[str, PatchKind] = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
}
_APPLY = "application/apply-patch+yaml"
_SUCCESS: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


class Writing:
    """Answers write requests."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(self, target: Target, request: Request) -> Reply:
        """Create the object in the body. Raises ApiError."""
        write = _write(request)
        created = self._store.create(target.resource, as_target(target, request.decoded()), write)
        return self._applied(target, request, created, write, 201)

    def bind(self, target: Target, request: Request) -> Reply:
        """Bind a pod; the body may name the pod. Raises ApiError 404, 409, 422 or 500."""
        binding = _body(request)
        name = target.name or name_of(binding)
        bound(self._store, name, target.namespace, binding, _write(request))
        return _created()

    def evict(self, target: Target, request: Request) -> Reply:
        """Evict a pod. Raises ApiError 404, 429 or 500."""
        evicted(self._store, target.name, target.namespace, _body(request), _write(request))
        return _created()

    def update(self, target: Target, request: Request) -> Reply:
        """Replace an object, its status or its scale. Raises ApiError."""
        write = _write(request)
        if target.subresource == "scale":
            return self._scaled(target, _body(request), write)
        obj = as_target(target, request.decoded())
        self._existing(target)
        if target.resource.custom and not dig(obj, "metadata", "resourceVersion"):
            must = "Invalid value: 0: must be specified for an update"
            problem = FieldProblem("metadata.resourceVersion", "FieldValueInvalid", must)
            raise invalid(target.resource.qualified_kind, target.name, [problem])
        updated = self._store.update(target.resource, obj, subresource=_part(target), write=write)
        return self._applied(target, request, updated, write)

    def patch(self, target: Target, request: Request) -> Reply:
        """Patch or apply an object, its status or its scale. Raises ApiError."""
        write, kind, patch = (
            _write(request),
            request.content_type.partition(";")[0].strip(),
            request.decoded(),
        )
        if target.subresource == "scale":
            scale = scale_of(target.resource, self._existing(target))
            changed = json_patch(scale, patch) if _PATCHES.get(kind) == "json" else merge_patch(scale, patch)
            return self._scaled(target, changed, write)
        if kind == _APPLY:
            _check_named(patch)
            config = as_target(target, patch)
            applied, new = self._store.apply(target.resource, config, subresource=_part(target), write=write)
            return self._applied(target, request, applied, write, 201 if new else 200)
        if kind not in _PATCHES:
            accepted = ", ".join((*_PATCHES, _APPLY))
            message = (
                f"the body of the request was in an unknown format - accepted media types include: {accepted}"
            )
            raise ApiError(415, "UnsupportedMediaType", message)
        patched = self._store.patch(
            target.resource,
            target.name,
            patch,
            target.namespace,
            subresource=_part(target),
            kind=_PATCHES[kind],
            write=write,
        )
        return self._applied(target, request, patched, write)

    def delete(self, target: Target, request: Request) -> Reply:
        """Delete one object. Raises ApiError 404 or 409."""
        last, gone = self._store.delete(target.resource, target.name, target.namespace, _deletion(request))
        if not gone or target.resource.name == "pods":
            return reply(target.presentation(request, self._store.now).shaped(last))
        details = {"name": target.name, "kind": target.resource.plural, "uid": last["metadata"]["uid"]}
        return _deleted(details | ({"group": target.resource.group} if target.resource.group else {}))

    def delete_many(self, target: Target, request: Request) -> Reply:
        """Delete all objects that the selectors match."""
        options = _deletion(request)
        labels, fields = request.query.get("labelSelector", ""), request.query.get("fieldSelector", "")
        with self._store.history.lock:
            doomed = self._store.revisions(target.resource, target.namespace, labels, fields)
            for revision in doomed:
                name, namespace = name_of(revision.object), namespace_of(revision.object)
                # An owner's deletion may have removed it already.
                if self._store.find(target.resource, name, namespace) is not None:
                    self._store.delete(target.resource, name, namespace, options)
        metadata = {"resourceVersion": str(self._store.history.revision)}
        return Reply(target.presentation(request, self._store.now).many(doomed, metadata))

    def _scaled(self, target: Target, scale: View, write: Write) -> Reply:
        after = scaled(self._store, target.resource, self._existing(target), scale, write)
        return reply(scale_of(target.resource, after))

    def _existing(self, target: Target) -> View:
        return self._store.get(target.resource, target.name, target.namespace)

    def _applied(self, target: Target, request: Request, obj: View, write: Write, code: int = 200) -> Reply:
        return reply(target.presentation(request, self._store.now).shaped(obj), code, tuple(write.warnings))


def _check_named(config: object) -> None:
    """Raise ApiError 400 if an applied configuration does not name its apiVersion and kind."""
    api_version, kind = (dig(config, field) or "" for field in ("apiVersion", "kind"))
    if not (api_version and kind):
        group, _, version = str(api_version).rpartition("/")
        raise bad_request(f"invalid object type: {group}/{version}, Kind={kind}")


def _part(target: Target) -> str:
    """Return the target's subresource. Raises ApiError 404 if the kind does not have it."""
    served = {
        "": True,
        "status": target.resource.status,
        "resize": target.resource.name == "pods",
        "finalize": target.resource.name == "namespaces",
    }
    if not served.get(target.subresource):
        raise no_such_path()
    return target.subresource


def _write(request: Request) -> Write:
    check_write(request)
    # An apply must name its manager. The default manager of other writes is the client program.
    program = "" if _APPLY in request.content_type else request.user_agent.partition("/")[0]
    return Write(
        manager=request.query.get("fieldManager") or program,
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
    check_write(request)
    body = _body(request) if request.body.strip() else {}
    query: Object = {}
    if request.query.get("propagationPolicy"):
        query["propagationPolicy"] = request.query["propagationPolicy"]
    if request.query.get("gracePeriodSeconds"):
        query["gracePeriodSeconds"] = request.number("gracePeriodSeconds")
    return delete_options({**body, **query}, dry_run=request.query.get("dryRun") == "All")


def _deleted(details: Object) -> Reply:
    return reply({**_SUCCESS, "details": details})


def _created() -> Reply:
    return reply({**_SUCCESS, "code": 201}, 201)
