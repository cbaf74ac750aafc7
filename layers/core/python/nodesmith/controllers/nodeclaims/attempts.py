"""Claims that repeat a purchase are told when pods have stayed on their nodes: nothing need wait after that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from nodesmith.decisions.attempts import stayed
from nodesmith.decisions.workloads import Workloads
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
    """Write down whose pods have stayed, but of claims that were `moved` by this run; what fails goes to `failures`."""
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
