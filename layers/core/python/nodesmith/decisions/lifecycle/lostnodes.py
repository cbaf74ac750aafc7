"""Claims in service whose Node has gone while their instance runs on: nothing serves pods there, and it is paid for.

A kubelet creates its Node only when it starts. The Node is missing if somebody removed its finalizers and deleted it,
if the cluster was restored from a backup, or if it was deleted and created again under its name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta

from nodesmith.model.commands import EndClaim
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot

LOST = timedelta(minutes=30)
"""How long a Node must be seen missing. Repair tolerates a silent kubelet for as long."""
_JOINED = frozenset({Phase.REGISTERED, Phase.INITIALIZED})


def without_node(snapshot: Snapshot, ledger: Ledger) -> list[NodeClaim]:
    """Return the claims that have joined and that no Node shows, by name.

    A Node under a name that the instance cannot have counts, since pods may run there. So does a restored Node, which
    has no provider id.
    """
    names = {node.name for node in snapshot.nodes if not node.provider_id}
    found = (
        claim
        for claim in ledger.claims
        if claim.phase in _JOINED
        and claim.node_name not in names
        and not snapshot.nodes_of(claim)
        and not snapshot.impostors_of(claim)
    )
    return sorted(found, key=lambda claim: claim.name)


def still_lost(
    before: Mapping[str, datetime], snapshot: Snapshot, ledger: Ledger, now: datetime
) -> dict[str, datetime]:
    """Return since when each claim has been seen without a Node, by a key of its own. Kubernetes does not record it."""
    return {_key(claim): before.get(_key(claim), now) for claim in without_node(snapshot, ledger)}


def lost_long(ledger: Ledger, since: Mapping[str, datetime], now: datetime) -> list[NodeClaim]:
    """Return the claims that have been without a Node for long enough, by name. `since` is that of `still_lost`."""
    found = (claim for claim in ledger.claims if now - since.get(_key(claim), now) >= LOST)
    return sorted(found, key=lambda claim: claim.name)


def lost_claims(
    ledger: Ledger, lost: Collection[str], alive: Collection[str], now: datetime
) -> Iterator[EndClaim]:
    """Yield ends for the claims named in `lost` whose instances run. Lifecycle ends those whose instances are gone."""
    for claim in sorted(ledger.claims, key=lambda c: c.name):
        if claim.name in lost and claim.instance_id in alive:
            why = f"Node {claim.node_name} is gone from the cluster, and instance {claim.instance_id} runs"
            yield EndClaim(claim.terminating("NodeNotFound", why, now))


def _key(claim: NodeClaim) -> str:
    return f"NodeClaim/{claim.name}"
