"""Hashes that are shown: of which content a NodePool and an EC2NodeClass are, and with which a claim was bought.

Drift compares only hashes of one version. When the rules of hashing change, claims are given the hashes that their
objects have by the new rules: nothing about their nodes has changed. A claim that had drifted before keeps
its old ones, and so its drift: whether it would still be drifted nobody can tell any more (Karpenter's rule).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from nodesmith.model.hashes.statichashes import (
    NODECLASS_HASH,
    NODECLASS_HASH_VERSION,
    NODEPOOL_HASH,
    NODEPOOL_HASH_VERSION,
    stated_hash,
)
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass

MOST_AT_ONCE = 200
"""Claims that one run gives new hashes to: each is a write, and none of them is in a hurry."""
_LIVING = frozenset({Phase.LAUNCHED, Phase.REGISTERED, Phase.INITIALIZED})


class Statement(NamedTuple):
    """Annotations that an object lacks."""

    kind: str
    name: str
    annotations: Mapping[str, str]


def unstated(
    manifest: Mapping[str, Any], parsed: NodePool | EC2NodeClass | None, ca_bundle: str
) -> Statement | None:
    """Return the hash that an object does not state of itself yet; None where it does, or cannot be read.

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
    """Return claims that have a hash of another version with that of this one, `MOST_AT_ONCE` of them.

    A hash whose NodePool or EC2NodeClass cannot be read is left until it can.
    """
    living = (claim for claim in claims if claim.phase in _LIVING)
    renewed = (
        (claim, _renewed(claim, pools.get(claim.nodepool), nodeclasses.get(claim.nodeclass.name), ca_bundle))
        for claim in living
    )
    return list(islice((after for before, after in renewed if after != before), MOST_AT_ONCE))


def _renewed(
    claim: NodeClaim, pool: NodePool | None, nodeclass: EC2NodeClass | None, ca_bundle: str
) -> NodeClaim:
    """Return a claim with today's hashes; one that has drifted keeps its old ones, which then differ from today's."""
    if pool and claim.nodepool_hash_version != NODEPOOL_HASH_VERSION:
        stated = claim.nodepool_hash if claim.drift else pool.hash
        claim = replace(claim, nodepool_hash=stated, nodepool_hash_version=NODEPOOL_HASH_VERSION)
    if nodeclass and claim.nodeclass_hash_version != NODECLASS_HASH_VERSION:
        stated = claim.nodeclass_hash if claim.drift else nodeclass.hash_in(ca_bundle)
        claim = replace(claim, nodeclass_hash=stated, nodeclass_hash_version=NODECLASS_HASH_VERSION)
    return claim
