"""Which concerns a change wakes. Every change gets into the snapshot; only some wake a concern."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.ownership import is_unclaimed
from nodesmith.model.nodeclasses.nodeclasses import shown_ready
from nodesmith.observation.mirror import (
    CAPACITY_BUFFERS,
    DEVICE_CLAIMS,
    LEASES,
    NAMESPACES,
    NODE_OVERLAYS,
    NODE_TEMPLATES,
    NODECLAIMS,
    NODECLASSES,
    NODEPOOLS,
    NODES,
    POD_GROUPS,
    POD_TEMPLATES,
    PODS,
    PROVISIONERS,
    QUOTAS,
    REQUESTS,
    SCHEDULER_POD_GROUPS,
    SLICES,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
    WORKLOADS,
    Change,
)
from nodesmith.observation.workloads import is_concerned, referred_objects, wanted
from nodesmith_forwarder.drains import (
    affects_drain,
    can_wait,
    changes_more_than_status,
    conditions,
    is_of_foreign_nodepool,
    may_free_node,
)
from nodesmith_forwarder.windows import Topic

_CONCERNED_WITH_SPEC = {
    NODE_OVERLAYS.name: (Concern.PROVISIONING, Concern.DISRUPTION),
    QUOTAS.name: (Concern.PROVISIONING, Concern.READINESS),
    POD_GROUPS.name: (Concern.PROVISIONING,),
    WORKLOADS.name: (Concern.PROVISIONING,),
    SCHEDULER_POD_GROUPS.name: (Concern.PROVISIONING,),
    LEASES.name: (Concern.READINESS,),
}
"""A change of any of these may let pods that had no node get one. A NodeOverlay may also make a replacement cheaper."""


def triggered(
    change: Change,
    is_awaited: Callable[[str], bool],
    ending: Collection[str],
    buffers: Collection[Mapping[str, Any]] = (),
    proactive: Collection[str] = (),
) -> Iterator[tuple[Topic, str]]:
    """Yield the topics of a change, each with the key that counts once in its window; none if the change can wait.

    A pending pod may have been waiting for a change of a NodePool, an EC2NodeClass, a quota, a volume or a namespace's
    labels, so provisioning is woken too. A new namespace is empty, and its pods trigger provisioning themselves.
    Lifecycle deletes users' NodeClaims if their EC2NodeClass is gone or not Ready. `is_awaited` returns whether a pod
    waits for a volume claim (namespace/name); `ending` are the nodes that end. NodePools of other controllers wake
    nothing. Provisioning decides about ProvisioningRequests; lifecycle writes their status and forgets them. Readiness
    reports if Karpenter renews its lease.

    `buffers` are the CapacityBuffers. While there are any, a pod that comes to a node, or a change of a node, may have
    taken their room, which provisioning refills. `proactive` are the namespaces with proactive scale-up: provisioning
    plans the pods that a workload there is about to create.
    """
    key = f"{change.kind.kind}/{change.key}"
    frees = may_free_node(change, ending)
    if (can_wait(change, ending) and not frees) or is_of_foreign_nodepool(change):
        return
    yield None, key
    if frees:
        yield Concern.DISRUPTION, key
    if affects_drain(change, ending):
        yield Concern.TERMINATION, key
    yield from ((concern, key) for concern in _concerned_with_buffers(change, buffers))
    yield from [(Concern.PROVISIONING, key)] * has_grown(change, proactive)
    if change.kind == PODS and change.after is not None and change.after.is_provisionable:
        yield Concern.PROVISIONING, change.after.uid
    elif change.kind == NODES or (change.kind == NODECLAIMS and changes_more_than_status(change)):
        yield from ((concern, key) for concern in _concerned_with_nodes(change))
    elif change.kind.name in _CONCERNED_WITH_SPEC and changes_more_than_status(change):
        yield from ((concern, key) for concern in _CONCERNED_WITH_SPEC[change.kind.name])
    elif change.kind in (NODEPOOLS, NODECLASSES, PROVISIONERS, NODE_TEMPLATES):
        yield from ((concern, key) for concern in _concerned_with_pools(change))
    elif change.kind == REQUESTS or change.kind.claimed:
        concerns = (
            _concerned_with_devices(change) if change.kind.claimed else _concerned_with_requests(change)
        )
        yield from ((concern, key) for concern in concerns)
    elif _is_relabelled(change) or (change.after is not None and _is_awaited_volume(change, is_awaited)):
        yield Concern.PROVISIONING, key


def _concerned_with_buffers(change: Change, buffers: Collection[Mapping[str, Any]]) -> tuple[Concern, ...]:
    """Return the concerns that a change wakes because of CapacityBuffers.

    Disruption may remove nodes once a buffer is smaller or deleted.
    """
    if change.kind == CAPACITY_BUFFERS:
        is_changed = changes_more_than_status(change)
        return (Concern.PROVISIONING, Concern.DISRUPTION) if is_changed else ()
    if not buffers:
        return ()
    if change.kind == POD_TEMPLATES or change.kind.referred:
        return (Concern.PROVISIONING, Concern.DISRUPTION) if _is_referred(change, buffers) else ()
    if change.kind == PODS and change.after is not None:
        is_newly_bound = change.after.node and not (change.before is not None and change.before.node)
        return (Concern.PROVISIONING,) if is_newly_bound and change.after.owner_kind != "DaemonSet" else ()
    return (Concern.PROVISIONING,) if change.kind == NODES and changes_more_than_status(change) else ()


def has_grown(change: Change, proactive: Collection[str]) -> bool:
    """Return whether a workload of a namespace with proactive scale-up wants more pods than before."""
    is_proactive = change.kind.referred and change.key.partition("/")[0] in proactive
    return is_proactive and wanted(change.after) > wanted(change.before)


def _is_referred(change: Change, buffers: Collection[Mapping[str, Any]]) -> bool:
    namespace, _, name = change.key.partition("/")
    if change.kind.referred:
        referred, states = referred_objects(buffers), filter(None, (change.before, change.after))
        return any(is_concerned(manifest, change.kind.kind, referred) for manifest in states)
    specs = (manifest["spec"] for manifest in buffers if manifest["metadata"]["namespace"] == namespace)
    return any((spec.get("podTemplateRef") or {}).get("name") == name for spec in specs)


def _concerned_with_nodes(change: Change) -> Iterator[Concern]:
    """Yield the concerns that a Node or NodeClaim wakes; readiness reads a user's NodeClaim before its launch."""
    if not _was_ending(change):
        yield Concern.LIFECYCLE
    if change.kind == NODECLAIMS and change.after is not None and is_unclaimed(change.after):
        yield Concern.READINESS


def _concerned_with_devices(change: Change) -> Iterator[Concern]:
    """Yield the concerns that a change of dynamic resource allocation wakes.

    A node waits for the ResourceSlices of its devices, and a pod for its claim, its template or its DeviceClass. No
    concern waits for the change that kube-scheduler makes to a claim when it allocates devices.
    """
    if change.kind == SLICES:
        yield Concern.LIFECYCLE
    if change.kind != DEVICE_CLAIMS or change.before is None:
        yield Concern.PROVISIONING


def _concerned_with_requests(change: Change) -> Iterator[Concern]:
    yield Concern.PROVISIONING if changes_more_than_status(change) else Concern.LIFECYCLE
    if change.after is None:
        yield Concern.LIFECYCLE


def _concerned_with_pools(change: Change) -> Iterator[Concern]:
    """Yield the concerns that a change of a NodePool or EC2NodeClass, or of their older kinds, wakes."""
    if changes_more_than_status(change):
        yield Concern.READINESS
    if changes_more_than_status(change) or conditions(change.before) != conditions(change.after):
        yield Concern.PROVISIONING
    if change.kind == NODECLASSES and _is_unusable(change.after):
        yield Concern.LIFECYCLE


def _is_unusable(nodeclass: Mapping[str, Any] | None) -> bool:
    """Return whether nothing may be launched from an EC2NodeClass: it is gone, being deleted, or not Ready."""
    if nodeclass is None or "deletionTimestamp" in nodeclass["metadata"]:
        return True
    return (shown_ready(nodeclass) or {}).get("status") == "False"


def _was_ending(change: Change) -> bool:
    """Return whether a change belongs to a deletion in progress, which termination alone handles to its end."""
    states = (change.before, change.after)
    return all(state is not None and "deletionTimestamp" in state["metadata"] for state in states)


def _is_relabelled(change: Change) -> bool:
    return change.kind == NAMESPACES and None not in (change.before, change.after)


def _is_awaited_volume(change: Change, is_awaited: Callable[[str], bool]) -> bool:
    if change.kind == VOLUME_CLAIMS:
        return is_awaited(change.key)
    if change.kind == VOLUMES:
        return is_awaited(change.after.claim) if change.after.claim else change.after.offers is not None
    return change.kind == STORAGE_CLASSES
