"""Objects of any API server, over HTTP, with the interface of `Store`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from threading import Thread
from typing import Any, Literal
from urllib.parse import quote, urlencode

from urllib3.exceptions import HTTPError

from nodesmith.adapters.kubernetes.apiserver import ApiServer, connect
from nodesmith.adapters.kubernetes.connection import passes, send_patiently
from nodesmith.errors import Transient
from nodesmith_formats.kubernetes.errors import ApiError
from nodesmith_formats.kubernetes.kinds import Resource
from nodesmith_formats.kubernetes.objects import Object, View, name_of, namespace_of
from nodesmith_local.apiserver.storage.history import Watcher
from nodesmith_local.apiserver.storage.registry import Registry
from nodesmith_local.apiserver.storage.store import Write
from nodesmith_local.backends.following import Following

Method = Literal["GET", "POST", "PATCH", "DELETE"]
_READ_SECONDS = 30.0
_PATIENCE_SECONDS = 30.0  # for errors that the server reports as temporary; users wait for this too
_JSON, _MERGE, _APPLY = (
    "application/json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
)
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class ServerObjects:
    """A cluster's objects, as the protocol `Objects`. `ca_bundle` is base64 PEM, empty for plain HTTP."""

    def __init__(self, url: str, ca_bundle: str, token: str) -> None:
        self._connection = connect(url, ca_bundle, lambda: token)
        self._registry = Registry()

    @property
    def registry(self) -> Registry:
        """The kinds that the server serves now. They are read each time because CRDs are added and deleted."""
        registry = Registry()
        for resource in self._discovered():
            registry.add(resource)
        self._registry = registry
        return registry

    def get(self, resource: str, name: str, namespace: str = "") -> View:
        """Return one object. Raises ApiError 404."""
        return self._call("GET", _path(self._resource(resource), namespace, name))

    def find(self, resource: str, name: str, namespace: str = "") -> View | None:
        """Return one object, or None where there is none."""
        try:
            return self.get(resource, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def list(
        self, resource: str, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Sequence[View]:
        """Return the objects that match the selectors."""
        selectors = {"labelSelector": labels, "fieldSelector": fields}
        query = urlencode({name: text for name, text in selectors.items() if text})
        served = self._resource(resource)
        listed = self._call("GET", f"{_path(served, namespace)}?{query}")
        # The items of a list do not include their kind.
        kind = {"apiVersion": served.api_version(), "kind": served.kind}
        return [{**kind, **item} for item in listed["items"]]

    def watch(self, resource: str, namespace: str = "") -> Watcher:
        """Watch a resource in a thread that ends after the watcher is closed, or with the process."""
        served = self._resource(resource)
        watcher = Watcher(served.name, namespace, None)
        following = Following(
            ApiServer(self._connection, _PATIENCE_SECONDS), _path(served, namespace), watcher
        )
        following.begin()
        Thread(target=following.run, name=f"watch-{resource}", daemon=True).start()
        return watcher

    def create(self, resource: str, obj: View, write: Write | None = None) -> View:
        """Create an object."""
        return self._call(
            "POST", _path(self._resource(resource), namespace_of(obj) or "default"), obj, write=write
        )

    def apply(self, resource: str, obj: View, *, write: Write | None = None) -> View:
        """Apply a manifest server-side."""
        path = _path(self._resource(resource), namespace_of(obj) or "default", name_of(obj))
        return self._call("PATCH", path, obj, _APPLY, write=write or Write(manager="nodesmith"))

    def patch(
        self, resource: str, name: str, patch: Any, namespace: str = "", *, subresource: str = ""
    ) -> View:
        """Apply a merge patch to an object, or only to its status."""
        path = _path(self._resource(resource), namespace, name)
        return self._call("PATCH", f"{path}/{subresource}" if subresource else path, patch, _MERGE)

    def delete(self, resource: str, name: str, namespace: str = "") -> View:
        """Delete an object; return its last state, or a Status."""
        return self._call("DELETE", _path(self._resource(resource), namespace, name))

    def _resource(self, name: str) -> Resource:
        try:
            return self._registry.named(name)
        except LookupError:
            return self.registry.named(name)

    def _discovered(self) -> Iterator[Resource]:
        for path in ("/api", "/apis"):
            for group in self._call("GET", path, accept=_DISCOVERY)["items"]:
                yield from _resources(group)

    def _call(
        self,
        method: Method,
        path: str,
        body: View | None = None,
        content_type: str = _JSON,
        *,
        accept: str = _JSON,
        write: Write | None = None,
    ) -> Object:
        """Return the server's answer to a call.

        Raises ApiError for a refusal, Transient if the server is unreachable or a temporary error lasts.
        """
        headers = {"Accept": accept} | ({"Content-Type": content_type} if body is not None else {})
        target = f"{path}?{_options(write, content_type)}" if write else path
        try:
            response = send_patiently(
                lambda: self._connection.send(method, target, headers, body, read_seconds=_READ_SECONDS),
                _PATIENCE_SECONDS,
            )
            content = response.data
        except (HTTPError, OSError) as error:
            raise Transient(f"{method} {path}: {error}") from error
        if response.status >= 400:
            refusal = _refusal(response.status, content)
            if passes(response):
                raise Transient(f"{method} {path}: {response.status} {refusal.reason}: {refusal}")
            raise refusal
        if write:
            write.warnings.extend(_warning(text) for text in response.headers.getlist("Warning"))
        response_body: Object = json.loads(content)
        return response_body


def _path(served: Resource, namespace: str = "", name: str = "") -> str:
    base = f"/apis/{served.api_version()}" if served.group else f"/api/{served.versions[0]}"
    namespace_path = f"/namespaces/{quote(namespace, safe='')}" if served.namespaced and namespace else ""
    return f"{base}{namespace_path}/{served.plural}" + (f"/{quote(name, safe='')}" if name else "")


def _options(write: Write, content_type: str) -> str:
    options = {"fieldManager": write.manager, "fieldValidation": write.field_validation}
    if write.dry_run:
        options["dryRun"] = "All"
    if content_type == _APPLY:
        options["force"] = str(write.force).lower()
    return urlencode({name: text for name, text in options.items() if text})


def _resources(group: Mapping[str, Any]) -> Iterator[Resource]:
    """Yield the resources of one group of the aggregated discovery, each in the first version that has it."""
    name, seen_resources = str(group["metadata"].get("name") or ""), set()
    for version in group["versions"]:
        for resource in version["resources"]:
            if "list" not in resource["verbs"] or resource["resource"] in seen_resources:
                continue
            seen_resources.add(resource["resource"])
            yield Resource(
                group=name,
                versions=(version["version"],),
                kind=resource["responseKind"]["kind"],
                plural=resource["resource"],
                namespaced=resource["scope"] == "Namespaced",
            )


def _refusal(status: int, content: bytes) -> ApiError:
    try:
        status_body = json.loads(content)
    except ValueError:
        status_body = {"message": content[:200].decode(errors="replace")}
    return ApiError(
        status,
        str(status_body.get("reason") or ""),
        str(status_body.get("message") or ""),
        status_body.get("details"),
    )


def _warning(header: str) -> str:
    """Return the text of a header such as `299 - "unknown field \\"spec.tempalte\\""`."""
    return header.partition('"')[2].removesuffix('"').replace('\\"', '"').replace("\\\\", "\\")
