"""Whether the pods on groups' nodes find a place on the NodePools that replace the groups: a plan without these."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodesmith.model.apimachinery.labels import NODEPOOL
from nodesmith_cli.costs.savings.owners import NODE_GROUP
from nodesmith_cli.migration.nodegroups.groups import Group, GroupContext
from nodesmith_cli.migration.nodegroups.merging import Merged
from nodesmith_cli.planning.deciding import planned
from nodesmith_cli.planning.inputs import plan_inputs
from nodesmith_cli.planning.manifests import read_manifests
from nodesmith_cli.planning.report import plan_json
from nodesmith_cli.planning.running import node_settings
from nodesmith_cli.planning.workloads import controller, is_active
from nodesmith_formats.kubernetes.objects import pod_key
from nodesmith_formats.manifests.manifests import Document

Manifest = Mapping[str, Any]
_REPLACED = frozenset({"NodePool", "EC2NodeClass", "NodeClaim", "NodeOverlay", "CapacityBuffer"})
_STAYING = frozenset({"DaemonSet", "Node"})
"""Controllers of pods that belong to a node: daemons and static pods."""


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A pod of a group that no new NodePool can take, why, and what would help."""

    pod: str
    node: str
    group: str
    reason: str
    fix: str


@dataclass(frozen=True, slots=True)
class Placing:
    """The result: how many nodes and pods were looked at, how many new nodes they need, and who finds no place."""

    nodes: int
    pods: int
    planned: int
    unplaced: tuple[Unplaced, ...]


def placing(documents: Sequence[Document], merged_groups: Sequence[Merged], context: GroupContext) -> Placing:
    """Plan the pods of the groups' nodes on the new NodePools alone. Other nodes take none of them."""
    groups = [member.group for merged in merged_groups for member in merged.members]
    owners = group_of_nodes((d.manifest for d in documents if d.manifest["kind"] == "Node"), groups)
    moved = {
        pod_key(d.manifest): str(d.manifest["spec"]["nodeName"])
        for d in documents
        if _moves(d.manifest, owners)
    }
    if not moved or not merged_groups:
        return Placing(len(owners), len(moved), 0, ())
    objects = [*_without_groups(documents, owners, moved), *_new(merged_groups, context)]
    inputs = plan_inputs(read_manifests((), objects), context.catalog, settings=node_settings(os.environ))
    written = plan_json(planned(inputs))
    unplaced = tuple(
        Unplaced(pod["pod"], moved[pod["pod"]], owners[moved[pod["pod"]]], pod["reason"], pod["fix"] or "")
        for pod in written["unplaced"]
        if pod["pod"] in moved
    )
    return Placing(len(owners), len(moved), len(written["nodes"]), unplaced)


def group_of_nodes(nodes: Iterable[Manifest], groups: Iterable[Group]) -> dict[str, str]:
    """Return the groups' names by the names of their nodes: by EKS's label, or by the id of the instance."""
    managed = {group.name: group.name for group in groups if group.is_managed}
    by_instance = {id_: group.name for group in groups for id_ in group.instances}
    group_by_node: dict[str, str] = {}
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        instance = str((node.get("spec") or {}).get("providerID") or "").rpartition("/")[2]
        owner = managed.get(labels.get(NODE_GROUP, "")) or by_instance.get(instance)
        if owner and NODEPOOL not in labels:
            group_by_node[node["metadata"]["name"]] = owner
    return group_by_node


def _moves(manifest: Manifest, owners: Mapping[str, str]) -> bool:
    if manifest["kind"] != "Pod" or (manifest.get("spec") or {}).get("nodeName") not in owners:
        return False
    return is_active(manifest) and controller(manifest["metadata"]).get("kind") not in _STAYING


def _without_groups(
    documents: Iterable[Document], owners: Mapping[str, str], moved: Mapping[str, str]
) -> Iterator[Document]:
    """Yield the cluster without the groups' nodes: their pods are pending, and other nodes take no pods."""
    for document in documents:
        kind, manifest = document.manifest["kind"], document.manifest
        spec = manifest.get("spec") or {}
        if kind in _REPLACED or (kind == "Node" and manifest["metadata"]["name"] in owners):
            continue
        if kind == "Node":
            yield Document(
                {**manifest, "spec": {**spec, "unschedulable": True}}, document.file, document.number
            )
        elif kind == "Pod" and pod_key(manifest) in moved:
            pending = {name: value for name, value in spec.items() if name != "nodeName"}
            bare = {name: value for name, value in manifest.items() if name != "status"}
            yield Document({**bare, "spec": pending}, document.file, document.number)
        elif kind != "Pod" or (spec.get("nodeName") and spec["nodeName"] not in owners):
            yield document


def _new(merged_groups: Iterable[Merged], context: GroupContext) -> Iterator[Document]:
    """Yield the new objects. The status of an EC2NodeClass shows its subnets, as it would in the cluster."""
    seen: set[str] = set()
    for merged in merged_groups:
        for manifest in merged.manifests:
            place = f"{manifest['kind']}/{manifest['metadata']['name']}"
            if place in seen:
                continue
            seen.add(place)
            shown = (
                {**manifest, "status": _status(manifest, context)}
                if manifest is merged.nodeclass
                else manifest
            )
            yield Document(shown, "new objects", len(seen))


def _status(nodeclass: Manifest, context: GroupContext) -> dict[str, Any]:
    ids = [term["id"] for term in nodeclass["spec"]["subnetSelectorTerms"]]
    subnets = [{"id": id_, "zone": context.zones[id_]} for id_ in ids if id_ in context.zones]
    terms = nodeclass["spec"].get("capacityReservationSelectorTerms") or ()
    reservations = [context.reservations[t["id"]] for t in terms if t.get("id") in context.reservations]
    return {"subnets": subnets, "capacityReservations": reservations}
