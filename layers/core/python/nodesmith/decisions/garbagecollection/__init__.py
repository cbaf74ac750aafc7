"""Garbage collection in both directions: what exists in AWS but not in the ledger, and what is recorded but gone.

It is safe because of the order of the reads: the snapshot is older than AWS's lists, and the ledger is read after them.
A claim is committed before EC2 is asked for its instance, so a listed instance has a claim in the ledger unless that
claim was forgotten. No instance is older than its claim; the minimum age of a minute is a margin.
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
