"""When time alone gives lifecycle something to do."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from nodesmith.decisions import consolidatable, expiration
from nodesmith.decisions.due import first_after
from nodesmith.decisions.lifecycle.steps import is_held
from nodesmith.decisions.provisioning.nodeclaims import unclaimed
from nodesmith.decisions.provisioning.outcomes import tags_due
from nodesmith.decisions.termination.evictions import protected_until
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot


def next_change(
    ledger: Ledger, snapshot: Snapshot, pools: Mapping[str, NodePool], now: datetime
) -> datetime | None:
    """Return the first such moment; None for never, `now` while a claim depends on EC2 or on time alone.

    Such moments are those at which nodes may expire or become consolidatable, and at which the protection of pods ends.
    `pools` are the valid NodePools by name.
    """
    if unclaimed(snapshot, ledger.claims) or any(_is_under_way(claim, snapshot) for claim in ledger.claims):
        return now
    ours = {claim.node_name for claim in ledger.claims if claim.node_name}
    moments = [
        expiration.next_change(ledger, snapshot, pools, now),
        consolidatable.next_change(ledger.claims, snapshot, pools, now),
        *(protected_until(pod) for pod in snapshot.pods if pod.node in ours),
    ]
    return first_after(now, moments)


def _is_under_way(claim: NodeClaim, snapshot: Snapshot) -> bool:
    if claim.phase in {Phase.LAUNCHED, Phase.GIVEN_UP} or is_held(claim):
        return True
    if claim.instance_id and tags_due(claim):
        return True
    return claim.phase in {Phase.REGISTERED, Phase.INITIALIZED} and not snapshot.nodes_of(claim)
