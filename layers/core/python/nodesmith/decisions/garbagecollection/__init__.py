"""Garbage collection, both ways: what AWS holds and the ledger does not know, and what we believe in and is gone.

The order of the looks is what makes it safe: the snapshot is older than AWS's lists, and the ledger is read after them.
A claim is committed before EC2 is asked for its instance, so an instance that is listed has a claim in the ledger,
unless that claim was forgotten. No instance is older than its claim; the minute that it is given is a margin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodesmith.decisions.garbagecollection.beliefs import (
    ended_claims,
    left_nodeclaims,
    left_nodes,
    regrouped_claims,
    suspects,
)
from nodesmith.decisions.garbagecollection.facts import Facts
from nodesmith.decisions.garbagecollection.instances import UNCLAIMED, in_service, superfluous, taken_back
from nodesmith.decisions.garbagecollection.unneeded import still_detached, unneeded
from nodesmith.model.ec2.launches import Instance
from nodesmith.model.garbage import Garbage, Remove, TakeBack, Terminate
from nodesmith.model.karpenter.nodeclaims import NodeClaim

__all__ = ["MOST", "Facts", "garbage", "still_detached", "suspects"]

MOST = 90
"""Deletions in one run, and claims in one commit. What is left over is found again by the next run."""


def garbage(facts: Facts) -> tuple[list[Garbage], int]:
    """Return what is to be done, dearest first, and how many deletions are left for the next run."""
    instances = superfluous(facts)
    others: list[Garbage] = [*ended_claims(facts), *left_nodes(facts), *left_nodeclaims(facts)]
    others += [Remove(owned) for owned in unneeded(facts)]
    others += regrouped_claims(facts)
    taken = instances[:MOST]
    left = len(instances) + len(others) - MOST
    return [*_instances(facts, taken), *others[: MOST - len(taken)]], max(0, left)


def _instances(facts: Facts, found: Sequence[tuple[Instance, str]]) -> Iterator[Garbage]:
    """End each superfluous instance: at once where no pod can be on it, like every other node where there may be.

    Only the Node of the instance that a claim names is ever registered, so a second one has no pods.
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
