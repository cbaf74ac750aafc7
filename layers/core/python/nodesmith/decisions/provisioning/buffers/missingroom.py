"""Why CapacityBuffers lack room, also on instances that cannot start, and which NodePools they leave to pods."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from itertools import chain

from nodesmith.decisions.budgets import closed_obstacle
from nodesmith.decisions.provisioning.alternatives import Attempt
from nodesmith.decisions.provisioning.buffers.warmcapacity import WarmCapacity
from nodesmith.decisions.provisioning.plan import Inputs, Plan, Room
from nodesmith.decisions.provisioning.planner import Planner
from nodesmith.decisions.provisioning.reasons import left_of
from nodesmith.decisions.scheduling.offerings.quotas import freed_at
from nodesmith.decisions.scheduling.offerings.templates import Template
from nodesmith.model.apimachinery.times import first
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import parsed_nodepools
from nodesmith.model.kubernetes.pods import Reason

NOT_NOW = "no NodePool can provide more room now"


def _contended(plan: Plan) -> frozenset[str]:
    """Return the names of the NodePools with limits that keep pods pending: buffers may not use up these limits."""
    return frozenset(u.cause.nodepool for u in plan.unplaced if u.cause.blocking.startswith("limit"))


def uncontended(tiers: tuple[tuple[Template, ...], ...], plan: Plan) -> tuple[tuple[Template, ...], ...]:
    """Return the templates of the other NodePools, by tier."""
    names = _contended(plan)
    return tuple(tuple(template for template in tier if template.name not in names) for tier in tiers)


class MissingRoom:
    """Why planned pods get no room. `due` is when limits in their way may leave more, None if only a change helps."""

    def __init__(self, plan: Plan, tiers: tuple[tuple[Template, ...], ...] | None, planner: Planner) -> None:
        """`tiers` are the templates that the plan for pods leaves, None if there was none."""
        self._planner, self._names = planner, _contended(plan)
        templates = chain.from_iterable(planner.offers.tiers if tiers is None else tiers)
        self._contended = [template for template in templates if template.name in self._names]
        self.due: datetime | None = None

    def of(self, attempt: Attempt) -> dict[str, str]:
        """Return the reasons by planned pod for those that an attempt leaves without room."""
        tiers = [*attempt.purchase.tiers, self._contended]
        judged = replace(attempt, purchase=replace(attempt.purchase, tiers=tiers))
        left, inputs = left_of(judged, self._planner.offers), self._planner.inputs
        all_usages = chain.from_iterable(template.usages for tier in tiers for template in tier)
        freed = freed_at((reason for _, reason in left), all_usages, inputs.ledger, inputs.now)
        self.due = first((self.due, freed))
        return {pod.key: self._text(reason) for pod, reason in left}

    def _text(self, reason: Reason) -> str:
        if reason.nodepool in self._names:
            return f"pods wait for the limits of NodePool {reason.nodepool}, and pods come first"
        return f"{NOT_NOW}: {reason}"


def without_unstartable(warm: WarmCapacity, room: Room, inputs: Inputs) -> Room:
    """Return the room of a buffer of stopped instances without those that cannot start now, with the reasons."""
    ready = [entry for entry in warm.entries if entry.is_ready and not entry.stale]
    found = [(entry, obstacle) for entry in ready if (obstacle := _start_obstacle(entry.claim, inputs))]
    if not found:
        return room
    startable = warm.ready - sum(entry.pods for entry, _ in found)
    reasons = dict.fromkeys((*(obstacle for _, obstacle in found), *filter(None, [room.reason])))
    return replace(room, ready=min(room.ready, startable), reason="; ".join(reasons))


def _start_obstacle(claim: NodeClaim, inputs: Inputs) -> str:
    """Return why a stopped instance cannot start now; empty if it can, or will be able to within seconds."""
    pool = parsed_nodepools(inputs.snapshot.nodepools).get(claim.nodepool)
    if pool is None or pool.deleting:
        return f"NodePool {claim.nodepool} is being deleted or gone, so its instances do not start"
    if closed := closed_obstacle(pool, inputs.now):
        return f"NodePool {pool.name}: {closed}, so its instances do not start"
    key = OfferingKey(claim.capacity_type, claim.instance_type, claim.zone)
    backoff = inputs.ledger.unavailable.get(key)
    if backoff is not None and backoff.holds(inputs.now):
        return f"EC2 lately had no capacity to start {claim.instance_type} in {claim.zone}"
    return ""
