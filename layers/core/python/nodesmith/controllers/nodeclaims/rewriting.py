"""Writing claims with new information to the ledger and onto their objects, without moving them to another phase."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from nodesmith.effects import show
from nodesmith.errors import Conflict, Failures
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.ports import Cluster, Store


def rewrite(claims: Iterable[NodeClaim], store: Store, cluster: Cluster, failures: Failures) -> int:
    """Write claims as they are; return their number. A claim that has moved on meanwhile is left to the next run."""
    count = 0
    for claim in claims:
        with failures.of(f"NodeClaim {claim.name}"), suppress(Conflict):
            show(store.save(claim), cluster)
            count += 1
    return count
