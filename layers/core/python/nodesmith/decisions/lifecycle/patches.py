"""What registration and initialization write onto a Node."""

from __future__ import annotations

from nodesmith.model.apimachinery import labels
from nodesmith.model.apimachinery.taints import UNREGISTERED
from nodesmith.model.karpenter.nodeclaimobjects import annotations_of, labels_of
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.nodes import REGISTERED_UNSCHEDULABLE, Node, NodePatch


def registration_patch(claim: NodeClaim, node: Node | None) -> NodePatch:
    """Return the patch for registration: the claim's labels, annotations and taints, and the claim as owner.

    The taint `unregistered` is removed. A Node that must be held is cordoned. Taints are not added to a Node that is
    labelled `karpenter.sh/do-not-sync-taints=true`, since its kubelet has set them, or to one that has registered
    before: taints that were removed since are not restored.
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
    """Return the patch that marks the Node as ready for pods, and uncordons it if it was held."""
    held = claim.held_until is not None
    return NodePatch(
        labels={labels.INITIALIZED: "true"},
        # The node controller would remove the taint as well, but later: pods nominated until then would fail.
        remove_taints=(REGISTERED_UNSCHEDULABLE,) if held else (),
        provider_id=claim.provider_id,
        unschedulable=False if held else None,
    )
