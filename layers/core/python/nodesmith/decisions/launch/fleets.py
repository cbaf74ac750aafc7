"""CreateFleet: the requests of claims, and what their instances mean for the claims.

A zone's subnet with the most free addresses, after pending launches, takes new nodes. As in Karpenter, a node is
expected to take one address for each pod that fits on it, since the VPC CNI assigns them. In an IPv6 cluster, whose
pods have no IPv4 addresses, a node takes one.

Equal requests of one commit become one CreateFleet call, as in Karpenter's batcher. EC2 answers such a call with a set
of instances. Which claim gets which instance follows only from the sorted names of the claims and the sorted ids of the
instances, so every run assigns them in the same way.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice

from nodesmith.decisions.launch.templates import (
    Build,
    launch_template,
    needs_dedicated_tenancy,
    reservation_kind,
    template_identity,
    tenancy,
)
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery import labels
from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.labels import MIN_VALUES_RELAXED
from nodesmith.model.apimachinery.quantities import Resources
from nodesmith.model.ec2.capacity import EFA, first_efa_card, without_efa
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import InstanceType, image_for, read_gpu_parts, with_parts
from nodesmith.model.ec2.launches import (
    FleetShare,
    Instance,
    LaunchRequest,
    LaunchTemplate,
    Override,
)
from nodesmith.model.karpenter.nodeclaims import NOT_REGISTERED, TAGS_DUE, NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import GPU_PARTS
from nodesmith.model.karpenter.ownership import claim_tags, instance_tags
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import ClusterInfo, Image, NodeClassStatus, Subnet

MAX_OVERRIDES = 60
"""The most types × zones in one request: enough for EC2 to find a deep pool, few enough for its request limits."""


@dataclass(frozen=True, slots=True)
class Templates:
    """What most claims of one decision share.

    `made` are templates by their inputs, `images` are images by NodeClass and type, `taken` counts addresses by subnet,
    and `last` counts those of the node that was planned last.
    """

    made: dict[tuple[object, ...], LaunchTemplate] = field(default_factory=dict)
    images: dict[tuple[str, str], Image | None] = field(default_factory=dict)
    taken: Counter[str] = field(default_factory=Counter)
    last: Counter[str] = field(default_factory=Counter)

    def takes_again(self, status: NodeClassStatus, taken: Mapping[str, int]) -> bool:
        """Count one more node that takes these addresses.

        Return False if a subnet has too few left and another one of its zone has more.
        """
        if any(s.free_ips - self.taken[s.id] < taken[s.id] for s in status.subnets if s.id in taken):
            by_zone = subnet_by_zone(status.subnets, self.taken)
            for subnet in status.subnets:
                is_short = subnet.id in taken and subnet.free_ips - self.taken[subnet.id] < taken[subnet.id]
                if is_short and by_zone[subnet.zone].id != subnet.id:
                    return False
        for subnet_id, number in taken.items():
            self.taken[subnet_id] += number
        return True


def launch_plan(
    claim: NodeClaim,
    options: Sequence[tuple[InstanceType, Offering]],
    nodeclass: EC2NodeClass,
    status: NodeClassStatus,
    cluster: ClusterInfo,
    cache: Templates | None = None,
) -> tuple[LaunchRequest, tuple[LaunchTemplate, ...]]:
    """Return the CreateFleet request of one claim, and the templates (ordered by name) that it refers to.

    `cache` is shared by the claims of one decision. `options` have one capacity type. Those in a zone without a subnet,
    or of a type that no image boots, are left out. Raises Rejected if none is left, and ValueError if the capacity
    types differ.
    """
    capacity_type = _capacity_type(claim, options)
    cache = cache or Templates()
    templates: dict[Build, LaunchTemplate] = {}
    overrides: list[Override] = []
    dedicated = needs_dedicated_tenancy(claim)
    suitable = [option for option in options if option[1].has_tenancy(dedicated=dedicated)]
    ways = list(islice(_ways(suitable, status, cache), MAX_OVERRIDES))
    reserved = reservation_kind(ways[0][1].reservation, status) if ways else ""
    for kind, offering, image, subnet in ways:
        if reservation_kind(offering.reservation, status) != reserved:
            continue  # a fleet has one kind of reservation: that of the cheapest option
        efa = kind.capacity.of(EFA) if claim.requests.of(EFA) else 0
        first_card = first_efa_card(kind.name) if efa else 0
        build = Build(image.id, kind.capacity.pods, efa, offering.reservation, first_card)
        template = templates.get(build)
        if template is None:
            same = (nodeclass.name, capacity_type, build, *template_identity(claim))
            if same not in cache.made:
                cache.made[same] = launch_template(claim, capacity_type, build, nodeclass, status, cluster)
            template = templates[build] = cache.made[same]
        price, estimated = offering.price_hourly_usd, offering.estimated
        overlaid = offering.overlay, offering.listed_hourly_usd, offering.commitment
        overrides.append(
            Override(template.name, kind.name, offering.zone, subnet.id, price, estimated, *overlaid)
        )
    if not overrides:
        raise Rejected(_nothing_left(claim, options, status))
    tags = instance_tags(claim, nodeclass, cluster.name)
    _take(cache, overrides, {kind.name: addresses(kind.capacity.pods, cluster) for kind, *_ in ways})
    by_name = {template.name: template for template in templates.values()}
    group = status.placement_group.id if status.placement_group else ""
    context = _context(claim, nodeclass)
    request = LaunchRequest(
        claim.name, capacity_type, tuple(overrides), tags, reserved, group=group, context=context
    )
    return request, tuple(by_name[name] for name in sorted(by_name))


def as_launched(claim: NodeClaim, nodeclass: EC2NodeClass) -> NodeClaim:
    """Return a claim that promises EFA only if its instance will have such interfaces.

    They are launched if its pods ask for EFA or if the NodeClass lists its interfaces, as in Karpenter.
    """
    if claim.requests.of(EFA) or nodeclass.network_interfaces:
        return claim
    return replace(claim, capacity=without_efa(claim.capacity), allocatable=without_efa(claim.allocatable))


def _context(claim: NodeClaim, nodeclass: EC2NodeClass) -> str:
    """Return the fleet's Context. As in Karpenter, a claim whose minValues were relaxed has none."""
    return "" if claim.annotations.get(MIN_VALUES_RELAXED) == "true" else nodeclass.context


def _capacity_type(claim: NodeClaim, options: Sequence[tuple[InstanceType, Offering]]) -> str:
    capacity_types = {offering.capacity_type for _, offering in options} | (
        {claim.capacity_type} if claim.capacity_type else set()
    )
    if len(capacity_types) != 1:
        raise ValueError(
            f"NodeClaim {claim.name}: one capacity type expected, found {sorted(capacity_types)}"
        )
    return capacity_types.pop()


def _ways(
    options: Iterable[tuple[InstanceType, Offering]],
    status: NodeClassStatus,
    cache: Templates,
) -> Iterator[tuple[InstanceType, Offering, Image, Subnet]]:
    """Yield each type and zone that can be launched, once, in order of cost, type and zone."""
    images = cache.images
    subnets = subnet_by_zone(status.subnets, cache.taken)
    seen: set[tuple[str, str]] = set()
    for kind, offering in sorted(options, key=lambda o: (*o[1].costs, o[0].name, o[1].zone)):
        booting = status.name, kind.name
        if booting not in images:
            images[booting] = image_for(kind, status.images)
        image, subnet = images[booting], subnets.get(offering.zone)
        if image and subnet and (kind.name, offering.zone) not in seen:
            seen.add((kind.name, offering.zone))
            yield kind, offering, image, subnet


def _take(cache: Templates, overrides: Sequence[Override], taken: Mapping[str, int]) -> None:
    """Count the addresses that a node takes: in each subnet as many as its smallest type there."""
    cache.last.clear()
    for row in overrides:
        least = min(taken[row.instance_type], cache.last.get(row.subnet_id, taken[row.instance_type]))
        cache.last[row.subnet_id] = least
    cache.taken.update(cache.last)


def _nothing_left(
    claim: NodeClaim, options: Sequence[tuple[InstanceType, Offering]], status: NodeClassStatus
) -> str:
    zones = ", ".join(sorted({offering.zone for _, offering in options}))
    types = ", ".join(sorted({kind.name for kind, _ in options})[:5])
    missing = f"EC2NodeClass {status.name} has no subnet in {zones}"
    if not any(image_for(kind, status.images) for kind, _ in options):
        missing = f"no image of EC2NodeClass {status.name} boots on {types}"
    elif not any(offering.has_tenancy(dedicated=needs_dedicated_tenancy(claim)) for _, offering in options):
        missing = f"{types} in {zones} are not sold on dedicated hardware"
    return f"NodeClaim {claim.name}: nothing can be launched: {missing}"


def usable(status: NodeClassStatus, ledger: Ledger, now: datetime) -> NodeClassStatus:
    """Return the status with the subnets that launches can use now.

    Subnets in back-off, and those of zones that the cluster is shifted away from, are left out. If a zone has several
    subnets, the addresses that claims have taken since the subnets were resolved, or may still take, are subtracted.
    """
    backing_off = {id_ for id_, backoff in ledger.subnet_backoffs.items() if backoff.holds(now)}
    away = ledger.shifted(now)
    subnets = tuple(s for s in status.subnets if s.id not in backing_off and s.zone not in away)
    if len({subnet.zone for subnet in subnets}) < len(subnets):
        taken = _addresses_taken(status, ledger)
        subnets = tuple(
            replace(subnet, free_ips=subnet.free_ips - taken[subnet.id]) if subnet.id in taken else subnet
            for subnet in subnets
        )
    return status if subnets == status.subnets else replace(status, subnets=subnets)


def addresses(pods: int, cluster: ClusterInfo | None) -> int:
    """Return how many addresses of its subnet a node with room for this many pods is expected to take."""
    return 1 if cluster is not None and cluster.ip_family == "ipv6" else pods


def subnet_by_zone(subnets: Iterable[Subnet], taken: Mapping[str, int] | None = None) -> dict[str, Subnet]:
    """Return, for each zone, the subnet with the most free addresses, less those `taken`; ties are broken by id."""
    used = taken or {}
    by_zone: dict[str, Subnet] = {}
    for subnet in sorted(subnets, key=lambda s: (used.get(s.id, 0) - s.free_ips, s.id)):
        by_zone.setdefault(subnet.zone, subnet)
    return by_zone


def _addresses_taken(status: NodeClassStatus, ledger: Ledger) -> Counter[str]:
    taken: Counter[str] = Counter()
    for claim in ledger.claims:
        if claim.launched_at and claim.launched_at > status.resolved_at:
            taken[claim.subnet_id] += addresses(claim.capacity.pods, ledger.cluster)
        elif claim.phase is Phase.PENDING and claim.launch.get("overrides"):
            rows = LaunchRequest.from_item(claim.name, claim.launch).overrides
            number = addresses(claim.capacity.pods, ledger.cluster)
            taken.update(dict.fromkeys({row.subnet_id for row in rows}, number))
    return taken


def shared(requests: Sequence[LaunchRequest]) -> list[LaunchRequest]:
    """Return the requests in their order, equal ones with their share of a fleet.

    A request without an equal one keeps its own call. So does each request for a capacity block, because the offer of a
    block is for one purchase.
    """
    alike: dict[object, list[str]] = {}
    # Hashing overrides is slow, and nodes that are planned alike share the same tuple, so each tuple is hashed once.
    group_numbers: dict[tuple[Override, ...], int] = {}
    numbers: dict[int, int] = {}
    for request in requests:
        rows = request.overrides
        if id(rows) not in numbers:
            numbers[id(rows)] = group_numbers.setdefault(rows, len(group_numbers))
        alike.setdefault((numbers[id(rows)], _kind(request)), []).append(request.claim)
    shares = {claim: share for claims in alike.values() for claim, share in _shares(sorted(claims))}
    return [replace(request, share=shares.get(request.claim)) for request in requests]


def matched(share: FleetShare, instances: Sequence[Instance]) -> Instance | None:
    """Return the claim's instance among those that the fleet launched, None if there are too few.

    `instances` must be the complete result of the call: from a part, claims could get each other's instances.
    """
    ordered = sorted(instances, key=lambda instance: instance.id)
    return ordered[share.index] if share.index < len(ordered) else None


def _kind(request: LaunchRequest) -> object:
    if request.reservations == "capacity-block":
        return request.claim
    own_tags = claim_tags(request.claim, request.tags)
    common = tuple(sorted((key, value) for key, value in request.tags.items() if key not in own_tags))
    return request.capacity_type, common, request.reservations, tuple(own_tags), request.context


def _shares(claims: Sequence[str]) -> list[tuple[str, FleetShare]]:
    if len(claims) < 2:
        return []
    fleet = hashlib.sha256("\n".join(claims).encode()).hexdigest()[:20]
    return [(claim, FleetShare(fleet, index, len(claims))) for index, claim in enumerate(claims)]


def launched_claim(
    claim: NodeClaim, instance: Instance, kind: InstanceType | None, now: datetime
) -> NodeClaim:
    """Return the claim with what is known once its instance exists. The claim's own labels override the type's.

    If the instance does not carry the claim's own tags yet, the claim lists those to write.
    """
    parts = read_gpu_parts(claim.annotations.get(GPU_PARTS, "")) if kind else None
    kind = with_parts(kind, parts) if kind and parts else kind
    offered = _offering_of(instance, kind)
    offering = {
        labels.INSTANCE_TYPE: instance.instance_type,
        labels.ZONE: instance.zone,
        labels.CAPACITY_TYPE: instance.capacity_type,
        labels.EKS_CAPACITY_TYPE: labels.EKS_CAPACITY_TYPES[instance.capacity_type],
    }
    if offered is not None and offered.zone_id:
        offering[labels.ZONE_ID] = offered.zone_id
    type_labels = kind.labels if kind else {}
    capacity, allocatable = _room(claim, kind)
    return replace(
        claim.on(instance).advanced(Phase.LAUNCHED, now).waiting(*NOT_REGISTERED),
        price_hourly_usd=_price(claim, instance, offered),
        capacity=capacity,
        allocatable=allocatable,
        labels={**type_labels, labels.TENANCY: tenancy(claim.requirements), **claim.labels, **offering},
        launch=_untagged(claim, instance),
    )


def _room(claim: NodeClaim, kind: InstanceType | None) -> tuple[Resources, Resources]:
    """Return capacity and allocatable of the launched type, without EFA unless the claim promises it."""
    if kind is None:
        return claim.capacity, claim.allocatable
    if claim.capacity.of(EFA):
        return kind.capacity, kind.allocatable
    return without_efa(kind.capacity), without_efa(kind.allocatable)


def _untagged(claim: NodeClaim, instance: Instance) -> FrozenMap[object]:
    tags = claim.launch.get("tags")
    if instance.claim == claim.name or not isinstance(tags, Mapping):
        return FrozenMap()
    return FrozenMap({TAGS_DUE: claim_tags(claim.name, tags)})


def _offering_of(instance: Instance, kind: InstanceType | None) -> Offering | None:
    key = instance.zone, instance.capacity_type
    offerings = kind.offerings if kind else ()
    return next((o for o in offerings if (o.zone, o.capacity_type) == key), None)


def _price(claim: NodeClaim, instance: Instance, offering: Offering | None) -> float:
    """Return AWS's price at which the instance's offering was requested: limits in dollars were compared with it.

    The claim's own price is that of the cheapest offering.
    """
    is_planned = claim.launch.get("overrides") and instance.capacity_type != labels.RESERVED
    key = instance.instance_type, instance.zone
    overrides = LaunchRequest.from_item(claim.name, claim.launch).overrides if is_planned else ()
    prices = (o.paid_hourly_usd for o in overrides if (o.instance_type, o.zone) == key)
    return next(prices, offering.paid_hourly_usd if offering else claim.price_hourly_usd)
