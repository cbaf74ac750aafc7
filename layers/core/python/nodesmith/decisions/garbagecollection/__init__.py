"""Garbage collection, both ways: what AWS holds and the ledger does not know, and what we believe in and is gone.

The order of the looks is what makes it safe: the snapshot is older than AWS's lists, and the ledger is read after them.
A claim is committed before EC2 is asked for its instance, so an instance that is listed has a claim in the ledger,
unless that claim was forgotten. No instance is older than its claim; the minute that it is given is for lists that lag.
"""

from __future__ import annotations

from nodesmith.decisions.garbagecollection.beliefs import ended_claims, left_nodeclaims, left_nodes, suspects
from nodesmith.decisions.garbagecollection.facts import Facts
from nodesmith.decisions.garbagecollection.instances import superfluous
from nodesmith.decisions.garbagecollection.unneeded import still_detached, unneeded
from nodesmith.model.garbage import Garbage, Remove, Terminate

__all__ = ["MOST", "Facts", "garbage", "still_detached", "suspects"]

MOST = 100
"""Deletions in one run. What is left over is found again by the next."""


def garbage(facts: Facts) -> tuple[list[Garbage], int]:
    """Give what is to be done, dearest first, and how many deletions are left for the next run."""
    terminations = list(superfluous(facts))
    others: list[Garbage] = [*ended_claims(facts), *left_nodes(facts), *left_nodeclaims(facts)]
    others += [Remove(owned) for owned in unneeded(facts)]
    taken = terminations[:MOST]
    reasons = sorted({why for _, why in taken})
    ended = [Terminate(tuple(id_ for id_, why in taken if why == reason), reason) for reason in reasons]
    left = len(terminations) + len(others) - MOST
    return [*ended, *others[: MOST - len(taken)]], max(0, left)
