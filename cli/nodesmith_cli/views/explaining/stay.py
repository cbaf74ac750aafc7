"""The reason why a node stays: the rule that blocks its disruption, or the verdict of consolidation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from nodesmith.decisions.budgets import closed_obstacle
from nodesmith.decisions.disruption.candidates import Candidate, quiet_since
from nodesmith.decisions.disruption.costs import held_for_buffers
from nodesmith.decisions.disruption.drift import Drift
from nodesmith.decisions.disruption.proposals import Blocker, Proposal
from nodesmith.decisions.disruption.search.methods import may_rebalance, rebalanced
from nodesmith.decisions.disruption.search.searchpass import Pass
from nodesmith.decisions.provisioning import Inputs, as_read
from nodesmith.decisions.provisioning.buffers.room import with_room_taken
from nodesmith.model.ec2.catalog import Catalog
from nodesmith.model.ec2.zonalshifts import shown_shifts
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.ledger.ledger import Ledger, shown_pause
from nodesmith.model.ledger.moves import Reason
from nodesmith.model.nodeclasses.status import ClusterInfo
from nodesmith.model.policies import NodeSettings
from nodesmith.model.snapshot import Snapshot
from nodesmith_cli.planning.nodeclasses import KUBERNETES, assumed_zones, statuses
from nodesmith_formats.prices import estimate_mark

_STEPS = 10_000


class StayReason(NamedTuple):
    """Why a node stays, and since when if that is known. `leaves` is True for a node that will be disrupted."""

    rule: str
    message: str
    on: str
    since: datetime | None = None
    leaves: bool = False


def why_it_stays(
    claim: NodeClaim, claims: Sequence[NodeClaim], snapshot: Snapshot, catalog: Catalog, now: datetime
) -> StayReason | None:
    """Evaluate one node as disruption does. Returns None for a node that disruption does not consider.

    `claims` are the cluster's NodeClaims. Moves in progress are recognized by their taints only.
    """
    if claim.is_ending:
        return None
    inputs = observed_inputs(claims, snapshot, catalog, now)
    held = next((node for node in held_for_buffers(inputs) if node.claim.name == claim.name), None)
    if held is not None and not claim.drift:
        buffers = f"CapacityBuffer {', '.join(held.buffers)}"
        price = f"{estimate_mark(held.estimated)}${held.price_hourly_usd:.4f}/hour"
        message = f"it runs no pods and has room for {buffers}, which costs {price}"
        return StayReason("CapacityBuffer", message, f"NodeClaim/{claim.name}")
    search = Pass(with_room_taken(inputs), _STEPS)
    pause, blocker = inputs.ledger.paused, search.blocked.get(claim.name)
    if blocker is not None:
        return _stay(blocker, pause.since if pause and blocker.rule == "Paused" else None)
    pool = search.survey.pools.get(claim.nodepool)
    if pool is not None and not pool.is_static and (obstacle := closed_obstacle(pool, now)):
        message = f"{obstacle}: it ends as soon as the budgets of its NodePool allow"
        return StayReason("ScheduleClosed", message, f"NodePool/{pool.name}", leaves=True)
    candidate = next(
        (candidate for candidate in search.survey.candidates if candidate.name == claim.name), None
    )
    return _of_candidate(candidate, search) if candidate is not None else None


def observed_inputs(
    claims: Sequence[NodeClaim], snapshot: Snapshot, catalog: Catalog, now: datetime
) -> Inputs:
    """Return the inputs of a decision as far as a snapshot shows them. `claims` are the cluster's NodeClaims."""
    ledger = Ledger(
        claims=tuple(claims),
        nodeclasses=statuses(snapshot.nodeclasses, assumed_zones(catalog)),
        cluster=ClusterInfo(snapshot.cluster, "", "", "10.100.0.0/16", KUBERNETES),
        paused=shown_pause(snapshot.nodepools),
        zonal_shifts=shown_shifts(snapshot.nodepools, now),
    )
    return Inputs(snapshot, as_read(ledger, snapshot), catalog, NodeSettings(), now, "explain")


def _of_candidate(candidate: Candidate, search: Pass) -> StayReason:
    claim = candidate.claim
    drift = search.drift.get(candidate.name) or Drift(claim.drift, claim.drift_detail)
    reason = Reason.DRIFTED if drift else Reason.UNDERUTILIZED if candidate.pods else Reason.EMPTY
    blocker = None if drift else search.blocker(candidate)
    blocker = blocker or search.allowed.budget_blockers([candidate], reason).get(candidate.name)
    since = claim.drifted_at if drift else quiet_since(claim, candidate.node)
    if blocker is not None:
        return _stay(blocker, since)
    on = f"NodeClaim/{candidate.name}"
    if drift:
        return StayReason(
            drift.reason,
            f"it has drifted ({drift}), and is replaced as soon as its pods have somewhere to go",
            on,
            since,
            True,
        )
    if not candidate.pods:
        return StayReason("Empty", "it is empty, and is removed in one of the next passes", on, since, True)
    if may_rebalance(candidate, search) and isinstance(rebalanced(candidate, search)[0], Proposal):
        message = "its zone has too many of its pods: it is due to be replaced in another zone"
        return StayReason("Unbalanced", message, on, since, True)
    outcome = search.judge.consolidation([candidate], search.try_without([candidate]))
    if isinstance(outcome, str):
        return StayReason("Consolidation", f"on its own, {outcome}", on, since)
    saving = f"${outcome.saving_hourly_usd:.4f}/hour"
    return StayReason(
        "Underutilized",
        f"its pods fit on cheaper capacity, which saves {saving}: it is due to be consolidated",
        on,
        since,
        True,
    )


def _stay(blocker: Blocker, since: datetime | None) -> StayReason:
    return StayReason(blocker.rule, blocker.message, blocker.object, since)
