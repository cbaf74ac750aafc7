"""Which Node is a claim's: the one with its provider id, and where several have that, the one that has registered.

Whoever may make Nodes can write any provider id into one. The name of a kubelet's own Node is bound to its instance, so
a Node with another name than EC2 gave the instance is nobody's.

A Node that was restored (from a backup, by `kubectl replace --force`) may have come without its provider id, which
nobody else puts back. It is known by its name, and by the label that it has registered: one that joins has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from nodesmith.model.apimachinery.labels import REGISTERED
from nodesmith.model.kubernetes.nodes import Node

if TYPE_CHECKING:  # whoever reads no more than the snapshot need not wait for it
    from nodesmith.model.karpenter.nodeclaims import NodeClaim


class ClaimedNodes:
    """Finds the Nodes of claims. A second Node with a provider id is nobody's: it stands for no machine of its own."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes

    def of(self, claim: NodeClaim) -> Node | None:
        """Return the claim's Node, None where it has none."""
        found = self.all_of(claim)
        if len(found) < 2:
            return found[0] if found else None
        # An object does not always say which Node registered; the Node itself does.
        return min(found, key=lambda n: (n.name != claim.node_name, n.labels.get(REGISTERED) != "true"))

    def all_of(self, claim: NodeClaim) -> Sequence[Node]:
        """Return all Nodes with the claim's provider id; where none has it, the one that came back without it.

        Those that cannot be its instance's by their name are left out.
        """
        shown = self._by_provider.get(claim.provider_id, ()) or self._restored.get(claim.node_name, ())
        if not claim.private_dns_name:
            return shown
        return [node for node in shown if claim.may_be_named(node.name)]

    def impostors_of(self, claim: NodeClaim) -> Sequence[Node]:
        """Return the Nodes with the claim's provider id whose name is another than EC2 gave its instance."""
        return [n for n in self._by_provider.get(claim.provider_id, ()) if not claim.may_be_named(n.name)]

    @cached_property
    def _by_provider(self) -> dict[str, list[Node]]:
        """Sorted with the first question: whoever changes a snapshot a little at a time asks few of them any."""
        found: dict[str, list[Node]] = {}
        for node in self._nodes:
            if node.provider_id:
                found.setdefault(node.provider_id, []).append(node)
        return found

    @cached_property
    def _restored(self) -> dict[str, list[Node]]:
        return {node.name: [node] for node in self._nodes if node.is_restored}
