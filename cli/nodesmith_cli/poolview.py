"""The output of `nodesmith explain nodepool`: how many instance types are left, and what rules out the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nodesmith.decisions.provisioning.onsale import Considered


def pool_lines(pool: Considered) -> Iterator[str]:
    """Yield the lines for one NodePool."""
    yield f"NodePool {pool.nodepool}: {pool.left:,} of {pool.all:,} instance types can be launched"
    if pool.obstacle:
        yield f"  blocked   {pool.obstacle}"
    if pool.nodeclass_fault:
        yield f"  launches  {pool.nodeclass_fault}"
    for overlay in pool.overlays:
        yield f"  overlay   {overlay}"
    for limit in pool.limits:
        yield f"  limit     {limit}"
    for cost in pool.costs:
        yield f"  costs     {cost}"
    if not pool.removals:
        return
    yield "  removed  only by it  condition"
    for removal in pool.removals:
        yield f"  {removal.types:>7,}  {removal.alone:>10,}  {removal.condition}"


def pool_item(pool: Considered) -> dict[str, Any]:
    """Return one NodePool as JSON data."""
    return {
        "nodePool": pool.nodepool,
        "types": pool.all,
        "left": pool.left,
        "removals": [
            {"by": each["condition"], "types": each["types"], "onlyByIt": each["alone"]}
            for each in asdict(pool)["removals"]
        ],
        "obstacle": pool.obstacle or None,
        "nodeClassFault": pool.nodeclass_fault or None,
        "overlays": list(pool.overlays),
        "limits": list(pool.limits),
        **({"costs": list(pool.costs)} if pool.costs else {}),
    }
