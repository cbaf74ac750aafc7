"""Hashes in annotations: those of the content of NodePools and EC2NodeClasses, and those that claims were bought with.

Drift compares only hashes of one version. When the hashing rules change, claims get the hashes that their objects have
under the new rules, since nothing about their nodes has changed. A claim that had drifted before keeps its old hashes,
and therefore its drift, because it is unknown whether it would still be drifted (Karpenter's rule).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from nodesmith.model.hashes import (
    NODECLASS_HASH,
    NODECLASS_HASH_VERSION,
    NODEPOOL_HASH,
    NODEPOOL_HASH_VERSION,
    stated_hash,
)
from nodesmith.model.karpenter.nodeclaims import HOLDING, NodeClaim
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass

MOST_AT_ONCE = 200
"""The most claims that get new hashes in one run: each takes a write, and none is urgent."""


class Statement(NamedTuple):
    """Annotations that an object lacks."""

    kind: str
    name: str
    annotations: Mapping[str, str]


def unstated(
    manifest: Mapping[str, Any], parsed: NodePool | EC2NodeClass | None, ca_bundle: str
) -> Statement | None:
    """Return the hash annotations that an object lacks, None if it has them or is invalid.

    `ca_bundle` is the cluster's, in base64.
    """
    match parsed:
        case NodePool():
            kind, wanted = "NodePool", stated_hash(NODEPOOL_HASH, parsed.hash, NODEPOOL_HASH_VERSION)
        case EC2NodeClass():
            in_cluster = parsed.hash_in(ca_bundle)
            kind, wanted = "EC2NodeClass", stated_hash(NODECLASS_HASH, in_cluster, NODECLASS_HASH_VERSION)
        case _:
            return None
    says = manifest["metadata"].get("annotations") or {}
    if all(says.get(name) == value for name, value in wanted.items()):
        return None
    return Statement(kind, parsed.name, wanted)


def rehashed(
    claims: Iterable[NodeClaim],
    pools: Mapping[str, NodePool],
    nodeclasses: Mapping[str, EC2NodeClass],
    ca_bundle: str,
) -> list[NodeClaim]:
    """Return the claims whose hashes have another version, with hashes of the current one, at most `MOST_AT_ONCE`.

    A hash whose NodePool or EC2NodeClass is missing or invalid stays as it is until that changes.
    """
    living = (claim for claim in claims if claim.phase in HOLDING)
    renewed = (
        (claim, _renewed(claim, pools.get(claim.nodepool), nodeclasses.get(claim.nodeclass.name), ca_bundle))
        for claim in living
    )
    return list(islice((after for before, after in renewed if after != before), MOST_AT_ONCE))


def _renewed(
    claim: NodeClaim, pool: NodePool | None, nodeclass: EC2NodeClass | None, ca_bundle: str
) -> NodeClaim:
    """Return a claim with hashes of the current version. A drifted claim keeps its old hashes, which then differ."""
    if pool and claim.nodepool_hash_version != NODEPOOL_HASH_VERSION:
        stated = claim.nodepool_hash if claim.drift else pool.hash
        claim = replace(claim, nodepool_hash=stated, nodepool_hash_version=NODEPOOL_HASH_VERSION)
    if nodeclass and claim.nodeclass_hash_version != NODECLASS_HASH_VERSION:
        stated = claim.nodeclass_hash if claim.drift else nodeclass.hash_in(ca_bundle)
        claim = replace(claim, nodeclass_hash=stated, nodeclass_hash_version=NODECLASS_HASH_VERSION)
    return claim
