"""Claims of which something is known anew: written into the ledger, and shown on their objects; no step is taken."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from nodesmith.effects import show
from nodesmith.errors import Conflict, Failures
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.ports import Cluster, Store


def rewrite(claims: Iterable[NodeClaim], store: Store, cluster: Cluster, failures: Failures) -> int:
    """Write claims as they are; count them. One that has moved on meanwhile is left: the next run finds it again."""
    count = 0
    for claim in claims:
        with failures.of(f"NodeClaim {claim.name}"), suppress(Conflict):
            show(store.save(claim), cluster)
            count += 1
    return count
