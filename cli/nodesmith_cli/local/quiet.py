"""When a local run is over: nothing is on its way any more, and what is still pending has been looked at in vain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from nodesmith.model.karpenter.nodeclaimconditions import DISRUPTION_REASON
from nodesmith_cli.local.timeline import View, condition, pod_key, reference

CALM = timedelta(seconds=20)
"""How long nothing may have happened before refused pods count as stuck; a retry, or a change, comes sooner."""
FOR_GOOD = datetime.max.replace(tzinfo=UTC)
"""When a pod was refused for what it is itself, whatever the cluster looks like."""
REPLICATED = ("deployments", "replicasets", "statefulsets")
WORKLOADS = (*REPLICATED, "daemonsets", "jobs")


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster at one moment, as its API server shows it, and when something last happened in it."""

    now: datetime
    last_change: datetime
    refused: Mapping[str, datetime] = field(default_factory=dict)
    """pods (namespace/name) for which the last decision about them bought nothing, and as of when it knew them"""
    calm: timedelta = CALM
    pods: Iterable[View] = ()
    nodeclaims: Iterable[View] = ()
    nodepools: Iterable[View] = ()
    """and EC2NodeClasses, whatever they are called"""
    workloads: Mapping[str, Iterable[View]] = field(default_factory=dict)
    """by resource: Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs"""


def unrest(scene: Scene) -> str:
    """Return the first thing that is still under way; empty when all is quiet."""
    return (
        _growing(scene)
        or _joining(scene.nodeclaims)
        or _starting(scene.pods)
        or _ending(scene)
        or _unresolved(scene)
        or _undecided(scene)
        or ""
    )


def undecided_nodepools(nodepools: Iterable[View]) -> list[str]:
    """Name (`Kind/name`) the NodePools, and EC2NodeClasses, of which nobody has said yet whether they are ready."""
    return [
        reference(pool)
        for pool in nodepools
        if condition(pool, "Ready").get("status") not in {"True", "False"}
    ]


def _growing(scene: Scene) -> str:
    """Controllers have not made all the pods yet. A StatefulSet makes the next one when the last one runs."""
    held_up = {owner for pod in scene.pods if _is_waiting(pod) for owner in _owners(pod)}
    for resource in REPLICATED:
        for each in scene.workloads.get(resource, ()):
            spec, status = each.get("spec") or {}, each.get("status") or {}
            if _is_observed(each) and each["metadata"].get("uid") in held_up:
                continue
            if not _is_observed(each) or status.get("replicas", 0) != spec.get("replicas", 1):
                return f"{each['kind']}/{each['metadata']['name']} has not all its pods"
    for resource in WORKLOADS[len(REPLICATED) :]:
        for each in scene.workloads.get(resource, ()):
            if not each.get("status"):
                return f"{each['kind']}/{each['metadata']['name']} has not been looked at"
    return ""


def _owners(pod: View) -> Iterable[str]:
    """Return the uids of the StatefulSets that a pod belongs to: one, or none."""
    references = pod["metadata"].get("ownerReferences") or ()
    return [str(each["uid"]) for each in references if each.get("kind") == "StatefulSet"]


def _is_observed(workload: View) -> bool:
    observed = (workload.get("status") or {}).get("observedGeneration", 0)
    return bool(observed >= workload["metadata"].get("generation", 1))


def _joining(claims: Iterable[View]) -> str:
    for claim in claims:
        leaves = claim["metadata"].get("deletionTimestamp")
        if not leaves and condition(claim, "Initialized").get("status") != "True":
            return f"NodeClaim/{claim['metadata']['name']} is on its way"
        if not leaves and condition(claim, DISRUPTION_REASON).get("status") == "True":
            return f"NodeClaim/{claim['metadata']['name']} is being disrupted"
    return ""


def _starting(pods: Iterable[View]) -> str:
    for pod in pods:
        bound = (pod.get("spec") or {}).get("nodeName")
        if bound and (pod.get("status") or {}).get("phase", "Pending") == "Pending":
            return f"Pod/{pod_key(pod)} is starting"
    return ""


def _ending(scene: Scene) -> str:
    """What is being deleted goes, step by step; where nothing happens any more something holds it."""
    if scene.now - scene.last_change < scene.calm:
        for kind, objects in (("NodeClaim", scene.nodeclaims), ("Pod", scene.pods)):
            for each in objects:
                if each["metadata"].get("deletionTimestamp"):
                    return f"{kind}/{pod_key(each) if kind == 'Pod' else each['metadata']['name']} is ending"
    return ""


def _unresolved(scene: Scene) -> str:
    """A pod that was refused while nobody knew whether a NodePool is ready has not been looked at in earnest."""
    undecided = undecided_nodepools(scene.nodepools)
    if undecided and any(_is_waiting(pod) for pod in scene.pods):
        return f"{undecided[0]} is not known to be ready or not"
    return ""


def _undecided(scene: Scene) -> str:
    """A pending pod is over and done with when it was refused by who looked after the last change had settled.

    However slow this machine is: that nothing happens for a while may mean that nobody has looked yet.
    """
    settled = scene.last_change + scene.calm
    for pod in filter(_is_waiting, scene.pods):
        looked = scene.refused.get(pod_key(pod))
        if looked is None:
            return f"Pod/{pod_key(pod)} waits for a decision or for its node"
        if scene.now < settled or looked < settled:
            return f"Pod/{pod_key(pod)} may be helped by what has just happened"
    return ""


def _is_waiting(pod: Mapping[str, Any]) -> bool:
    phase = (pod.get("status") or {}).get("phase", "Pending")
    return not (pod.get("spec") or {}).get("nodeName") and phase == "Pending"
