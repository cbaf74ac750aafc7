"""Hashes of templates: written on NodePools and EC2NodeClasses, and renewed on claims with another hash version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nodesmith.controllers.nodeclaims.rewriting import rewrite
from nodesmith.decisions.readiness.hashes import rehashed, unstated
from nodesmith.errors import Failures
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.ports import Cluster, Store

Read = Iterable[tuple[Mapping[str, Any], NodePool | EC2NodeClass | None]]
"""Objects of the API server: each manifest with the object parsed from it, None if it is invalid."""


def state_hashes(objects: Read, ca_bundle: str, cluster: Cluster, failures: Failures) -> tuple[str, ...]:
    """Write the hash of its content onto each object that lacks it; return the `Kind/name` of those written."""
    written: list[str] = []
    for statement in filter(None, (unstated(obj, read, ca_bundle) for obj, read in objects)):
        about = f"{statement.kind}/{statement.name}"
        with failures.of(about):
            cluster.annotate(statement.kind, statement.name, statement.annotations)
            written.append(about)
    return tuple(written)


def renew_hashes(
    claims: Iterable[NodeClaim],
    pools: Mapping[str, NodePool],
    nodeclasses: Mapping[str, EC2NodeClass],
    ca_bundle: str,
    store: Store,
    cluster: Cluster,
    failures: Failures,
) -> int:
    """Renew the hashes of claims with another hash version, in the ledger and on their objects; return their number."""
    return rewrite(rehashed(claims, pools, nodeclasses, ca_bundle), store, cluster, failures)
