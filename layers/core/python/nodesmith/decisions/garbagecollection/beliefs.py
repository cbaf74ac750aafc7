"""Claims, Nodes and NodeClaim objects that stand for an instance which is gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nodesmith.decisions.garbagecollection.facts import SERVING, YOUNG, Facts
from nodesmith.model.garbage import End, Lift, Release
from nodesmith.model.labels import NODEPOOL
from nodesmith.model.launches import Instance
from nodesmith.model.ledger import Ledger
from nodesmith.model.nodeclaimobjects import DECISION
from nodesmith.model.snapshot import Snapshot


def suspects(snapshot: Snapshot, instances: Iterable[Instance], ledger: Ledger) -> list[str]:
    """Name the instances that claims, Nodes or NodeClaim objects believe in, and that are none of our living ones.

    EC2 is asked for each by its id before anything is let go: whoever lives with other tags is somebody else's.
    """
    believed = {claim.instance_id for claim in ledger.claims if claim.phase in SERVING}
    believed |= {instance_id(node.provider_id) for node in snapshot.nodes if NODEPOOL in node.labels}
    believed |= {instance_id(_provider_id(manifest)) for manifest in snapshot.nodeclaims}
    return sorted(believed - {instance.id for instance in instances} - {""})


def ended_claims(facts: Facts) -> Iterator[End]:
    """End the claims whose instance is gone though a Node still stands for it; lifecycle sees to those without."""
    alive = facts.alive
    for claim in sorted(facts.ledger.claims, key=lambda c: c.name):
        shown = facts.snapshot.nodes_of(claim)
        if claim.phase not in SERVING or claim.instance_id in alive or not shown:
            continue
        if facts.now - claim.phase_since >= YOUNG and not any(node.is_ready for node in shown):
            why = f"instance {claim.instance_id} has gone"
            yield End(claim.terminating("InstanceTerminated", why, facts.now))


def left_nodes(facts: Facts) -> Iterator[Release]:
    """Release our Nodes that have neither claim nor instance; one that is Ready has an instance, whatever EC2 says."""
    claimed, alive = facts.claimed, facts.alive
    for node in sorted(facts.snapshot.nodes, key=lambda n: n.name):
        instance = instance_id(node.provider_id)
        if NODEPOOL not in node.labels or node.name in claimed or instance in alive:
            continue
        if (instance or node.is_restored) and not node.is_ready and facts.now - node.created_at >= YOUNG:
            yield Release(node.name, node.provider_id)


def left_nodeclaims(facts: Facts) -> Iterator[Lift]:
    """Let go of NodeClaim objects that have been in the ledger, are not any more, and whose instance is gone.

    What we have not made and has not been launched either is somebody's wish, still to be fulfilled or mended.
    """
    known, alive = {claim.name for claim in facts.ledger.claims}, facts.alive
    for manifest in facts.snapshot.nodeclaims:
        metadata = manifest.get("metadata") or {}
        name, made = str(metadata.get("name")), DECISION in (metadata.get("annotations") or {})
        conditions = (manifest.get("status") or {}).get("conditions") or ()
        launched = next((c.get("status") for c in conditions if c.get("type") == "Launched"), "Unknown")
        was_ours = made or launched != "Unknown"
        if was_ours and name not in known and instance_id(_provider_id(manifest)) not in alive:
            yield Lift(name)


def instance_id(provider_id: str) -> str:
    """Read the instance out of `aws:///<zone>/<instance id>`; empty for whatever is none of EC2's."""
    _, _, last = provider_id.rpartition("/")
    return last if provider_id.startswith("aws://") and last.startswith("i-") else ""


def _provider_id(nodeclaim: Mapping[str, Any]) -> str:
    return str((nodeclaim.get("status") or {}).get("providerID") or "")
