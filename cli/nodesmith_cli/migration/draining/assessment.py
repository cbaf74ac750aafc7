"""The obstacles to a group's drain, and what the drain will wait for. These are values; nothing is written."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from nodesmith.decisions.takeover import shown_standby
from nodesmith.decisions.termination.evictions import Allowances, refuses_disruption
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.karpenter.ownership import is_foreign
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.snapshot import Snapshot
from nodesmith_cli.migration.draining.groups import NodeGroup
from nodesmith_cli.migration.draining.objects import Autoscaler, instance_of
from nodesmith_cli.planning.deciding import planned
from nodesmith_cli.planning.inputs import plan_inputs
from nodesmith_cli.planning.manifests import read_manifests
from nodesmith_cli.planning.report import plan_json
from nodesmith_cli.planning.running import node_settings
from nodesmith_cli.sharing.ownership import Manifest
from nodesmith_formats.kubernetes.objects import condition_of, name_of
from nodesmith_formats.manifests.manifests import Document
from nodesmith_formats.wording import counted, some

MOST = 300
"""How many characters of a message from the cluster are shown."""
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Room:
    """Where the pods of a group go: how many nodes are planned for them, and why the group cannot be drained."""

    planned: int = 0
    obstacles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupAssessment:
    """A group, its nodes by instance, and the pods that its drain moves.

    `obstacles` are why it cannot be drained, and `notes` what its drain waits for, each a sentence.
    """

    group: NodeGroup
    nodes: Mapping[str, Manifest]
    pods: tuple[Pod, ...]
    planned: int = 0
    obstacles: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def nodes_of(group: NodeGroup, nodes: Iterable[Manifest]) -> dict[str, Manifest]:
    """Return the Nodes of a group's instances, by the instances' ids."""
    members = frozenset(group.instances)
    return {instance_of(node): node for node in nodes if instance_of(node) in members}


def leaves(pod: Pod) -> bool:
    """Return whether a drain moves a pod. Pods of DaemonSets and static pods end with their node."""
    return pod.shape.moves and not pod.shape.is_room


def held_reason(pod: Pod, now: datetime) -> str:
    """Return why a pod must not be evicted even if its PodDisruptionBudget allows it, or an empty string."""
    if refuses_disruption(pod, now):
        return "is annotated karpenter.sh/do-not-disrupt or safe-to-evict=false"
    return "" if pod.shape.owner else "has no controller that would create it again"


def seen_of(
    group: NodeGroup,
    nodes: Mapping[str, Manifest],
    snapshot: Snapshot,
    autoscalers: Sequence[Autoscaler],
    now: datetime,
) -> GroupAssessment:
    """Return what is known of a group before the plan of its pods."""
    pods = tuple(sorted(filter(leaves, snapshot.pods), key=lambda pod: pod.key))
    obstacles = [group.obstacle] if group.obstacle else []
    obstacles += [
        f"Cluster Autoscaler ({autoscaler.name}) scales it and would add nodes again: scale that to zero, "
        "or exclude the group"
        for autoscaler in autoscalers
        if autoscaler.scales(group.scaling_group, group.tags)
    ]
    return GroupAssessment(
        group,
        nodes,
        pods,
        obstacles=(*obstacles, *_never_let_go(pods, snapshot)),
        notes=tuple(_held(pods, now)),
    )


def _never_let_go(pods: Sequence[Pod], snapshot: Snapshot) -> Iterator[str]:
    """Yield a sentence for each PodDisruptionBudget, or set of them, that never allows an eviction of some pods."""
    allowances = Allowances(snapshot.budgets)
    guarded: dict[str, list[str]] = {}
    for pod in pods:
        if allowances.is_never_evictable(pod):
            guards = allowances.guards(pod.shape)
            names = " and ".join(sorted(guard.key for guard in guards))
            reason = f"PodDisruptionBudget {names} never allows an eviction"
            if len(guards) > 1:
                reason = f"PodDisruptionBudgets {names} select the same pods, for which Kubernetes refuses evictions"
            guarded.setdefault(reason, []).append(pod.key)
    for reason, keys in sorted(guarded.items()):
        yield f"{reason}: {some(keys, _SHOWN)}"


def _held(pods: Sequence[Pod], now: datetime) -> Iterator[str]:
    for pod in pods:
        if reason := held_reason(pod, now):
            yield f"node {pod.node} is drained once pod {pod.key} is gone, which {reason}"


def with_room(
    group_assessment: GroupAssessment, documents: Sequence[Document], catalog: Catalog, now: datetime
) -> GroupAssessment:
    """Return the same with the plan of its pods on what remains of the cluster."""
    room = _room(group_assessment, documents, catalog, now)
    return replace(
        group_assessment, planned=room.planned, obstacles=(*group_assessment.obstacles, *room.obstacles)
    )


def _room(
    group_assessment: GroupAssessment, documents: Sequence[Document], catalog: Catalog, now: datetime
) -> Room:
    pools = [document.manifest for document in documents if document.manifest["kind"] == "NodePool"]
    ours = [pool for pool in pools if not is_foreign(pool)]
    if standby := shown_standby(ours):
        return Room(obstacles=(f"nodesmith buys nothing: {standby[:MOST]}",))
    unready = {name_of(nodepool): reason for nodepool in ours if (reason := _unready(nodepool))}
    unready_pools = tuple(
        f"NodePool {name} is not Ready: {reason}" for name, reason in sorted(unready.items())
    )
    if len(unready) == len(ours):
        return Room(
            obstacles=unready_pools or ("nodesmith has no NodePool: nothing would be bought for its pods",)
        )
    if not group_assessment.pods:
        return Room()
    planned_nodes, reasons = _placed(
        group_assessment, list(_without(group_assessment, documents, unready)), catalog, now
    )
    return Room(planned_nodes, (*reasons, *unready_pools) if reasons else ())


def _placed(
    group_assessment: GroupAssessment, remaining: Sequence[Document], catalog: Catalog, now: datetime
) -> tuple[int, list[str]]:
    """Return how many nodes are planned for a group's pods, and a sentence about those that find no place."""
    manifests, settings = read_manifests((), remaining), node_settings(os.environ)
    written = plan_json(planned(plan_inputs(manifests, catalog, settings=settings, now=now)))
    moved = {pod.key for pod in group_assessment.pods}
    reasons: dict[str, list[str]] = {}
    for unplaced in written["unplaced"]:
        if unplaced["pod"] in moved:
            reasons.setdefault(str(unplaced["reason"]), []).append(str(unplaced["pod"]))
    return len(written["nodes"]), [
        f"no place for {counted(len(keys), 'pod')}: {some(keys, _SHOWN)}: {reason}"
        for reason, keys in sorted(reasons.items())
    ]


def _unready(pool: Manifest) -> str:
    """Return why a NodePool buys nothing, or an empty string."""
    ready = condition_of(pool, "Ready") or {}
    if ready.get("status") == "True":
        return ""
    return str(ready.get("message") or ready.get("reason") or "nodesmith has not looked at it yet")[:MOST]


def _without(
    group_assessment: GroupAssessment, documents: Iterable[Document], unready: Collection[str]
) -> Iterator[Document]:
    """Yield the cluster without the group's nodes and unready NodePools. The group's pods are pending."""
    gone = {name_of(node) for node in group_assessment.nodes.values()}
    moved = {pod.key for pod in group_assessment.pods}
    for document in documents:
        kind, manifest = document.manifest["kind"], document.manifest
        spec, name = manifest.get("spec") or {}, name_of(manifest)
        if (kind == "Node" and name in gone) or (kind == "NodePool" and name in unready):
            continue
        if kind != "Pod" or spec.get("nodeName") not in gone:
            yield document
        elif f"{manifest['metadata'].get('namespace')}/{name}" in moved:
            pending = {key: value for key, value in spec.items() if key != "nodeName"}
            bare = {key: value for key, value in manifest.items() if key != "status"}
            yield Document({**bare, "spec": pending}, document.file, document.number)
