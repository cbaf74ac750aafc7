"""When time alone makes garbage of something."""

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
    """Return the first such moment after what was found now is gone; None for never.

    It is now while something comes or goes of which only EC2 tells, or the record of this process: a launch, an end, an
    instance of which there is only the Node or the object, a volume or interface that is attached to nothing.
    """
    if facts.pending or _is_ending(facts) or _is_loose(facts):
        return facts.now
    return first_after(facts.now, _moments(facts))


def _is_ending(facts: Facts) -> bool:
    """Return whether a node ends or has failed, or an object is left of one whose instance still lives."""
    claims, known = facts.ledger.claims, {claim.name for claim in facts.ledger.claims}
    nodes = (node for claim in claims if claim.phase in SERVING for node in facts.snapshot.nodes_of(claim))
    left = (m for m in facts.snapshot.nodeclaims if is_marked(m) and m["metadata"].get("name") not in known)
    return (
        any(claim.is_ending for claim in claims)
        or any(not node.is_ready for node in nodes)
        or any(True for _ in left)
    )


def _is_loose(facts: Facts) -> bool:
    """Return whether a volume or interface waits to be collected that belongs to no claim or instance."""
    standing = {claim.name for claim in facts.ledger.claims} | {one.claim for one in facts.instances}
    kinds = (Kind.VOLUME, Kind.NETWORK_INTERFACE)
    loose = (owned for kind in kinds for owned in facts.owned.get(kind, ()))
    return any(not (owned.claim and owned.claim in standing) for owned in loose)


def _moments(facts: Facts) -> Iterator[datetime]:
    """Yield when what is young now is so no longer."""
    for instance in facts.instances:
        yield instance.launched_at + YOUNG
        yield instance.launched_at + UNUSED  # its launch template has not been used since
    for node in facts.snapshot.nodes:
        if NODECLASS in node.labels:
            yield node.created_at + YOUNG
    for owned in (each for kind in sorted(facts.owned) for each in facts.owned[kind]):
        if owned.created_at is not None:
            yield owned.created_at + UNUSED
