"""Reading a cluster: the objects that connect installs, other autoscalers, and the forwarder's pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from nodesmith.adapters.kubernetes.apiserver import ApiServer
from nodesmith_cli.connecting.applying import Applier, State, path_of
from nodesmith_cli.connecting.manifests import CRD, FORWARDER, NAMESPACE
from nodesmith_cli.connecting.observed import ClusterReading, Object
from nodesmith_cli.sharing.ownership import ClusterOwnership, Manifest, listed, read_ownership
from nodesmith_formats.kubernetes.objects import name_of

_DEPLOYMENTS = "/apis/apps/v1/deployments"
_FORWARDER = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{FORWARDER}"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
OF_FORWARDER = "labelSelector=app.kubernetes.io%2Fcomponent%3Dforwarder"
_CREDENTIALS = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
"""The environment variable that points the SDK to its credentials. EKS sets it when a pod is created."""
_AUTOSCALERS = ("cluster-autoscaler", "aws-cluster-autoscaler")


def look_inside(
    server: Applier, manifests: Sequence[Mapping[str, Any]], ownership: ClusterOwnership
) -> ClusterReading:
    """Compare the cluster with the manifests, without changing anything. Raises Transient, Rejected."""
    return ClusterReading(
        ownership,
        tuple(_object(server, manifest, ownership) for manifest in manifests),
        tuple(_autoscalers(server)),
        without_credentials(server),
        image_of(server),
    )


def ownership_of(server: ApiServer, now: datetime) -> ClusterOwnership:
    """Return what in the cluster belongs to nodesmith, and what to other software."""
    return read_ownership(server, now)


def image_of(server: ApiServer) -> str:
    """Return the image of the installed forwarder, or an empty string."""
    deployment = server.get(_FORWARDER)
    containers = ((((deployment or {}).get("spec") or {}).get("template") or {}).get("spec") or {}).get(
        "containers"
    )
    return str((containers or [{}])[0].get("image") or "")


def without_credentials(server: ApiServer) -> tuple[str, ...]:
    """Return the names of the forwarder's pods without EKS Pod Identity credentials."""
    return tuple(name_of(pod) for pod in forwarders_pods(server) if not _has_credentials(pod))


def forwarders_pods(server: ApiServer) -> list[Manifest]:
    """Return the forwarder's pods, except terminating ones."""
    pods = listed(server, PODS, OF_FORWARDER)
    return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]


def _has_credentials(pod: Mapping[str, Any]) -> bool:
    containers = (pod.get("spec") or {}).get("containers") or ()
    return any(variable.get("name") == _CREDENTIALS for c in containers for variable in c.get("env") or ())


def _object(server: Applier, manifest: Mapping[str, Any], ownership: ClusterOwnership) -> Object:
    state = server.state(manifest)
    leave = (
        _why_left(server, manifest, ownership) if state is State.DIFFERENT and manifest["kind"] == CRD else ""
    )
    return Object(manifest, state, leave)


def _why_left(server: Applier, manifest: Mapping[str, Any], ownership: ClusterOwnership) -> str:
    """Return the reason why a CRD is not replaced, or an empty string.

    It is kept if it is newer than ours, or if other software manages it and both have fields the other lacks.
    """
    there, manager = server.get(path_of(manifest)), ownership.crds.get(name_of(manifest), "")
    object_age = age(there or {}, manifest)
    if object_age is Age.NEWER:
        return "is newer than the one in this release"
    return (
        f"is managed by {manager} and has fields of its own"
        if manager and object_age is Age.DIFFERENT
        else ""
    )


def _autoscalers(server: ApiServer) -> Iterator[str]:
    for autoscaler in running_autoscalers(server):
        yield f"{autoscaler['metadata'].get('namespace', '')}/{name_of(autoscaler)}"


def running_autoscalers(server: ApiServer) -> Iterator[Manifest]:
    """Yield the Deployments of Cluster Autoscaler that have replicas. Raises Transient, Rejected."""
    for deployment in listed(server, _DEPLOYMENTS):
        labels, name = deployment["metadata"].get("labels") or {}, name_of(deployment)
        is_one = labels.get("app.kubernetes.io/name") in _AUTOSCALERS or name.endswith("cluster-autoscaler")
        if is_one and (deployment.get("spec") or {}).get("replicas", 1):
            yield deployment


class Age(StrEnum):
    """How an installed CRD compares with ours, by the fields of each."""

    SAME = "same"
    OLDER = "older"
    NEWER = "newer"
    DIFFERENT = "different"


def age(there: Mapping[str, Any], ours: Mapping[str, Any]) -> Age:
    """Compare the fields of two CRDs, in all their API versions."""
    theirs, own = set(_fields(there)), set(_fields(ours))
    if theirs == own:
        return Age.SAME
    if theirs < own:
        return Age.OLDER
    return Age.NEWER if own < theirs else Age.DIFFERENT


def _fields(crd: Mapping[str, Any]) -> Iterator[str]:
    for version in (crd.get("spec") or {}).get("versions") or ():
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        yield str(version.get("name"))
        yield from _paths(schema, str(version.get("name")))


def _paths(schema: Mapping[str, Any], at: str) -> Iterator[str]:
    for name, inner in (schema.get("properties") or {}).items():
        yield f"{at}.{name}"
        yield from _paths(inner, f"{at}.{name}")
    for part in ("items", "additionalProperties"):
        inner = schema.get(part)
        if isinstance(inner, Mapping):
            yield from _paths(inner, f"{at}[]")
