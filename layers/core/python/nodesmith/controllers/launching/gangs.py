"""ProvisioningRequests: decide whose turn it is, reserve room and buy, one request at a time; show how far each is."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from nodesmith.controllers.launching.launch import Buyer, TypeTable, buy_gang, write_down
from nodesmith.controllers.observation import newest_data, own_snapshot
from nodesmith.controllers.runs import ClusterPorts
from nodesmith.decisions.lifecycle.gangs import advanced, is_done, status_updates
from nodesmith.decisions.provisioning import Inputs, decision_id
from nodesmith.decisions.provisioning.gangs import GangDecision, decide_gang, record_gang, turns
from nodesmith.errors import Conflict, Failures
from nodesmith.keys import decision_snapshot_key
from nodesmith.launcheffects import Allowance, Settled
from nodesmith.model.functions import Concern, Hint
from nodesmith.model.kubernetes.provisioningrequests import title
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot
from nodesmith.ports import Blobs, Hints

MOST_DECISIONS = 24
"""The most decisions about requests in one run of provisioning. The next run continues."""
_MOST_OF_ONE = 4
"""The most decisions about one request in a row: each follows launches that EC2 had no capacity for."""


class GangBuyer(Buyer, Protocol):
    """A run that buys for requests."""

    @property
    def cluster_name(self) -> str:
        """The cluster."""

    @property
    def blobs(self) -> Blobs:
        """The snapshot, and the records of decisions."""

    @property
    def hints(self) -> Hints:
        """What wakes lifecycle."""


@dataclass(slots=True)
class GangPurchases:
    """What was done for requests: the outcomes of launches, and the decisions that were recorded.

    `is_cut` is True if requests are left for the next run.
    """

    settled: list[Settled] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)
    is_cut: bool = False
    has_changed: bool = False


def buy_for_requests(
    run: GangBuyer, inputs: Inputs, allowance: Allowance, has_time: Callable[[], bool]
) -> GangPurchases:
    """Decide about the requests whose turn it is, and buy for them. `inputs` are those of a decision about pods.

    Raises Transient, Rejected.
    """
    purchases = GangPurchases()
    ledger, data = _read(run)
    if data is None:
        return purchases
    decisions, shared = 0, inputs.settings.shared_provisioning_classes
    try:
        for key in turns(own_snapshot(data, run.cluster_name), ledger, run.clock(), shared=shared):
            for _ in range(_MOST_OF_ONE):
                if decisions == MOST_DECISIONS or not has_time():
                    purchases.is_cut = True
                    return purchases
                decisions += 1
                if not _decide(run, key, inputs, allowance, purchases):
                    break
    finally:
        if purchases.has_changed:
            hint = Hint(run.cluster_name, "ProvisioningRequests got room, or got none")
            run.hints.send(Concern.LIFECYCLE, hint)
    return purchases


def _read(run: GangBuyer) -> tuple[Ledger, bytes | None]:
    """Return the ledger and the bytes of the newest snapshot, None if there is none.

    The ledger comes first: in an older snapshot the nodes of a gang that it calls ready would seem lost, and would be
    bought again.
    """
    return run.store.load(), newest_data(run.blobs, run.cluster_name)


def _decide(run: GangBuyer, key: str, inputs: Inputs, allowance: Allowance, purchases: GangPurchases) -> bool:
    """Decide about one request and carry it out; return whether launches failed, so that it must be looked at again."""
    read, data = _read(run)
    if data is None:
        return False
    now, digest = run.clock(), hashlib.sha256(data).hexdigest()
    inputs = replace(
        inputs,
        snapshot=own_snapshot(data, run.cluster_name),
        ledger=replace(read, learned=inputs.ledger.learned),
        now=now,
        decision=decision_id(digest, read.version, now),
    )
    decided = decide_gang(inputs, key)
    if decided is None:
        return False
    if decided.nodes:
        write_down(run.blobs, run.cluster_name, inputs.decision, record_gang(inputs, decided, digest))
        run.blobs.put(decision_snapshot_key(run.cluster_name, inputs.decision), data)
    settled = Settled()
    with suppress(Conflict):  # another run has decided meanwhile
        settled = _carried_out(run, decided, inputs, allowance)
        purchases.has_changed = True
        purchases.settled.append(settled)
        purchases.decisions += [inputs.decision] if decided.nodes else []
    return bool(settled.given_up) and not (settled.is_throttled or settled.is_cut)


def _carried_out(run: GangBuyer, decided: GangDecision, inputs: Inputs, allowance: Allowance) -> Settled:
    """Raises Conflict if nothing was committed."""
    gang, ledger = decided.gang, inputs.ledger
    if not decided.reserves:
        run.store.save_gang(gang)
        return Settled()
    types = TypeTable(inputs.snapshot, inputs.catalog, inputs.settings, ledger)
    return buy_gang(run, decided.nodes, ledger, types, inputs.decision, allowance, gang)


def follow_gangs(
    run: ClusterPorts,
    ledger: Ledger,
    snapshot: Snapshot,
    now: datetime,
    shared: bool,
    counts: Counter[str],
    failures: Failures,
) -> None:
    """Advance gangs that need no decision, show on each request how far it is, and forget gangs that are done.

    The ends of NodeClaims of gangs that are rolled back are among lifecycle's commands.
    """
    for gang in advanced(ledger, snapshot, now):
        with failures.of(title(gang.request)), suppress(Conflict):
            saved = run.store.save_gang(gang)
            ledger = replace(
                ledger, gangs=tuple(saved if other.id == saved.id else other for other in ledger.gangs)
            )
            counts["Gang"] += 1
            run.hints.send(Concern.PROVISIONING, Hint(run.cluster_name, "ProvisioningRequests advanced"))
    for kind, name, status in status_updates(ledger, snapshot, now, shared=shared):
        with failures.of(f"ProvisioningRequest {name}"):
            run.cluster.merge_status(kind, name, status)
            counts["Request"] += 1
    for gang in ledger.gangs:
        if is_done(gang, snapshot):
            with failures.of(title(gang.request)), suppress(Conflict):
                run.store.forget_gang(gang)
