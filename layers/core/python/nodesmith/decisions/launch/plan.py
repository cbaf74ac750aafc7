"""The CreateFleet request of one claim: its instance types, subnets and launch templates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from nodesmith.decisions.launch.subnets import addresses, subnet_by_zone
from nodesmith.decisions.launch.templates import (
    Build,
    launch_template,
    reservation_kind,
    template_identity,
)
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.labels import MIN_VALUES_RELAXED
from nodesmith.model.ec2.capacity import EFA, without_efa
from nodesmith.model.ec2.catalog import Offering
from nodesmith.model.ec2.instancetypes import InstanceType, image_for
from nodesmith.model.ec2.launches import LaunchRequest, LaunchTemplate, Override
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.ownership import instance_tags
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

    def takes_again(self, status: NodeClassStatus) -> bool:
        """Count one more node like the last; return False if its subnet is full and another one of the zone is not."""
        by_zone = subnet_by_zone(status.subnets, self.taken)
        for subnet in status.subnets:
            is_short = subnet.free_ips - self.taken[subnet.id] < self.last[subnet.id]
            if subnet.id in self.last and is_short and by_zone[subnet.zone].id != subnet.id:
                return False
        self.taken.update(self.last)
        return True


def launch_plan(
    claim: NodeClaim,
    options: Sequence[tuple[InstanceType, Offering]],
    nodeclass: EC2NodeClass,
    status: NodeClassStatus,
    cluster: ClusterInfo,
    known: Templates | None = None,
) -> tuple[LaunchRequest, tuple[LaunchTemplate, ...]]:
    """Return the CreateFleet request of one claim, and the templates (ordered by name) that it refers to.

    `known` is shared by the claims of one decision. `options` have one capacity type. Those in a zone without a subnet,
    or of a type that no image boots, are left out. Raises Rejected if none is left, and ValueError if the capacity
    types differ.
    """
    capacity_type = _capacity_type(claim, options)
    known = known or Templates()
    templates: dict[Build, LaunchTemplate] = {}
    overrides: list[Override] = []
    ways = list(islice(_ways(options, status, known), MAX_OVERRIDES))
    reserved = reservation_kind(ways[0][1].reservation, status) if ways else ""
    for kind, offering, image, subnet in ways:
        if reservation_kind(offering.reservation, status) != reserved:
            continue  # a fleet has one kind of reservation: that of the cheapest option
        efa = kind.capacity.of(EFA) if claim.requests.of(EFA) else 0
        build = Build(image.id, kind.capacity.pods, efa, offering.reservation)
        template = templates.get(build)
        if template is None:
            same = (nodeclass.name, capacity_type, build, *template_identity(claim))
            if same not in known.made:
                known.made[same] = launch_template(claim, capacity_type, build, nodeclass, status, cluster)
            template = templates[build] = known.made[same]
        price, estimated = offering.price_hourly_usd, offering.estimated
        overrides.append(Override(template.name, kind.name, offering.zone, subnet.id, price, estimated))
    if not overrides:
        raise Rejected(_nothing_left(claim, options, status))
    tags = instance_tags(claim, nodeclass, cluster.name)
    _take(known, overrides, {kind.name: addresses(kind.capacity.pods, cluster) for kind, *_ in ways})
    used = {template.name: template for template in templates.values()}
    group = status.placement_group.id if status.placement_group else ""
    context = _context(claim, nodeclass)
    request = LaunchRequest(
        claim.name, capacity_type, tuple(overrides), tags, reserved, group=group, context=context
    )
    return request, tuple(used[name] for name in sorted(used))


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
    found = {offering.capacity_type for _, offering in options} | (
        {claim.capacity_type} if claim.capacity_type else set()
    )
    if len(found) != 1:
        raise ValueError(f"NodeClaim {claim.name}: one capacity type expected, found {sorted(found)}")
    return found.pop()


def _ways(
    options: Iterable[tuple[InstanceType, Offering]],
    status: NodeClassStatus,
    known: Templates,
) -> Iterator[tuple[InstanceType, Offering, Image, Subnet]]:
    """Yield each type and zone that can be launched, once, in order of cost, type and zone."""
    images = known.images
    subnets = subnet_by_zone(status.subnets, known.taken)
    seen: set[tuple[str, str]] = set()
    for kind, offering in sorted(options, key=lambda o: (o[1].cost_hourly_usd, o[0].name, o[1].zone)):
        booting = status.name, kind.name
        if booting not in images:
            images[booting] = image_for(kind, status.images)
        image, subnet = images[booting], subnets.get(offering.zone)
        if image and subnet and (kind.name, offering.zone) not in seen:
            seen.add((kind.name, offering.zone))
            yield kind, offering, image, subnet


def _take(known: Templates, overrides: Sequence[Override], taken: Mapping[str, int]) -> None:
    """Count the addresses that a node takes: in each subnet as many as its smallest type there."""
    known.last.clear()
    for row in overrides:
        least = min(taken[row.instance_type], known.last.get(row.subnet_id, taken[row.instance_type]))
        known.last[row.subnet_id] = least
    known.taken.update(known.last)


def _nothing_left(
    claim: NodeClaim, options: Sequence[tuple[InstanceType, Offering]], status: NodeClassStatus
) -> str:
    zones = ", ".join(sorted({offering.zone for _, offering in options}))
    types = ", ".join(sorted({kind.name for kind, _ in options})[:5])
    missing = f"EC2NodeClass {status.name} has no subnet in {zones}"
    if not any(image_for(kind, status.images) for kind, _ in options):
        missing = f"no image of EC2NodeClass {status.name} boots on {types}"
    return f"NodeClaim {claim.name}: nothing can be launched: {missing}"
