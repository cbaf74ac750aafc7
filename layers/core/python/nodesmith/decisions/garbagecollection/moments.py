"""When time alone turns something into garbage."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from nodesmith.decisions.due import first_after
from nodesmith.decisions.garbagecollection.facts import SERVING, YOUNG, Facts
from nodesmith.decisions.garbagecollection.unneeded import UNUSED
from nodesmith.model.apimachinery.labels import NODECLASS
from nodesmith.model.garbage import Kind
from nodesmith.model.karpenter.ownership import is_marked


def next_change(facts: Facts) -> datetime | None:
    """Return the first such moment, once the garbage found now is removed; None for never.

    It is now while something changes that only EC2, or the record of this process, shows: a launch, a termination, an
    instance of which only the Node or the object is left, a detached volume or network interface.
    """
    if facts.pending or _is_ending(facts) or _is_loose(facts):
        return facts.now
    return first_after(facts.now, _moments(facts))


def _is_ending(facts: Facts) -> bool:
    """Return whether a node is ending or not Ready, or a NodeClaim object is left whose claim is forgotten."""
    claims, known = facts.ledger.claims, {claim.name for claim in facts.ledger.claims}
    nodes = (node for claim in claims if claim.phase in SERVING for node in facts.snapshot.nodes_of(claim))
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
