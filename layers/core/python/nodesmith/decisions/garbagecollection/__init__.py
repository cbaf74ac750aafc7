"""Garbage collection in both directions: what exists in AWS but not in the ledger, and what is recorded but gone.

It is safe because of the order of the reads: the snapshot is older than AWS's lists, and the ledger is read after them.
A claim is committed before EC2 is asked for its instance, so a listed instance has a claim in the ledger unless that
claim was forgotten. No instance is older than its claim; the minimum age of a minute is a margin.
"""

from nodesmith.decisions.garbagecollection.awsresources import Facts, still_detached
from nodesmith.decisions.garbagecollection.decide import MOST, garbage, suspects

__all__ = ["MOST", "Facts", "garbage", "still_detached", "suspects"]
