"""Match Nodes to claims: by provider id and, if several Nodes have that id, by registration.

Anyone who may create Nodes can write any provider id into one. A kubelet, however, can only create a Node whose name is
bound to its instance. So a Node with a name other than EC2 gave the instance belongs to no claim.

A restored Node (from a backup, by `kubectl replace --force`) may lack its provider id, which no other component puts
back. It is matched by its name and by the registered label, which a Node that is just joining does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from nodesmith.model.apimachinery.labels import REGISTERED
from nodesmith.model.kubernetes.nodes import Node

if TYPE_CHECKING:  # code that reads only the snapshot does not need it
    from nodesmith.model.karpenter.nodeclaims import NodeClaim


class ClaimedNodes:
    """Finds the Nodes of claims. A second Node with a provider id belongs to no claim: it has no machine of its own."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes

    def of(self, claim: NodeClaim) -> Node | None:
        """Return the claim's Node, or None if it has none."""
        found = self.all_of(claim)
        if len(found) < 2:
            return found[0] if found else None
        # The NodeClaim does not always name the Node that registered, but that Node's label shows it.
        return min(found, key=lambda n: (n.name != claim.node_name, n.labels.get(REGISTERED) != "true"))

    def all_of(self, claim: NodeClaim) -> Sequence[Node]:
        """Return all Nodes with the claim's provider id, or the restored Node that lacks it if no Node has it.

        Nodes whose name the claim's instance cannot have are left out.
        """
        shown = self._by_provider.get(claim.provider_id, ()) or self._restored.get(claim.node_name, ())
        if not claim.private_dns_name:
            return shown
        return [node for node in shown if claim.may_be_named(node.name)]

    def impostors_of(self, claim: NodeClaim) -> Sequence[Node]:
        """Return the Nodes with the claim's provider id and a name that its instance cannot have."""
        return [n for n in self._by_provider.get(claim.provider_id, ()) if not claim.may_be_named(n.name)]

    @cached_property
    def _by_provider(self) -> dict[str, list[Node]]:
        """Built on first use: code that derives many snapshots looks up claims in only a few of them."""
        found: dict[str, list[Node]] = {}
        for node in self._nodes:
            if node.provider_id:
                found.setdefault(node.provider_id, []).append(node)
        return found

    @cached_property
    def _restored(self) -> dict[str, list[Node]]:
        return {node.name: [node] for node in self._nodes if node.is_restored}
