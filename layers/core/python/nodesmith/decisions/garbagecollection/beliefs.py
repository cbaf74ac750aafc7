"""Claims, Nodes and NodeClaim objects that stand for an instance which is gone, or is not what they say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from nodesmith.decisions.garbagecollection.facts import SERVING, YOUNG, Facts
from nodesmith.decisions.termination.waiting import is_let_go
from nodesmith.model.apimachinery.labels import NODECLASS
from nodesmith.model.ec2.launches import Instance
from nodesmith.model.garbage import Correct, End, Lift, Release
from nodesmith.model.karpenter.ownership import is_karpenters, is_marked, provider_id
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot


def suspects(snapshot: Snapshot, instances: Iterable[Instance], ledger: Ledger) -> list[str]:
    """Name the instances that claims, Nodes or NodeClaim objects believe in, and that are none of our living ones.

    EC2 is asked for each by its id before anything is let go: whoever lives with other tags is somebody else's.
    """
    believed = {claim.instance_id for claim in ledger.claims if claim.phase in SERVING}
    believed |= {instance_id(node.provider_id) for node in snapshot.nodes if NODECLASS in node.labels}
    believed |= {instance_id(provider_id(manifest)) for manifest in snapshot.nodeclaims}
    gone = {claim.instance_id for claim in ledger.claims if claim.instance_gone_at is not None}
    return sorted(believed - {instance.id for instance in instances} - gone - {""})


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


def regrouped_claims(facts: Facts) -> Iterator[Correct]:
    """Correct the claims whose instance has other security groups by now than it was launched with.

    Somebody has changed them in EC2. What the EC2NodeClass selects is compared with these: that is drift, or its end.
    """
    groups = {instance.id: instance.security_groups for instance in facts.instances}
    for claim in sorted(facts.ledger.claims, key=lambda c: c.name):
        now = groups.get(claim.instance_id, ())
        if (
            claim.phase in SERVING
            and now
            and claim.security_groups
            and set(now) != set(claim.security_groups)
        ):
            yield Correct(replace(claim, security_groups=now))


def left_nodes(facts: Facts) -> Iterator[Release]:
    """Release our Nodes that have neither claim nor instance; one that is Ready has an instance, whatever EC2 says.

    A Node of Karpenter's NodeClaim is Karpenter's, and one of a foreign NodePool somebody else's.
    """
    claimed, alive, karpenters = facts.claimed, facts.alive, _of_karpenter(facts.snapshot)
    for node in sorted(facts.snapshot.nodes, key=lambda n: n.name):
        instance = instance_id(node.provider_id)
        if NODECLASS not in node.labels or node.name in claimed or instance in alive:
            continue
        if node.provider_id in karpenters or is_let_go(node):
            continue
        if (instance or node.is_restored) and not node.is_ready and facts.now - node.created_at >= YOUNG:
            yield Release(node.name, node.provider_id)


def left_nodeclaims(facts: Facts) -> Iterator[Lift]:
    """Let go of NodeClaim objects that have been in the ledger, are not any more, and whose instance and Node are gone.

    What nodesmith has not launched is Karpenter's, or somebody's wish that is still to be fulfilled or mended.
    """
    known, alive = {claim.name for claim in facts.ledger.claims}, facts.alive
    shown = {node.provider_id for node in facts.snapshot.nodes if NODECLASS in node.labels} - {""}
    for manifest in facts.snapshot.nodeclaims:
        name, provider = str((manifest.get("metadata") or {}).get("name")), provider_id(manifest)
        if not is_marked(manifest) or name in known:
            continue
        if instance_id(provider) not in alive and provider not in shown:
            yield Lift(name)


def _of_karpenter(snapshot: Snapshot) -> frozenset[str]:
    """Return the provider ids of the NodeClaims that Karpenter has made or launched."""
    return frozenset(provider_id(each) for each in snapshot.nodeclaims if is_karpenters(each)) - {""}


def instance_id(provider_id: str) -> str:
    """Read the instance out of `aws:///<zone>/<instance id>`; empty for whatever is none of EC2's."""
    _, _, last = provider_id.rpartition("/")
    return last if provider_id.startswith("aws://") and last.startswith("i-") else ""
