"""Looking at a cluster: what connect installs and how it stands, other autoscalers, and the forwarder's pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from nodesmith.adapters.kubernetes.apiserver import ApiServer
from nodesmith_cli.connecting.applying import Applier, State, path_of
from nodesmith_cli.connecting.crdages import Age, age
from nodesmith_cli.connecting.manifests import CRD, FORWARDER, NAMESPACE
from nodesmith_cli.connecting.observed import Inside, Object
from nodesmith_cli.sharing.survey import Manifest, Survey, listed, name_of, take_survey

_DEPLOYMENTS = "/apis/apps/v1/deployments"
_FORWARDER = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{FORWARDER}"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
OF_FORWARDER = "labelSelector=app.kubernetes.io%2Fcomponent%3Dforwarder"
_CREDENTIALS = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
"""The variable by which the SDK finds them; EKS writes it into pods as they are made."""
_AUTOSCALERS = ("cluster-autoscaler", "aws-cluster-autoscaler")


def look_inside(server: Applier, manifests: Sequence[Mapping[str, Any]], survey: Survey) -> Inside:
    """Compare what is installed with what is to be; writes nothing. Raises Transient, Rejected."""
    return Inside(
        survey,
        tuple(_object(server, each, survey) for each in manifests),
        tuple(_autoscalers(server)),
        without_credentials(server),
        image_of(server),
    )


def survey_of(server: ApiServer, now: datetime) -> Survey:
    """Read what of the cluster is nodesmith's, and what is others'."""
    return take_survey(server, now)


def image_of(server: ApiServer) -> str:
    """Return the image of the forwarder that is there; empty without one."""
    found = server.get(_FORWARDER)
    containers = ((((found or {}).get("spec") or {}).get("template") or {}).get("spec") or {}).get(
        "containers"
    )
    return str((containers or [{}])[0].get("image") or "")


def without_credentials(server: ApiServer) -> tuple[str, ...]:
    """Name the forwarder's pods into which EKS Pod Identity has put no credentials."""
    return tuple(name_of(each) for each in forwarders_pods(server) if not _has_credentials(each))


def forwarders_pods(server: ApiServer) -> list[Manifest]:
    """List the forwarder's pods, without those that end."""
    pods = listed(server, PODS, OF_FORWARDER)
    return [each for each in pods if not each["metadata"].get("deletionTimestamp")]


def _has_credentials(pod: Mapping[str, Any]) -> bool:
    containers = (pod.get("spec") or {}).get("containers") or ()
    return any(each.get("name") == _CREDENTIALS for c in containers for each in c.get("env") or ())


def _object(server: Applier, manifest: Mapping[str, Any], survey: Survey) -> Object:
    state = server.state(manifest)
    leave = (
        _why_left(server, manifest, survey) if state is State.DIFFERENT and manifest["kind"] == CRD else ""
    )
    return Object(manifest, state, leave)


def _why_left(server: Applier, manifest: Mapping[str, Any], survey: Survey) -> str:
    """Return why a CRD is not replaced.

    It knows fields that ours does not, and was written by somebody newer or else.
    """
    there, manager = server.get(path_of(manifest)), survey.crds.get(name_of(manifest), "")
    found = age(there or {}, manifest)
    if found is Age.NEWER:
        return "is newer than this command's"
    return f"is managed by {manager} and has fields of its own" if manager and found is Age.DIFFERENT else ""


def _autoscalers(server: ApiServer) -> Iterator[str]:
    for each in listed(server, _DEPLOYMENTS):
        labels, name = each["metadata"].get("labels") or {}, name_of(each)
        is_one = labels.get("app.kubernetes.io/name") in _AUTOSCALERS or name.endswith("cluster-autoscaler")
        if is_one and (each.get("spec") or {}).get("replicas", 1):
            yield f"{each['metadata'].get('namespace', '')}/{name}"
