"""Drift, written down: in the ledger and on the NodeClaim, with the time since when a node is not as it should be."""

from __future__ import annotations

from nodesmith.decisions.disruption.drift import Today, noted
from nodesmith.decisions.provisioning import Inputs
from nodesmith.errors import Conflict, Rejected, Transient
from nodesmith.model.nodeclaimobjects import manifest
from nodesmith.ports import Cluster, Store

MOST_AT_ONCE = 200
"""Claims of which one run writes it; a new image may concern thousands, and budgets let few of them go at a time."""


def note_drift(inputs: Inputs, store: Store, cluster: Cluster, failures: list[str]) -> int:
    """Write down which claims drift now, or do no longer; count them. The oldest come first, as they do to go."""
    today = Today.of(inputs.snapshot, inputs.ledger, inputs.catalog, inputs.now)
    changed = sorted(noted(inputs.ledger.claims, today), key=lambda claim: (claim.created_at, claim.name))
    count = 0
    for claim in changed[:MOST_AT_ONCE]:
        try:
            cluster.apply_nodeclaim(manifest(store.save(claim)))
            count += 1
        except Conflict:
            continue  # it has moved on meanwhile; the next run finds it again
        except (Transient, Rejected) as error:
            failures.append(f"NodeClaim {claim.name}: {error}")
    return count
