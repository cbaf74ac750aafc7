"""Hashes of templates, on claims and NodePools, and content hashes of objects, which provisioning compares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from nodesmith.controllers.runs import Outside
from nodesmith.decisions.provisioning.nodeclaims.nodeclaims import unread_nodeclaims
from nodesmith.decisions.provisioning.nodeclaims.unlaunched import unclaimed
from nodesmith.decisions.readiness.hashes import rehashed, unstated
from nodesmith.effects import show
from nodesmith.errors import Conflict, Failures
from nodesmith.model.karpenter.nodeclaimobjects import nodeclaim_content
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Cluster, Store


def rewrite(claims: Iterable[NodeClaim], store: Store, cluster: Cluster, failures: Failures) -> int:
    """Write claims as they are; return their number. A claim that has moved on meanwhile is left to the next run."""
    count = 0
    for claim in claims:
        with failures.of(f"NodeClaim {claim.name}"), suppress(Conflict):
            show(store.save(claim), cluster)
            count += 1
    return count


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


NODECLAIMS_AT_ONCE = 50
"""The most users' NodeClaims that one run reads: each takes a call."""


def keep_contents(
    run: Outside, pools: Iterable[NodePool], snapshot: Snapshot, ledger: Ledger, failures: Failures
) -> list[str]:
    """Save the content hashes that the ledger lacks, and forget those of objects that are gone.

    `pools` must come from the API server. Return the `Kind/name` of the objects whose hashes were saved.
    """
    read = {f"NodePool/{pool.name}": pool.content for pool in pools}
    read |= _nodeclaims(run, snapshot, ledger, failures)
    written = {key: content for key, content in sorted(read.items()) if ledger.contents.get(key) != content}
    gone = ledger.contents.keys() - read.keys()
    if written:
        run.store.save_contents(written)
    if gone:
        run.store.forget_contents(gone)
    return list(written)


def _nodeclaims(run: Outside, snapshot: Snapshot, ledger: Ledger, failures: Failures) -> dict[str, str]:
    """Return the content hashes of users' NodeClaims that wait for their launch and exist on the API server."""
    shown = {f"NodeClaim/{m['metadata']['name']}" for m in unclaimed(snapshot, ledger.claims)}
    found = {key: content for key, content in ledger.contents.items() if key in shown}
    for name in unread_nodeclaims(snapshot, ledger)[:NODECLAIMS_AT_ONCE]:
        found.pop(f"NodeClaim/{name}", None)
        with failures.of(f"NodeClaim {name}"):
            there = run.cluster.nodeclaim(name)
            content = nodeclaim_content(there) if there is not None else ""
            if content:
                found[f"NodeClaim/{name}"] = content
    return found
