"""What EC2's answers mean for the claim they answer and for the capacity pools they name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from nodesmith.decisions.launch.templates import tenancy
from nodesmith.model.apimachinery import labels
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.ec2.capacity import EFA, without_efa
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import InstanceType, read_gpu_parts, with_parts
from nodesmith.model.ec2.launches import (
    Instance,
    Launched,
    LaunchOutcome,
    LaunchRequest,
    NoCapacity,
    OfferingKey,
)
from nodesmith.model.karpenter.nodeclaims import NOT_REGISTERED, TAGS_DUE, NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import GPU_PARTS
from nodesmith.model.karpenter.ownership import claim_tags
from nodesmith.model.ledger.learned import Backoff, next_backoff
from nodesmith.model.ledger.ledger import Ledger

SUBNET_BACKOFF = timedelta(minutes=5)


def launched_claim(
    claim: NodeClaim, instance: Instance, kind: InstanceType | None, now: datetime
) -> NodeClaim:
    """Return the claim with what is known once its instance exists. The claim's own labels override the type's.

    If the instance does not carry the claim's own tags yet, the claim lists those to write.
    """
    parts = read_gpu_parts(claim.annotations.get(GPU_PARTS, "")) if kind else None
    kind = with_parts(kind, parts) if kind and parts else kind
    sold = _sold(instance, kind)
    offering = {
        labels.INSTANCE_TYPE: instance.instance_type,
        labels.ZONE: instance.zone,
        labels.CAPACITY_TYPE: instance.capacity_type,
        labels.EKS_CAPACITY_TYPE: labels.EKS_CAPACITY_TYPES[instance.capacity_type],
    }
    if sold is not None and sold.zone_id:
        offering[labels.ZONE_ID] = sold.zone_id
    known = kind.labels if kind else {}
    capacity, allocatable = _room(claim, kind)
    return replace(
        claim.on(instance).advanced(Phase.LAUNCHED, now).waiting(*NOT_REGISTERED),
        price_hourly_usd=_price(claim, instance, sold),
        capacity=capacity,
        allocatable=allocatable,
        labels={**known, labels.TENANCY: tenancy(claim.requirements), **claim.labels, **offering},
        launch=_untagged(claim, instance),
    )


def _room(claim: NodeClaim, kind: InstanceType | None) -> tuple[Resources, Resources]:
    """Return capacity and allocatable of the launched type, without EFA unless the claim promises it."""
    if kind is None:
        return claim.capacity, claim.allocatable
    if claim.capacity.of(EFA):
        return kind.capacity, kind.allocatable
    return without_efa(kind.capacity), without_efa(kind.allocatable)


def tags_due(claim: NodeClaim) -> Mapping[str, str]:
    """Return the tags that a claim's instance lacks."""
    due = claim.launch.get(TAGS_DUE)
    return {key: str(value) for key, value in due.items()} if isinstance(due, Mapping) else {}


def _untagged(claim: NodeClaim, instance: Instance) -> FrozenMap[object]:
    tags = claim.launch.get("tags")
    if instance.claim == claim.name or not isinstance(tags, Mapping):
        return FrozenMap()
    return FrozenMap({TAGS_DUE: claim_tags(claim.name, tags)})


def _sold(instance: Instance, kind: InstanceType | None) -> Offering | None:
    bought = instance.zone, instance.capacity_type
    offerings = kind.offerings if kind else ()
    return next((o for o in offerings if (o.zone, o.capacity_type) == bought), None)


def _price(claim: NodeClaim, instance: Instance, sold: Offering | None) -> float:
    """Return AWS's price at which the instance's offering was requested: limits in dollars were compared with it.

    The claim's own price is that of the cheapest offering.
    """
    asked = claim.launch.get("overrides") and instance.capacity_type != labels.RESERVED
    bought = instance.instance_type, instance.zone
    overrides = LaunchRequest.from_item(claim.name, claim.launch).overrides if asked else ()
    prices = (o.paid_hourly_usd for o in overrides if (o.instance_type, o.zone) == bought)
    return next(prices, sold.paid_hourly_usd if sold else claim.price_hourly_usd)


def backoffs(
    outcomes: Collection[LaunchOutcome], ledger: Ledger, now: datetime
) -> dict[OfferingKey, Backoff]:
    """Return the back-offs of offerings without capacity, except those that served another claim."""
    answers = [outcome for outcome in outcomes if isinstance(outcome, (NoCapacity, Launched))]
    codes = {s.offering: s.code for answer in answers for s in answer.shortfalls}
    return {
        key: next_backoff(ledger.unavailable.get(key), codes[key], now)
        for key in sorted(codes.keys() - served(outcomes))
    }


def subnet_backoffs(outcomes: Iterable[LaunchOutcome], now: datetime) -> dict[str, Backoff]:
    """Return the back-offs of subnets in which nothing could be launched.

    They last until readiness has read again how many free addresses each subnet has.
    """
    answers = [outcome for outcome in outcomes if isinstance(outcome, (NoCapacity, Launched))]
    codes = {s.subnet: s.code for answer in answers for s in answer.subnets}
    return {subnet: Backoff(now + SUBNET_BACKOFF, 1, codes[subnet]) for subnet in sorted(codes)}


def served(outcomes: Iterable[LaunchOutcome]) -> set[OfferingKey]:
    """Return the offerings that instances came from."""
    instances = [outcome.instance for outcome in outcomes if isinstance(outcome, Launched)]
    return {OfferingKey(i.capacity_type, i.instance_type, i.zone) for i in instances}


def shortage(outcome: NoCapacity) -> str:
    """Return a sentence about what EC2 lacked."""
    if outcome.subnets and not outcome.shortfalls:
        names = ", ".join(s.subnet for s in outcome.subnets)
        return f"no free address in {names} ({outcome.subnets[0].code})"
    codes = sorted({s.code for s in outcome.shortfalls})
    lacking = "the account's quota" if outcome.quota else "capacity"
    example = f", such as {outcome.shortfalls[0].offering}" if outcome.shortfalls else ""
    return f"no {lacking} in {len(outcome.shortfalls)} offerings ({', '.join(codes)}){example}"
