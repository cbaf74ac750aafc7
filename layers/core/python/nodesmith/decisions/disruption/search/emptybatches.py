"""Batches of empty nodes: one move for many, because moves are validated separately and these disrupt no pods."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

from nodesmith.decisions.disruption.proposals import Proposal
from nodesmith.model.ledger.moves import Reason

LARGEST_BATCH = 50
"""nodes: terminating a NodeClaim takes a handful of calls, and a run less than a minute"""


def in_batches(proposals: Sequence[Proposal]) -> list[Proposal]:
    """Return the same proposals in order, with those of empty nodes joined into batches."""
    empty = [found for found in proposals if found.reason is Reason.EMPTY]
    others = [found for found in proposals if found.reason is not Reason.EMPTY]
    starts = range(0, len(empty), LARGEST_BATCH)
    return [*(_batch(empty[start : start + LARGEST_BATCH]) for start in starts), *others]


def _batch(empty: Sequence[Proposal]) -> Proposal:
    if len(empty) == 1:
        return empty[0]
    saving = fsum(found.saving_hourly_usd for found in empty)
    sources = tuple(name for found in empty for name in found.sources)
    return Proposal(
        Reason.EMPTY,
        sources,
        saving_hourly_usd=saving,
        harm=fsum(found.harm for found in empty),
        worth_usd=fsum(found.worth_usd for found in empty),
        why=f"removing {len(sources)} nodes without pods saves {saving:.4f} USD an hour",
    )
