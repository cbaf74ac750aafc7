"""Looking at a cluster: what connect installs and how it stands, other autoscalers, and the forwarder's pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from nodesmith.adapters.apiserver import ApiServer
from nodesmith.model.times import parse_time
from nodesmith_cli.connecting.applying import Applier, State, path_of
from nodesmith_cli.connecting.crdages import Age, age
from nodesmith_cli.connecting.manifests import CRD, FORWARDER, NAMESPACE
from nodesmith_cli.connecting.observed import Inside, Object
from nodesmith_cli.sharing.survey import Survey, listed, name_of, take_survey

_DEPLOYMENTS = "/apis/apps/v1/deployments"
_FORWARDER = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{FORWARDER}"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
OF_FORWARDER = "labelSelector=app.kubernetes.io%2Fcomponent%3Dforwarder"
_AUTOSCALERS = ("cluster-autoscaler", "aws-cluster-autoscaler")


def look_inside(server: Applier, manifests: Sequence[Mapping[str, Any]], survey: Survey) -> Inside:
    """Compare what is installed with what is to be; writes nothing. Raises Transient, Rejected."""
    return Inside(
        survey,
        tuple(_object(server, each, survey) for each in manifests),
        tuple(_autoscalers(server)),
        newest_pod(server),
        image_of(server),
    )


def survey_of(server: ApiServer, now: datetime) -> Survey:
    """Read what of the cluster is nodesmith's, and what is others'."""
    return take_survey(server, now)


def image_of(server: ApiServer) -> str:
    """Give the image of the forwarder that is there; empty without one."""
    found = server.get(_FORWARDER)
    containers = ((((found or {}).get("spec") or {}).get("template") or {}).get("spec") or {}).get(
        "containers"
    )
    return str((containers or [{}])[0].get("image") or "")


def newest_pod(server: ApiServer) -> datetime | None:
    """Say when the forwarder's newest pod was made."""
    made = [each["metadata"].get("creationTimestamp") for each in listed(server, PODS, OF_FORWARDER)]
    return max((parse_time(each) for each in made if each), default=None)


def _object(server: Applier, manifest: Mapping[str, Any], survey: Survey) -> Object:
    state = server.state(manifest)
    leave = (
        _why_left(server, manifest, survey) if state is State.DIFFERENT and manifest["kind"] == CRD else ""
    )
    return Object(manifest, state, leave)


def _why_left(server: Applier, manifest: Mapping[str, Any], survey: Survey) -> str:
    """Say why a CRD is not replaced: it knows fields that ours does not, and was written by somebody newer or else."""
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
