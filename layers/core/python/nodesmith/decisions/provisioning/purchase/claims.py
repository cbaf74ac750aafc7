"""From a packed node to an intent: the NodeClaim, with everything that a retry needs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from nodesmith.decisions.launch import Templates, as_launched, launch_plan
from nodesmith.decisions.launch.templates import tenancy
from nodesmith.decisions.provisioning.plan import PlannedNode, Repetition
from nodesmith.decisions.provisioning.purchase.flexibility import Options, values_of
from nodesmith.decisions.provisioning.purchase.packingproblem import Offer, pairs
from nodesmith.decisions.scheduling.compatibility import agreeing_terms, own_preferences
from nodesmith.decisions.scheduling.demands import Demand
from nodesmith.decisions.scheduling.offerings.overlays import overlay_marks
from nodesmith.decisions.scheduling.offerings.reservationsandgroups import reservation_labels
from nodesmith.decisions.scheduling.offerings.templates import Template, template_labels
from nodesmith.model.apimachinery.labels import (
    CAPACITY_TYPE,
    DECIDED,
    INSTANCE_PROFILE,
    INSTANCE_TYPE,
    MIN_VALUES_RELAXED,
    PARTITION,
    PLACEMENT_GROUP,
    TENANCY,
    ZONE,
)
from nodesmith.model.apimachinery.quantities import Resources, total
from nodesmith.model.apimachinery.requirements import Requirement, Requirements
from nodesmith.model.ec2.capacity import EFA
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.launches import Override
from nodesmith.model.hashes import NODECLASS_HASH_VERSION, NODEPOOL_HASH_VERSION
from nodesmith.model.karpenter.bufferannotations import WARM_CAPACITY
from nodesmith.model.karpenter.nodeclaims import STOPPED_PRICE, NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import GPU_PARTS, NodePool
from nodesmith.model.karpenter.ownership import claim_tags
from nodesmith.model.kubernetes.devices import REQUESTED_DRIVERS, without_devices
from nodesmith.model.kubernetes.pods import Pod
from nodesmith.model.nodeclasses.instancesettings import GIB
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import ClusterInfo

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # as Kubernetes: no vowels, no digits that read as letters
_SUFFIX_LENGTH = 8
_LONGEST_POOL_IN_NAME = 54  # a claim's name is a label value and a tag: 63 at most


@dataclass(frozen=True, slots=True)
class WarmFor:
    """The CapacityBuffer (namespace/name) whose stopped instances are bought, and the images that they pull."""

    buffer: str
    images: tuple[str, ...] = ()

    def on(self, claim: NodeClaim, nodeclass: EC2NodeClass) -> NodeClaim:
        """Return a claim as one for warm capacity."""
        price = volumes_hourly_usd(nodeclass)
        marks = {WARM_CAPACITY: self.buffer, STOPPED_PRICE: f"{price:.6f}"}
        return replace(
            claim,
            buffer=self.buffer,
            images=self.images,
            stopped_price_hourly_usd=price,
            annotations={**claim.annotations, **marks},
        )


_GIB_MONTH_USD = {
    "gp3": 0.08,
    "gp2": 0.10,
    "io1": 0.125,
    "io2": 0.125,
    "st1": 0.045,
    "sc1": 0.015,
    "standard": 0.05,
}
"""EBS's list prices of a GiB for a month in us-east-1, by volume type, without provisioned IOPS and throughput.

The catalogue has no prices of volumes. Other regions are up to twice as expensive.
"""
_HOURS_A_MONTH = 730
_UNKNOWN_SIZE = 20 * GIB


def volumes_hourly_usd(nodeclass: EC2NodeClass) -> float:
    """Return about what the volumes of an instance cost an hour, in USD. A volume of a snapshot counts as 20 GiB."""
    volumes = [mapping.ebs for mapping in nodeclass.block_devices if mapping.ebs is not None]
    sizes = [(volume.volume_size_bytes or _UNKNOWN_SIZE, volume.volume_type or "gp2") for volume in volumes]
    billed_sizes = sizes or [(_UNKNOWN_SIZE, "gp3")]
    return sum(size / GIB * _GIB_MONTH_USD.get(kind, 0.125) for size, kind in billed_sizes) / _HOURS_A_MONTH


def claim_name(nodepool: str, decision: str, index: int) -> str:
    """Return the name of the `index`th node of a decision: equal in a replay, different in every other decision."""
    number = int.from_bytes(hashlib.sha256(f"{decision}/{nodepool}/{index}".encode()).digest()[:8], "big")
    letters = []
    for _ in range(_SUFFIX_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[digit])
    return f"{nodepool[:_LONGEST_POOL_IN_NAME]}-{''.join(letters)}"


def planned_node(
    options: Options,
    demands: Sequence[Demand],
    pods: Sequence[Pod],
    name: str,
    decision: str,
    cluster: ClusterInfo,
    now: datetime,
    cache: Templates | None = None,
    warm: WarmFor | None = None,
) -> PlannedNode:
    """Return one node to buy for pods of these demands.

    `options` are its options, the cheapest first. `cache` caches launch templates. With `warm`, its instance is stopped
    once it is prepared.
    """
    offers = options.offers
    template, cheapest = offers[0].template, offers[0].offering
    pool = template.pool
    custom = _narrowed(template, demands)
    placed = _placement(template, custom, name)
    reserved = {**_reservation(template, cheapest), **placed}
    requirements = (
        template.requirements.union(custom)
        .union(Requirements.from_labels(reserved))
        .adding(
            Requirement(INSTANCE_TYPE, frozenset(offer.type_option.type.name for offer in offers)),
            Requirement(ZONE, frozenset(offer.offering.zone for offer in offers)),
            Requirement(CAPACITY_TYPE, frozenset((cheapest.capacity_type,))),
            *_settled(demands),
        )
    )
    claim = NodeClaim(
        name=name,
        nodepool=pool.name,
        nodeclass=pool.nodeclass,
        created_at=now,
        phase=Phase.PENDING,
        phase_since=now,
        nodepool_uid=pool.owner_uid,
        provisioner="" if pool.uid else pool.options.provisioner,
        nodepool_hash=pool.hash,
        nodeclass_hash=template.nodeclass.hash_in(cluster.ca_bundle),
        nodepool_hash_version=NODEPOOL_HASH_VERSION,
        nodeclass_hash_version=NODECLASS_HASH_VERSION,
        requirements=_reached(requirements, offers),
        labels={**template_labels(pool), **_resolved(requirements), **reserved},
        annotations={
            **pool.annotations,
            MIN_VALUES_RELAXED: "true" if options.relaxed else "false",
            INSTANCE_PROFILE: template.status.instance_profile,
            **_gpu_parts(pool),
            **overlay_marks(pairs(offers)),
            **_drivers(pods, offers),
        },
        taints=pool.taints,
        startup_taints=pool.startup_taints,
        requests=requests_of(options, pods),
        expire_after=pool.expire_after,
        termination_grace_period=pool.termination_grace_period,
        budgets=pool.disruption.budgets,
        capacity_type=cheapest.capacity_type,
        security_groups=tuple(group.id for group in template.status.security_groups),
        capacity=without_devices(
            most_resources({o.type_option.type.name: o.type_option.type.capacity for o in offers}.values())
        ),
        allocatable=without_devices(
            least_resources(
                {offer.type_option.type.name: offer.type_option.type.allocatable for offer in offers}.values()
            )
        ),
        nominated=tuple(pod.key for pod in pods),
        decision=decision,
    )
    claim = as_launched(claim, template.nodeclass)
    claim = warm.on(claim, template.nodeclass) if warm is not None else claim
    offered = pairs(offers)
    request, templates = launch_plan(claim, offered, template.nodeclass, template.status, cluster, cache)
    return PlannedNode(claim, request, templates, options.surcharge_hourly_usd)


def kind_of(options: Options, demands: Sequence[Demand], pods: Iterable[Pod]) -> tuple[object, ...]:
    """Return a key that is equal for nodes which differ only in name, pods and their requests, and tags."""
    template = options.offers[0].template
    asks_efa = any(pod.shape.requests.of(EFA) for pod in pods)
    return (
        id(options),
        _narrowed(template, demands),
        _settled(demands),
        asks_efa,
        _drivers(pods, options.offers).get(REQUESTED_DRIVERS),
    )


def another(
    like: PlannedNode,
    pods: Iterable[Pod],
    name: str,
    requests: Resources | None = None,
    repetition: Repetition | None = None,
) -> PlannedNode:
    """Return a node of the kind of `like` for other pods: only name, tags, pods and what concerns these differ."""
    claim = replace(
        like.claim,
        name=name,
        nominated=tuple([pod.key for pod in pods]),
        requests=like.claim.requests if requests is None else requests,
        attempts=like.claim.attempts if repetition is None else repetition.attempts,
        removals_before=like.claim.removals_before if repetition is None else repetition.removals,
    )
    tags = dict(like.request.tags) | dict.fromkeys(claim_tags(like.claim.name, like.request.tags), name)
    request = replace(like.request, claim=name, tags=tags)
    return PlannedNode(claim, request, like.templates, like.surcharge_hourly_usd)


def requests_of(options: Options, pods: Iterable[Pod]) -> Resources:
    """Return what the pods of a node and its DaemonSets request."""
    daemons = options.offers[0].type_option.daemons
    return without_devices(total([pod.shape.requests for pod in pods]) + daemons)


def _reservation(template: Template, offering: Offering) -> dict[str, str]:
    """Return the labels of a node that runs in a reservation; empty for any other."""
    matches = (r for r in template.status.capacity_reservations if r.id == offering.reservation)
    return next((reservation_labels(r) for r in matches), {})


def _gpu_parts(pool: NodePool) -> dict[str, str]:
    parts = pool.options.gpu_parts
    return {GPU_PARTS: ",".join(f"{name}={number}" for name, number in parts)} if parts else {}


def _drivers(pods: Iterable[Pod], offers: Iterable[Offer]) -> dict[str, str]:
    """Return the annotation that names the drivers whose devices the pods get; empty without any."""
    drivers = frozenset[str]().union(*[pod.shape.drivers for pod in pods])
    if not drivers:
        return {}
    drivers_by_type = [{kind.driver for kind, _ in offer.type_option.type.devices} for offer in offers]
    common = sorted(drivers.intersection(*drivers_by_type))
    return {REQUESTED_DRIVERS: ",".join(common)} if common else {}


def _placement(template: Template, custom: Requirements, name: str) -> dict[str, str]:
    """Return the labels of a node in a placement group; empty without one.

    Of the partitions that its pods allow, the node gets one by its name, so that nodes are distributed evenly.
    """
    group = template.status.placement_group
    if group is None:
        return {}
    labels = {PLACEMENT_GROUP: group.id}
    requirement = template.requirements.union(custom).get(PARTITION)
    allowed = (
        sorted(requirement.values, key=int) if requirement is not None and not requirement.complement else []
    )
    if allowed:
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
        labels[PARTITION] = allowed[number % len(allowed)]
    return labels


def _narrowed(template: Template, demands: Iterable[Demand]) -> Requirements:
    """Return what the pods ask of labels that a launch chooses: those that only the NodePool defines, and tenancy."""
    narrowed = Requirements({})
    is_decided = all(key in DECIDED for key in template.requirements)
    for demand in demands:
        if is_decided and not any(TENANCY in term.by_key for term in demand.shape.terms):
            continue
        terms = agreeing_terms(template.requirements, demand.shape)
        requirements = terms[0].union(Requirements.from_labels(demand.pins))
        narrowed = narrowed.adding(*own_preferences(template.requirements, requirements).values())
    return narrowed


def _settled(demands: Iterable[Demand]) -> tuple[Requirement, ...]:
    """Return the labels for which rules about other pods chose a domain, or for which pods allow one value only.

    Without these, a claim would not show until its launch which further pods its node takes, and for which spreads and
    affinities its pods count. Labels that the launch does not decide are left out.
    """
    values: dict[str, str] = {}
    for demand in demands:
        alternatives = [term.settled.items() for term in demand.shape.terms]
        values |= dict(set(alternatives[0]).intersection(*alternatives[1:])) if alternatives else {}
        values |= demand.pins
    known = sorted((key, value) for key, value in values.items() if key in DECIDED and value)
    return tuple(Requirement(key, frozenset((value,))) for key, value in known)


def _resolved(requirements: Requirements) -> dict[str, str]:
    """Return a value for every label that the NodePool leaves open: a node has exactly one."""
    values: dict[str, str | None] = {
        key: any_value(requirements[key]) for key in sorted(requirements) if key not in DECIDED
    }
    if TENANCY in values:
        values[TENANCY] = tenancy(requirements)
    return {key: value for key, value in values.items() if value is not None}


def any_value(requirement: Requirement) -> str | None:
    """Return the first value that a requirement allows; None if the label must be absent.

    If any value is allowed (Exists, NotIn, bounds), it is the smallest allowed number, so that a replay agrees.
    """
    if requirement.is_empty:
        return None
    if not requirement.complement:
        return min(requirement.values)
    start = requirement.gte if requirement.gte is not None else min(0, requirement.lte or 0)
    candidates = (str(start + step) for step in range(len(requirement.values) + 1))
    return next((value for value in candidates if requirement.allows(value)), None)


def _reached(requirements: Requirements, offers: Sequence[Offer]) -> Requirements:
    """Lower minValues to what these offers reach: if more is not available, the node is bought without."""
    if all(r.min_values is None for r in requirements.values()):
        return requirements
    lowered = {
        key: replace(r, min_values=min(r.min_values, len(values_of(r, offers))) or None)
        for key, r in requirements.items()
        if r.min_values
    }
    return Requirements({**requirements, **lowered})


def least_resources(parts: Iterable[Resources]) -> Resources:
    """Return the element-wise minimum: what a node offers whichever of its types it becomes."""
    least: dict[str, int] | None = None
    for part in parts:
        if least is None:
            least = dict(part)
        for name, amount in least.items():
            if part.of(name) < amount:
                least[name] = part.of(name)
    return Resources(least or {})


def most_resources(parts: Iterable[Resources]) -> Resources:
    """Return the element-wise maximum: what a node may take of limits before its type is settled."""
    most: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            if amount > most.get(name, -1):
                most[name] = amount
    return Resources(most)


def only(node: PlannedNode, kept: Sequence[Override], template: Template) -> PlannedNode | None:
    """Return a node restricted to these of its offerings; None if its NodePool's minValues forbid that."""
    if not kept or _lacks_values(node, kept, template):
        return None
    if len(kept) == len(node.request.overrides):
        return node
    request = replace(node.request, overrides=tuple(kept))
    types, zones = frozenset(o.instance_type for o in kept), frozenset(o.zone for o in kept)
    left = {choice.type.name: choice.type for choice in template.choices if choice.type.name in types}
    claim = replace(
        node.claim,
        requirements=node.claim.requirements.adding(
            Requirement(INSTANCE_TYPE, types), Requirement(ZONE, zones)
        ),
        capacity=left[request.overrides[0].instance_type].capacity,
        allocatable=least_resources(kind.allocatable for kind in left.values()),
    )
    used = {override.template for override in kept}
    templates = tuple(each for each in node.templates if each.name in used)
    return PlannedNode(claim, request, templates, node.surcharge_hourly_usd)


def _lacks_values(node: PlannedNode, kept: Sequence[Override], template: Template) -> bool:
    """Return whether offerings violate the NodePool's minValues, unless these were relaxed for the node."""
    if node.claim.annotations.get(MIN_VALUES_RELAXED) == "true":
        return False
    labels = {choice.type.name: choice.type.labels for choice in template.choices}
    sold = {choice.type.name: choice.offerings for choice in template.choices}
    for requirement in template.requirements.values():
        if not requirement.min_values:
            continue
        if requirement.key == ZONE:
            values = {o.zone for o in kept}
        elif requirement.key == CAPACITY_TYPE:
            values = {offering.capacity_type for o in kept for offering in sold[o.instance_type]}
        else:
            values = {labels[o.instance_type].get(requirement.key, "") for o in kept} - {""}
        if len(values) < requirement.min_values:
            return True
    return False
