"""What registering and initializing write onto a Node."""

from __future__ import annotations

from nodesmith.model.apimachinery import labels
from nodesmith.model.apimachinery.taints import UNREGISTERED
from nodesmith.model.karpenter.nodeclaimobjects import annotations_of, labels_of
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.nodes import REGISTERED_UNSCHEDULABLE, Node, NodePatch


def registration_patch(claim: NodeClaim, node: Node | None) -> NodePatch:
    """Return what registering puts on the Node: the claim's labels, annotations, taints, and itself as its owner.

    The taint `unregistered` goes. A Node that is to be held is cordoned. One labelled
    `karpenter.sh/do-not-sync-taints=true` has its taints from the kubelet already, and one that is registered had them:
    what it has shed since is not put back.
    """
    theirs = node.labels if node is not None else {}
    synced = theirs.get(labels.DO_NOT_SYNC_TAINTS) == "true" or labels.REGISTERED in theirs
    held = claim.held_until is not None and labels.REGISTERED not in theirs
    return NodePatch(
        labels={**labels_of(claim), labels.REGISTERED: "true"},
        annotations=annotations_of(claim),
        add_taints=() if synced else (*claim.taints, *claim.startup_taints),
        remove_taints=(UNREGISTERED,),
        provider_id=claim.provider_id,
        add_finalizers=(labels.TERMINATION_FINALIZER,),
        owner=claim.name,
        unschedulable=True if held else None,
    )


def initialization_patch(claim: NodeClaim) -> NodePatch:
    """Return what marks the Node as ready for pods, and opens it where it was held."""
    held = claim.held_until is not None
    return NodePatch(
        labels={labels.INITIALIZED: "true"},
        # The node controller would lift the taint as well, later: whoever was nominated would have been tried in vain.
        remove_taints=(REGISTERED_UNSCHEDULABLE,) if held else (),
        provider_id=claim.provider_id,
        unschedulable=False if held else None,
    )
