"""The objects that a removal deletes, in order, and those that it keeps. Pure functions of a survey."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nodesmith.model.karpenter.ownership import nodeclass_group, nodeclass_name, server_of
from nodesmith.observation.mirror import (
    NODE_OVERLAYS,
    NODE_TEMPLATES,
    NODECLAIMS,
    NODECLASSES,
    NODEPOOLS,
    PROVISIONERS,
)
from nodesmith_cli.sharing.ownership import CRDS, OWN_CRDS, SHARED_CRDS, ClusterOwnership, Manifest
from nodesmith_formats.kubernetes.objects import name_of
from nodesmith_formats.wording import counted


@dataclass(frozen=True, slots=True)
class Target:
    """An object to delete. `orphan` keeps its dependents: NodeClaims are deleted one by one, and only ours."""

    path: str
    kind: str
    name: str
    uid: str = ""
    orphan: bool = False

    def __str__(self) -> str:
        """Return `Kind/name`."""
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class KeptObject:
    """An object that stays, and why."""

    name: str
    reason: str


def buyers(ownership: ClusterOwnership) -> list[Target]:
    """Return what launches nodes: our NodePools and all Provisioners."""
    pools = [_target(NODEPOOLS.path, "NodePool", nodepool, orphan=True) for nodepool in ownership.nodepools]
    old = [
        _target(PROVISIONERS.path, "Provisioner", provisioner, orphan=True)
        for provisioner in ownership.provisioners
    ]
    return [*pools, *old]


def claims(ownership: ClusterOwnership) -> list[Target]:
    """Return our NodeClaims, including those created by users, since nodesmith would launch them too."""
    return [_target(NODECLAIMS.path, "NodeClaim", nodeclaim) for nodeclaim in ownership.nodeclaims]


def classes(ownership: ClusterOwnership) -> list[Target]:
    """Return the EC2NodeClasses and AWSNodeTemplates that no NodeClaim of Karpenter references, and NodeOverlays.

    A NodeOverlay applies to the NodePools of every controller, so it stays if there is another.
    """
    used = set(map(nodeclass_name, ownership.karpenters_nodeclaims))
    free = [nodeclass for nodeclass in ownership.nodeclasses if name_of(nodeclass) not in used]
    shared = ownership.has_foreign_crds or ownership.karpenter or ownership.karpenters_nodeclaims
    templates = [
        nodetemplate for nodetemplate in ownership.nodetemplates if name_of(nodetemplate) not in used
    ]
    return [
        *(_target(NODECLASSES.path, "EC2NodeClass", nodeclass) for nodeclass in free),
        *(_target(NODE_TEMPLATES.path, "AWSNodeTemplate", template) for template in templates),
        *(
            _target(NODE_OVERLAYS.path, "NodeOverlay", nodeoverlay)
            for nodeoverlay in ownership.nodeoverlays
            if not shared
        ),
    ]


def definitions(ownership: ClusterOwnership) -> tuple[list[Target], list[KeptObject]]:
    """Return the CRDs to delete, and those to keep.

    Deleting a CRD deletes every object of its kind. A CRD is therefore deleted only if it has no objects left, and if
    no other software manages it.
    """
    left = {
        SHARED_CRDS[0]: [*ownership.nodepools, *ownership.foreign_nodepools],
        SHARED_CRDS[1]: [
            *ownership.nodeclaims,
            *ownership.karpenters_nodeclaims,
            *ownership.foreign_nodeclaims,
        ],
        OWN_CRDS[0]: ownership.nodeclasses,
        OWN_CRDS[1]: ownership.nodetemplates,
        OWN_CRDS[2]: ownership.provisioners,
        OWN_CRDS[3]: ownership.nodeoverlays,
    }
    targets, kept = [], []
    for name, objects in left.items():
        if name not in ownership.crds:
            continue
        reason = _why_kept(name, ownership, len(objects))
        if reason:
            kept.append(KeptObject(f"CustomResourceDefinition/{name}", reason))
        else:
            targets.append(Target(CRDS, "CustomResourceDefinition", name))
    return targets, kept


def others(ownership: ClusterOwnership) -> Iterator[KeptObject]:
    """Yield the objects of other software, which are not touched."""
    for pool in ownership.foreign_nodepools:
        yield KeptObject(f"NodePool/{name_of(pool)}", f"is served by {server_of(nodeclass_group(pool))}")
    for claim in ownership.foreign_nodeclaims:
        yield KeptObject(f"NodeClaim/{name_of(claim)}", f"belongs to {server_of(nodeclass_group(claim))}")
    used = set(map(nodeclass_name, ownership.karpenters_nodeclaims))
    for claim in ownership.karpenters_nodeclaims:
        yield KeptObject(f"NodeClaim/{name_of(claim)}", "was created by Karpenter")
    for nodeclass in ownership.nodeclasses:
        if name_of(nodeclass) in used:
            yield KeptObject(f"EC2NodeClass/{name_of(nodeclass)}", "NodeClaims of Karpenter reference it")


def _why_kept(name: str, ownership: ClusterOwnership, objects: int) -> str:
    manager = ownership.crds[name]
    if name in SHARED_CRDS and ownership.has_foreign_crds:
        return "other software in the cluster uses it"
    if name in SHARED_CRDS and ownership.karpenters_nodeclaims:
        return "has NodeClaims of Karpenter left"
    if manager:
        return f"is managed by {manager}"
    return f"has {counted(objects, 'object')} left" if objects else ""


def _target(path: str, kind: str, manifest: Manifest, *, orphan: bool = False) -> Target:
    metadata: Any = manifest["metadata"]
    return Target(path, kind, name_of(manifest), str(metadata.get("uid") or ""), orphan)
