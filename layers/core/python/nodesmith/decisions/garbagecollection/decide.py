"""What garbage collection removes in one run, and when time alone turns something into garbage.

Among it are claims, Nodes and NodeClaim objects whose instance is gone or differs from what they show.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from nodesmith.decisions.garbagecollection.awsresources import (
    UNCLAIMED,
    UNUSED,
    YOUNG,
    Facts,
    in_service,
    superfluous,
    taken_back,
    unneeded,
)
from nodesmith.decisions.termination.waiting import is_let_go
from nodesmith.model.apimachinery.labels import NODECLASS
from nodesmith.model.apimachinery.times import first_after
from nodesmith.model.ec2.launches import Instance
from nodesmith.model.garbage import Correct, End, Garbage, Kind, Lift, Release, Remove, TakeBack, Terminate
from nodesmith.model.karpenter.nodeclaims import HOLDING, NodeClaim
from nodesmith.model.karpenter.ownership import is_karpenters, is_marked, provider_id
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot


def suspects(snapshot: Snapshot, instances: Iterable[Instance], ledger: Ledger) -> list[str]:
    """Return the ids of instances that claims, Nodes or NodeClaim objects name but that are not among `instances`.

    EC2 is asked for each by id before anything is removed: an instance that lives without our tags belongs to others.
    """
    believed = {claim.instance_id for claim in ledger.claims if claim.phase in HOLDING}
    believed |= {instance_id(node.provider_id) for node in snapshot.nodes if NODECLASS in node.labels}
    believed |= {instance_id(provider_id(manifest)) for manifest in snapshot.nodeclaims}
    gone = {claim.instance_id for claim in ledger.claims if claim.instance_gone_at is not None}
    return sorted(believed - {instance.id for instance in instances} - gone - {""})


def ended_claims(facts: Facts) -> Iterator[End]:
    """Yield ends for claims whose instance is gone but whose Node exists. Lifecycle handles claims without a Node."""
    alive = facts.alive
    for claim in sorted(facts.ledger.claims, key=lambda c: c.name):
        shown = facts.snapshot.nodes_of(claim)
        if claim.phase not in HOLDING or claim.instance_id in alive or not shown:
            continue
        if facts.now - claim.phase_since >= YOUNG and not any(node.is_ready for node in shown):
            why = f"instance {claim.instance_id} is gone"
            yield End(claim.terminating("InstanceTerminated", why, facts.now))


def regrouped_claims(facts: Facts) -> Iterator[Correct]:
    """Yield corrections for the claims whose instance no longer has the security groups that it was launched with.

    A user has changed them in EC2. They are compared with what the EC2NodeClass selects, so drift may begin or end.
    """
    groups = {instance.id: instance.security_groups for instance in facts.instances}
    for claim in sorted(facts.ledger.claims, key=lambda c: c.name):
        now = groups.get(claim.instance_id, ())
        if (
            claim.phase in HOLDING
            and now
            and claim.security_groups
            and set(now) != set(claim.security_groups)
        ):
            yield Correct(replace(claim, security_groups=now))


def left_nodes(facts: Facts) -> Iterator[Release]:
    """Yield releases for Nodes of ours without a claim and an instance. A Ready Node has one, whatever EC2 answers.

    A Node of a Karpenter NodeClaim belongs to Karpenter, and one of a foreign NodePool to its own controller.
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
    """Yield NodeClaim objects to release: they are no longer in the ledger, and their instance and Node are gone.

    NodeClaims that nodesmith has not launched belong to Karpenter, or to users who still wait for a launch.
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
    """Return the provider ids of the NodeClaims that Karpenter has created or launched."""
    return frozenset(provider_id(each) for each in snapshot.nodeclaims if is_karpenters(each)) - {""}


def instance_id(provider_id: str) -> str:
    """Return the instance id in `aws:///<zone>/<instance id>`, empty if `provider_id` is not EC2's."""
    _, _, last = provider_id.rpartition("/")
    return last if provider_id.startswith("aws://") and last.startswith("i-") else ""


MOST = 90
"""The most deletions in one run, and claims in one commit. The next run finds the rest again."""


def garbage(facts: Facts) -> tuple[list[Garbage], int]:
    """Return what to remove, the most expensive first, and how many deletions are left for the next run."""
    instances = superfluous(facts)
    others: list[Garbage] = [*ended_claims(facts), *left_nodes(facts), *left_nodeclaims(facts)]
    others += [Remove(owned) for owned in unneeded(facts)]
    others += regrouped_claims(facts)
    taken = instances[:MOST]
    left = len(instances) + len(others) - MOST
    return [*_instances(facts, taken), *others[: MOST - len(taken)]], max(0, left)


def _instances(facts: Facts, found: Sequence[tuple[Instance, str]]) -> Iterator[Garbage]:
    """Terminate superfluous instances at once if they cannot have pods; drain the others like any other node.

    Only the Node of the instance that a claim names is ever registered, so a second instance has no pods.
    """
    served: dict[str, NodeClaim] = {}
    idle: dict[str, list[str]] = {}
    for instance, why in found:
        node = in_service(facts, instance) if why == UNCLAIMED else None
        if node is None:
            idle.setdefault(why, []).append(instance.id)
        else:
            served.setdefault(instance.claim, taken_back(instance, node, facts.now))
    yield from (Terminate(tuple(ids), why) for why, ids in sorted(idle.items()))
    if served:
        yield TakeBack(facts.ledger.version, tuple(served.values()))


def next_change(facts: Facts) -> datetime | None:
    """Return when time alone first turns something into garbage, once the garbage found now is removed; None for never.

    It is now while something changes that only EC2, or the record of this process, shows: a launch, a termination, an
    instance of which only the Node or the object is left, a detached volume or network interface.
    """
    if facts.pending or _is_ending(facts) or _is_loose(facts):
        return facts.now
    return first_after(facts.now, _moments(facts))


def _is_ending(facts: Facts) -> bool:
    """Return whether a node is ending or not Ready, or a NodeClaim object is left whose claim is forgotten."""
    claims, known = facts.ledger.claims, {claim.name for claim in facts.ledger.claims}
    nodes = (node for claim in claims if claim.phase in HOLDING for node in facts.snapshot.nodes_of(claim))
    left = (m for m in facts.snapshot.nodeclaims if is_marked(m) and m["metadata"].get("name") not in known)
    return (
        any(claim.is_ending for claim in claims)
        or any(not node.is_ready for node in nodes)
        or any(True for _ in left)
    )


def _is_loose(facts: Facts) -> bool:
    """Return whether a detached volume or network interface belongs to no existing claim or instance."""
    known = {claim.name for claim in facts.ledger.claims} | {one.claim for one in facts.instances}
    kinds = (Kind.VOLUME, Kind.NETWORK_INTERFACE)
    loose = (owned for kind in kinds for owned in facts.owned.get(kind, ()))
    return any(not (owned.claim and owned.claim in known) for owned in loose)


def _moments(facts: Facts) -> Iterator[datetime]:
    """Yield the moments at which existing things pass their minimum age."""
    for instance in facts.instances:
        yield instance.launched_at + YOUNG
        yield instance.launched_at + UNUSED  # its launch template has not been used since
    for node in facts.snapshot.nodes:
        if NODECLASS in node.labels:
            yield node.created_at + YOUNG
    for owned in (each for kind in sorted(facts.owned) for each in facts.owned[kind]):
        if owned.created_at is not None:
            yield owned.created_at + UNUSED
