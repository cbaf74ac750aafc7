"""API paths of the kinds that nodesmith watches and writes. Names are untrusted, so they are URL-encoded."""

from __future__ import annotations

from urllib.parse import quote

from nodesmith.observation.mirror import WATCHED

PATHS = {each.kind: each.path for each in WATCHED}
"""The collection path by kind."""


def object_path(kind: str, name: str) -> str:
    """Return the path of an object. The name of a pod is `namespace/name`."""
    return pod_path(name) if kind == "Pod" else f"{PATHS[kind]}/{quote(name, safe='')}"


def pod_path(pod: str, subresource: str = "") -> str:
    """Return the path of a pod (`namespace/name`) or of one of its subresources."""
    namespace, _, name = pod.partition("/")
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
    return f"{path}/{subresource}" if subresource else path
