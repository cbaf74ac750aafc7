"""The end of a local run: nothing is under way, and nothing more can be done for pending pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from nodesmith.model.karpenter.nodeclaimobjects import DISRUPTION_REASON
from nodesmith_formats.kubernetes.objects import pod_key
from nodesmith_local.runs.timeline import View, condition, reference

CALM = timedelta(seconds=20)
"""How long the cluster must be unchanged before refused pods count as stuck; retries and changes come sooner."""
FOR_GOOD = datetime.max.replace(tzinfo=UTC)
"""The time for pods that were refused for their own properties, regardless of the cluster."""
REPLICATED = ("deployments", "replicasets", "statefulsets")
WORKLOADS = (*REPLICATED, "daemonsets", "jobs")


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A cluster at one moment, as its API server shows it, and the time of its last change."""

    now: datetime
    last_change: datetime
    refused: Callable[[], Mapping[str, datetime]] = dict
    """Returns the pods (namespace/name) for which the last decision bought nothing, with the time of its snapshot.

    Called only if nothing else is under way, since it reads the ledger.
    """
    quiet_for: timedelta = CALM
    pods: Iterable[View] = ()
    nodeclaims: Iterable[View] = ()
    nodepools: Iterable[View] = ()
    """NodePools and EC2NodeClasses, under current and old names."""
    workloads: Mapping[str, Iterable[View]] = field(default_factory=dict)
    """By resource: Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs."""


def pending_activity(state: ClusterState) -> str:
    """Return the first thing that is still under way, or "" if the cluster is quiet."""
    return (
        _growing(state)
        or _joining(state.nodeclaims)
        or _starting(state.pods)
        or _ending(state)
        or _unresolved(state)
        or _undecided(state)
        or ""
    )


def undecided_nodepools(nodepools: Iterable[View]) -> list[str]:
    """Return the NodePools and EC2NodeClasses (`Kind/name`) without a known readiness."""
    return [
        reference(pool)
        for pool in nodepools
        if condition(pool, "Ready").get("status") not in {"True", "False"}
    ]


def _growing(state: ClusterState) -> str:
    """Return a workload that does not have all its pods yet. A StatefulSet creates a pod when the last one runs."""
    held_up = {owner for pod in state.pods if _is_waiting(pod) for owner in _owners(pod)}
    for resource in REPLICATED:
        for workload in state.workloads.get(resource, ()):
            spec, status = workload.get("spec") or {}, workload.get("status") or {}
            if _is_observed(workload) and workload["metadata"].get("uid") in held_up:
                continue
            if not _is_observed(workload) or status.get("replicas", 0) != spec.get("replicas", 1):
                return f"{workload['kind']}/{workload['metadata']['name']} does not have all its pods yet"
    for resource in WORKLOADS[len(REPLICATED) :]:
        for workload in state.workloads.get(resource, ()):
            if not workload.get("status"):
                return f"{workload['kind']}/{workload['metadata']['name']} has no status yet"
    return ""


def _owners(pod: View) -> Iterable[str]:
    """Return the uids of the StatefulSets that a pod belongs to: one or none."""
    references = pod["metadata"].get("ownerReferences") or ()
    return [str(owner["uid"]) for owner in references if owner.get("kind") == "StatefulSet"]


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


def _ending(state: ClusterState) -> str:
    """Return an object whose deletion is in progress; if nothing happens for a while, something blocks it."""
    if state.now - state.last_change < state.quiet_for:
        for kind, objects in (("NodeClaim", state.nodeclaims), ("Pod", state.pods)):
            for obj in objects:
                if obj["metadata"].get("deletionTimestamp"):
                    return f"{kind}/{pod_key(obj) if kind == 'Pod' else obj['metadata']['name']} is ending"
    return ""


def _unresolved(state: ClusterState) -> str:
    """Return a NodePool of unknown readiness while pods wait: refusals from that time are provisional."""
    undecided = undecided_nodepools(state.nodepools)
    if undecided and any(_is_waiting(pod) for pod in state.pods):
        return f"{undecided[0]} has no known readiness yet"
    return ""


def _undecided(state: ClusterState) -> str:
    """Return a pending pod that a decision may still help.

    A pod is done if a decision refused it with knowledge from after the last change settled. A quiet period alone is no
    proof, since on a slow machine a decision may still be due.
    """
    waiting = list(filter(_is_waiting, state.pods))
    settled, refused = state.last_change + state.quiet_for, state.refused() if waiting else {}
    for pod in waiting:
        looked = refused.get(pod_key(pod))
        if looked is None:
            return f"Pod/{pod_key(pod)} waits for a decision or for its node"
        if state.now < settled or looked < settled:
            return f"Pod/{pod_key(pod)} may benefit from the latest change"
    return ""


def _is_waiting(pod: Mapping[str, Any]) -> bool:
    phase = (pod.get("status") or {}).get("phase", "Pending")
    return not (pod.get("spec") or {}).get("nodeName") and phase == "Pending"
