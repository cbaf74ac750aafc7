"""Which Node is a claim's: the one with its provider id, and where several have that, the one that has registered."""

from __future__ import annotations

from collections.abc import Iterable

from nodesmith.model.nodeclaims import NodeClaim
from nodesmith.model.nodes import Node


class ClaimedNodes:
    """Finds the Nodes of claims. A second Node with a provider id is nobody's: it stands for no machine of its own."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._by_provider: dict[str, list[Node]] = {}
        for node in nodes:
            if node.provider_id:
                self._by_provider.setdefault(node.provider_id, []).append(node)

    def of(self, claim: NodeClaim) -> Node | None:
        """Give the claim's Node, None where it has none."""
        found = self._by_provider.get(claim.provider_id, [])
        return next((node for node in found if node.name == claim.node_name), found[0] if found else None)
