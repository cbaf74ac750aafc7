"""What `nodesmith explain nodepool` tells: instance types, and what removes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nodesmith.decisions.provisioning.considered import Considered


def pool_lines(pool: Considered) -> Iterator[str]:
    """Tell of one NodePool, line by line."""
    yield f"NodePool {pool.nodepool}: {pool.left:,} of {pool.all:,} instance types may be bought"
    if pool.obstacle:
        yield f"  but now   {pool.obstacle}"
    if not pool.removals:
        return
    yield "  removed  only by it  by"
    for removal in pool.removals:
        yield f"  {removal.types:>7,}  {removal.alone:>10,}  {removal.condition}"


def pool_item(pool: Considered) -> dict[str, Any]:
    """Tell of one NodePool, as JSON data."""
    return {
        "nodePool": pool.nodepool,
        "types": pool.all,
        "left": pool.left,
        "removals": [
            {"by": each["condition"], "types": each["types"], "onlyByIt": each["alone"]}
            for each in asdict(pool)["removals"]
        ],
        "obstacle": pool.obstacle or None,
    }
