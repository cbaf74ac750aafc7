"""ProvisioningRequests in lifecycle: end what was rolled back, show how far each request is, forget what is done."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from nodesmith.controllers.runs import Outside
from nodesmith.decisions.lifecycle.gangs import advanced, is_done, status_updates
from nodesmith.errors import Conflict, Failures
from nodesmith.model.functions.hints import Concern, Hint
from nodesmith.model.kubernetes.provisioningrequests import said
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot


def follow_gangs(
    run: Outside,
    ledger: Ledger,
    snapshot: Snapshot,
    now: datetime,
    shared: bool,
    done: Counter[str],
    failures: Failures,
) -> None:
    """Advance gangs that need no decision, show on each request how far it is, and forget gangs that are done.

    The ends of NodeClaims of gangs that are rolled back are among lifecycle's commands.
    """
    for gang in advanced(ledger, snapshot, now):
        with failures.of(said(gang.request)), suppress(Conflict):
            saved = run.store.save_gang(gang)
            ledger = replace(
                ledger, gangs=tuple(saved if each.id == saved.id else each for each in ledger.gangs)
            )
            done["Gang"] += 1
            run.hints.send(Concern.PROVISIONING, Hint(run.cluster_name, "ProvisioningRequests advanced"))
    for kind, name, status in status_updates(ledger, snapshot, now, shared=shared):
        with failures.of(f"ProvisioningRequest {name}"):
            run.cluster.merge_status(kind, name, status)
            done["Request"] += 1
    for gang in ledger.gangs:
        if is_done(gang, snapshot):
            with failures.of(said(gang.request)), suppress(Conflict):
                run.store.forget_gang(gang)
