"""Claims of which something is known anew: written into the ledger, and shown on their objects; no step is taken."""

from __future__ import annotations

from collections.abc import Iterable

from nodesmith.errors import Conflict, Rejected, Transient
from nodesmith.model.nodeclaimobjects import manifest
from nodesmith.model.nodeclaims import NodeClaim
from nodesmith.ports import Cluster, Store


def rewrite(claims: Iterable[NodeClaim], store: Store, cluster: Cluster, failures: list[str]) -> int:
    """Write claims as they are; count them. One that has moved on meanwhile is left: the next run finds it again."""
    count = 0
    for claim in claims:
        try:
            cluster.apply_nodeclaim(manifest(store.save(claim)))
            count += 1
        except Conflict:
            continue
        except (Transient, Rejected) as error:
            failures.append(f"NodeClaim {claim.name}: {error}")
    return count
