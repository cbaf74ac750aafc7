"""Recording on claims of repeated purchases that pods have stayed on their nodes, which ends the back-off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from nodesmith.decisions.provisioning.attempts import Workloads, stayed
from nodesmith.errors import Conflict, Failures
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Store


def note_stayed(
    store: Store,
    ledger: Ledger,
    snapshot: Snapshot,
    moved: Collection[str],
    now: datetime,
    done: Counter[str],
    failures: Failures,
) -> None:
    """Record on claims whose pods have stayed, except on claims that this run has `moved`. Errors go to `failures`."""
    claims = {claim.name: claim for claim in ledger.claims if claim.name not in moved}
    for name, served in stayed(ledger, snapshot, now, Workloads()).items():
        if name not in claims:
            continue
        with failures.of(f"NodeClaim {name}"):
            try:
                store.save(replace(claims[name], served=served))
            except Conflict:
                continue  # it has moved on meanwhile; the next run sees the same pods
            done["Served"] += 1
