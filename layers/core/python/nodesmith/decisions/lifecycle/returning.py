"""Nodes that come back: the Node object of a joined claim was deleted and created again.

If a user removes a Node's finalizer by hand, the object disappears while its kubelet runs, and the kubelet creates a
new one: without nodesmith's labels, and with the taint that every new Node has. It is opened and initialized again, and
its claim stays as it is. A Node that was restored from a backup has the labels, but maybe no provider id, which a
kubelet does not set a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nodesmith.decisions.lifecycle.stages import obstacle_of, wait
from nodesmith.model.apimachinery.labels import INITIALIZED, REGISTERED, TERMINATION_FINALIZER
from nodesmith.model.commands import Command, Initialize
from nodesmith.model.karpenter.nodeclaimobjects import marks_of
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.kubernetes.nodes import Node
from nodesmith.model.kubernetes.pods import Manifest

_JOINED = frozenset({Phase.REGISTERED, Phase.INITIALIZED})


def is_stranger(claim: NodeClaim, nodes: Sequence[Node]) -> bool:
    """Return whether a claim that has joined has a Node without the registration label."""
    return claim.phase in _JOINED and _is_ours_to_open(nodes) and REGISTERED not in nodes[0].labels


def is_unmarked(claim: NodeClaim, nodes: Sequence[Node], shown: Manifest | None) -> bool:
    """Return whether a Node in service lacks the labels, provider id, finalizer or owner that it should have.

    A user may have removed them. Nodes from older versions lack the label of their NodeClass, or their NodeClaim as
    owner. A NodeClaim that was created again, and is `shown` with another uid, replaces the old one as owner.
    """
    if claim.phase not in _JOINED or not _is_ours_to_open(nodes):
        return False
    node = nodes[0]
    is_known = bool(node.provider_id) and marks_of(claim).items() <= node.labels.items()
    return not (TERMINATION_FINALIZER in node.finalizers and is_known and _is_owned(claim, node, shown))


def _is_owned(claim: NodeClaim, node: Node, shown: Manifest | None) -> bool:
    metadata = (shown or {}).get("metadata") or {}
    uid = metadata.get("uid")
    return not uid or bool(metadata.get("deletionTimestamp")) or node.owners.get(claim.name) == uid


def initialize_again(claim: NodeClaim, node: Node) -> Command | None:
    """Return the step that marks the Node of an initialized claim as ready for pods again, None if it is marked.

    If the Node is not ready for pods, the step records the reason.
    """
    if INITIALIZED in node.labels or node.deleting:
        return None
    obstacle = obstacle_of(claim, node)
    if obstacle is not None:
        return wait(claim, *obstacle)
    return Initialize(replace(claim, node_name=node.name, reason="", message=""))


def _is_ours_to_open(nodes: Sequence[Node]) -> bool:
    return len(nodes) == 1 and not nodes[0].deleting
