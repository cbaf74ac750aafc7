"""What garbage collection removes in one run, and when time alone turns something into garbage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from nodesmith.decisions.due import first_after
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
from nodesmith.decisions.garbagecollection.beliefs import (
    ended_claims,
    left_nodeclaims,
    left_nodes,
    regrouped_claims,
)
from nodesmith.model.apimachinery.labels import NODECLASS
from nodesmith.model.ec2.launches import Instance
from nodesmith.model.garbage import Garbage, Kind, Remove, TakeBack, Terminate
from nodesmith.model.karpenter.nodeclaims import HOLDING, NodeClaim
from nodesmith.model.karpenter.ownership import is_marked

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
