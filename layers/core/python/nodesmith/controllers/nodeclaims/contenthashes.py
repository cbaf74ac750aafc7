"""Content hashes of the objects on the API server, kept in the ledger so that provisioning can check its snapshot."""

from __future__ import annotations

from collections.abc import Iterable

from nodesmith.controllers.runs.outside import Outside
from nodesmith.decisions.provisioning.nodeclaims import unclaimed, unread_nodeclaims
from nodesmith.errors import Failures
from nodesmith.model.karpenter.nodeclaimobjects import nodeclaim_content
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot

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
