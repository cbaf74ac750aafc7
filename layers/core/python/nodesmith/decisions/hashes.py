"""Hashes that are shown: of which content a NodePool and an EC2NodeClass are, and with which a claim was bought.

Drift compares only hashes of one version. When the rules of hashing change, claims are given the hashes that their
objects have by the new rules: nothing about their nodes has changed. A claim that had drifted before keeps
its old ones, and so its drift: whether it would still be drifted nobody can tell any more (Karpenter's rule).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from nodesmith.model.nodeclaimobjects import NODECLASS_HASH, NODEPOOL_HASH
from nodesmith.model.nodeclaims import NodeClaim, Phase
from nodesmith.model.nodeclasses import EC2NodeClass
from nodesmith.model.nodepools import NodePool
from nodesmith.model.schema.hashing import HASH_VERSION

MOST_AT_ONCE = 200
"""Claims that one run gives new hashes to: each is a write, and none of them is in a hurry."""
_LIVING = frozenset({Phase.LAUNCHED, Phase.REGISTERED, Phase.INITIALIZED})


class Statement(NamedTuple):
    """Annotations that an object lacks."""

    kind: str
    name: str
    annotations: Mapping[str, str]


def unstated(manifest: Mapping[str, Any], parsed: NodePool | EC2NodeClass | None) -> Statement | None:
    """Give the hash that an object does not say of itself yet; None where it does, or cannot be read."""
    if parsed is None:
        return None
    kind, key = (
        ("NodePool", NODEPOOL_HASH) if isinstance(parsed, NodePool) else ("EC2NodeClass", NODECLASS_HASH)
    )
    wanted = {key: parsed.hash, f"{key}-version": HASH_VERSION}
    says = manifest["metadata"].get("annotations") or {}
    if all(says.get(name) == value for name, value in wanted.items()):
        return None
    return Statement(kind, parsed.name, wanted)


def rehashed(
    claims: Iterable[NodeClaim], pools: Mapping[str, NodePool], nodeclasses: Mapping[str, EC2NodeClass]
) -> list[NodeClaim]:
    """Give claims whose hashes are of another version with those of this one, `MOST_AT_ONCE` of them.

    One whose NodePool or EC2NodeClass cannot be read is left until it can.
    """
    found: list[NodeClaim] = []
    for claim in claims:
        pool, nodeclass = pools.get(claim.nodepool), nodeclasses.get(claim.nodeclass.name)
        if claim.has_comparable_hashes or claim.phase not in _LIVING or pool is None or nodeclass is None:
            continue
        renewed = replace(claim, hash_version=HASH_VERSION)
        if not claim.drift:
            renewed = replace(renewed, nodepool_hash=pool.hash, nodeclass_hash=nodeclass.hash)
        found.append(renewed)
        if len(found) == MOST_AT_ONCE:
            break
    return found
