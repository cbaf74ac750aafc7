"""Resolution of an EC2NodeClass in this account, with conditions by Karpenter's types and reasons.

Dry runs check whether EC2 permits launches of its nodes. As in Karpenter, a launch template is created, and CreateFleet
and RunInstances are called with DryRun. A denial becomes a condition. Other errors say nothing about the EC2NodeClass,
because the region may not offer the instance type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from nodesmith.adapters.aws.calls import DENIED, error_code, error_message, transient_errors
from nodesmith.adapters.ec2.fleetcalls import fleet_request
from nodesmith.adapters.nodeclasses.images import deprecation_notice, images
from nodesmith.adapters.nodeclasses.selectedresources import (
    capacity_reservations,
    placement_group,
    security_groups,
    subnets,
)
from nodesmith.adapters.ownedresources import ensure_profile
from nodesmith.decisions.launch import launch_obstacle
from nodesmith.decisions.launch.templates import Build, launch_template
from nodesmith.errors import Rejected
from nodesmith.model.apimachinery.labels import ARCH, AWS_DOMAIN, INSTANCE_FAMILY, ON_DEMAND, TENANCY, ZONE
from nodesmith.model.apimachinery.problems import shortened
from nodesmith.model.apimachinery.requirements import Requirement, Requirements
from nodesmith.model.ec2.instancetypes import DEDICATED_TENANCY, image_for, instance_types, needs_dedicated
from nodesmith.model.ec2.launches import LaunchRequest, LaunchTemplate, Override
from nodesmith.model.karpenter.nodeclaims import NodeClaim, NodeClassRef, Phase
from nodesmith.model.karpenter.ownership import instance_tags, tag_list
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass, NodeConfiguration
from nodesmith.model.nodeclasses.status import (
    DEPENDENCIES_NOT_READY,
    ClusterInfo,
    Image,
    NodeClassStatus,
    StatusCondition,
    Unresolved,
)
from nodesmith.settings import DRY_RUN_NODEPOOL, Settings

T = TypeVar("T")
DryRun = Callable[[EC2NodeClass, NodeClassStatus, ClusterInfo], None]
VALIDATION = "ValidationSucceeded"


def resolve(
    client: Callable[[str], Any],
    settings: Settings,
    nodeclass: EC2NodeClass,
    cluster: ClusterInfo,
    now: datetime,
    dry_run: DryRun,
) -> NodeClassStatus:
    """Resolve a NodeClass to a status, which reports invalid fields as conditions. Raises Transient.

    `dry_run` raises Unresolved if EC2 denies a launch.
    """
    conditions: list[StatusCondition] = []

    def step(kind: str, find: Callable[[], T], message: str = "") -> T | None:
        result, condition = _attempt(kind, find, now, message)
        conditions.append(condition)
        return result

    terms = nodeclass.subnet_selector_terms, nodeclass.security_group_selector_terms
    image_list = step("AMIsReady", lambda: images(client, nodeclass.ami_selector_terms, cluster.version, now))
    conditions[-1] = replace(
        conditions[-1], message=conditions[-1].message or deprecation_notice(image_list or ())
    )
    vpc = settings.vpc_id
    nets = step("SubnetsReady", lambda: subnets(client("ec2"), terms[0], cluster.ip_family, vpc))
    if nets is not None:
        conditions[-1] = replace(conditions[-1], message=shortened(nets[1]))
    groups = step("SecurityGroupsReady", lambda: security_groups(client("ec2"), terms[1], vpc))
    with_role, role_message = _with_role(nodeclass, settings.default_node_role)
    profile = step("InstanceProfileReady", lambda: _profile(client, settings, with_role), role_message)
    notes: list[str] = []
    reservation_terms = nodeclass.capacity_reservation_selector_terms
    selector = nodeclass.placement_group_selector
    # Without a selector the conditions are True: merged into the status, they replace those of a removed selector.
    reserved = step(
        "CapacityReservationsReady",
        lambda: (
            capacity_reservations(client("ec2"), reservation_terms, now, notes) if reservation_terms else ()
        ),
    )
    if notes and reserved is not None:
        conditions[-1] = replace(conditions[-1], message=shortened("; ".join(notes)))
    group = step(
        "PlacementGroupReady",
        lambda: placement_group(client("ec2"), selector, nets[0] if nets else ()) if selector else None,
    )
    status = NodeClassStatus(
        nodeclass.name,
        nodeclass.generation,
        nodeclass.hash,
        now,
        nets[0] if nets else (),
        groups or (),
        image_list or (),
        profile or "",
        capacity_reservations=reserved or (),
        content=nodeclass.content,
        placement_group=group,
    )
    step(VALIDATION, lambda: _validate(with_role, status, cluster, conditions, dry_run))
    return replace(status, conditions=tuple(conditions))


def _attempt(
    kind: str, find: Callable[[], T], now: datetime, success_message: str
) -> tuple[T | None, StatusCondition]:
    try:
        with transient_errors(kind):
            return find(), StatusCondition(kind, "True", kind, success_message, now)
    except Unresolved as obstacle:
        return None, _failing(kind, obstacle.reason, obstacle.message, now)
    except (ClientError, ParamValidationError) as error:
        # AWS rejects a value of the NodeClass (such as a malformed owner) or denies a call. Users need to see either.
        code, call = error_code(error), getattr(error, "operation_name", "")
        message = f"{code}: {error_message(error)}"
        return None, _failing(kind, code or "AWSError", f"{call}: {message}" if call else message, now)


def _failing(kind: str, reason: str, message: str, now: datetime) -> StatusCondition:
    return StatusCondition(kind, "False", reason, shortened(message), now)


def _with_role(nodeclass: EC2NodeClass, default: str) -> tuple[EC2NodeClass, str]:
    """Return the NodeClass, with the default role if it names none, and the condition's message about that."""
    if nodeclass.role or nodeclass.instance_profile or not default:
        return nodeclass, ""
    return replace(
        nodeclass, role=default
    ), f"no role is named: nodes get the cluster's first node role, {default}"


def _profile(client: Callable[[str], Any], settings: Settings, nodeclass: EC2NodeClass) -> str:
    if nodeclass.instance_profile:
        return nodeclass.instance_profile
    if not nodeclass.role:
        raise Unresolved(
            "RoleNotFound", "no role is named and DEFAULT_NODE_ROLE is not set: set spec.instanceProfile"
        )
    if settings.isolated_vpc:
        raise Unresolved(
            "RoleNotAllowed",
            f"spec.role {nodeclass.role!r}: IAM cannot be reached from an isolated VPC: set spec.instanceProfile",
        )
    return ensure_profile(client("iam"), nodeclass, settings.cluster_name, settings.region)


def _validate(
    nodeclass: EC2NodeClass,
    status: NodeClassStatus,
    cluster: ClusterInfo,
    others: list[StatusCondition],
    dry_run: DryRun,
) -> bool:
    obstacle = launch_obstacle(nodeclass, cluster)
    if obstacle:
        raise Unresolved(obstacle.reason, obstacle.message)
    waiting = [condition.type for condition in others if condition.status != "True"]
    if waiting:
        raise Unresolved(DEPENDENCIES_NOT_READY, f"waiting for {', '.join(waiting)}")
    dry_run(nodeclass, status, cluster)
    return True


BELIEVED = timedelta(minutes=30)
"""How long a result is valid for an unchanged EC2NodeClass with an unchanged resolution, as in Karpenter."""
_TYPES = {"amd64": "m5.large", "arm64": "m6g.large"}
"""The instance types of dry runs by image architecture: Karpenter's fallbacks."""
_ACCELERATORS = (f"{AWS_DOMAIN}/instance-gpu-count", f"{AWS_DOMAIN}/instance-accelerator-count")
_MAX_PODS = 29
_FAMILIES, _MOST_TYPES = 2, 6
"""How many families are tried for a NodePool, and how many types in all, once EC2 has denied the usual type."""


class DryRuns:
    """Runs dry runs and caches the results: None if EC2 permits all calls, else the reason and the message."""

    def __init__(self, client: Callable[[str], Any], settings: Settings, now: Callable[[], datetime]) -> None:
        self._client = client
        self._cluster, self._region = settings.cluster_name, settings.region
        self._now = now
        self._results: dict[str, tuple[object, datetime, tuple[str, str] | None]] = {}

    def check(
        self,
        nodeclass: EC2NodeClass,
        status: NodeClassStatus,
        cluster: ClusterInfo,
        pools: Sequence[Requirements] = (),
    ) -> None:
        """Raise Unresolved if EC2 denies a call, or Transient if EC2 cannot be reached.

        `pools` are the requirements of the NodePools that use the NodeClass.
        """
        ids = (
            status.instance_profile,
            *(image.id for image in status.images),
            *(subnet.id for subnet in status.subnets),
            *(group.id for group in status.security_groups),
        )
        key = nodeclass.content, tuple(sorted(nodeclass.annotations.items())), ids, tuple(pools)
        cached = self._results.get(nodeclass.name)
        if cached is None or cached[0] != key or self._now() - cached[1] >= BELIEVED:
            cached = key, self._now(), self._denial(nodeclass, status, cluster, pools)
            self._results[nodeclass.name] = cached
        if cached[2] is not None:
            raise Unresolved(*cached[2])

    def _denial(
        self,
        nodeclass: EC2NodeClass,
        status: NodeClassStatus,
        cluster: ClusterInfo,
        pools: Sequence[Requirements],
    ) -> tuple[str, str] | None:
        """Try the usual type. If EC2 denies it, return None once EC2 permits a type that a NodePool may launch.

        Policies of organizations often permit certain instance types only, and NodePools are restricted to these.
        """
        image = next(filter(_needs_no_accelerator, status.images), status.images[0])
        architecture = image.requirements.get(ARCH)
        arch = next((a for a in _TYPES if architecture is None or architecture.allows(a)), "amd64")
        dedicated = bool(pools) and all(map(needs_dedicated, pools))
        attempt = partial(self._denial_of, nodeclass, status, cluster, dedicated)
        denied = attempt(image, _TYPES[arch])
        if denied is None:
            return None
        for image, type_ in _alternatives(pools, nodeclass, status, self._region):
            denied = attempt(image, type_)
            if denied is None:
                return None
        return denied

    def _denial_of(
        self,
        nodeclass: EC2NodeClass,
        status: NodeClassStatus,
        cluster: ClusterInfo,
        dedicated: bool,
        image: Image,
        type_: str,
    ) -> tuple[str, str] | None:
        """Return the reason and message of the first denial of a launch of this type, or None if nothing is denied."""
        claim = NodeClaim(
            f"{DRY_RUN_NODEPOOL}-{nodeclass.name}",
            DRY_RUN_NODEPOOL,
            NodeClassRef(nodeclass.name),
            self._now(),
            Phase.PENDING,
            self._now(),
            requirements=Requirements.from_labels({TENANCY: DEDICATED_TENANCY} if dedicated else {}),
        )
        build = Build(image.id, _MAX_PODS)
        template = launch_template(claim, ON_DEMAND, build, nodeclass, status, cluster)
        tags = instance_tags(claim, nodeclass, self._cluster)
        overrides = tuple(Override(template.name, type_, s.zone, s.id, 0.0) for s in status.subnets)
        ec2 = self._client("ec2")
        request = LaunchRequest(claim.name, ON_DEMAND, overrides, tags, context=nodeclass.context)
        fleet = fleet_request(request, self._cluster)
        del fleet["ClientToken"]  # a dry run must not use up the token
        return (
            _denied("CreateLaunchTemplate", lambda: _create(ec2, template))
            or _denied("CreateFleet", lambda: ec2.create_fleet(**fleet, DryRun=True))
            or self._runs(template, tags, overrides)
        )

    def _runs(
        self, template: LaunchTemplate, tags: Mapping[str, str], overrides: tuple[Override, ...]
    ) -> tuple[str, str] | None:
        """Try each subnet; return None once EC2 permits one, or else the first denial."""
        first: tuple[str, str] | None = None
        ec2 = self._client("ec2")
        for override in overrides:
            request = _run_request(template, tags, override)
            denied = _denied("RunInstances", partial(ec2.run_instances, **request))
            if denied is None:
                return None
            first = first or denied
        return first


def _alternatives(
    pools: Sequence[Requirements], nodeclass: EC2NodeClass, status: NodeClassStatus, region: str
) -> list[tuple[Image, str]]:
    """Return instance types that NodePools may launch, each with its image.

    They are the cheapest types of each NodePool, from several families. They come from the catalogue that ships with
    nodesmith; if it does not have the region, there are none.
    """
    from nodesmith.adapters.catalog.catalogs import embedded_catalog  # only after a denial

    try:
        types = instance_types(embedded_catalog(region), NodeConfiguration.of(nodeclass))
    except Rejected:
        return []
    zones = Requirements.of(Requirement(ZONE, frozenset(subnet.zone for subnet in status.subnets)))
    offered = [
        instance_type
        for instance_type in types
        if instance_type.offerings and instance_type.requirements.conflict(zones) is None
    ]
    offered.sort(key=lambda instance_type: (instance_type.offerings[0].price_hourly_usd, instance_type.name))
    images_by_type: dict[str, Image] = {}
    for requirements in pools:
        families, keys = set[str](), frozenset(requirements)  # a NodePool may name labels of its own
        for instance_type in offered:
            family = instance_type.labels[INSTANCE_FAMILY]
            if (
                family in families
                or instance_type.requirements.conflict(requirements, undefined=keys) is not None
            ):
                continue
            if (image := image_for(instance_type, status.images)) is not None:
                families.add(family)
                images_by_type.setdefault(instance_type.name, image)
            if len(families) == _FAMILIES:
                break
    return [(image, name) for name, image in islice(images_by_type.items(), _MOST_TYPES)]


def _needs_no_accelerator(image: Image) -> bool:
    """Return whether the types of dry runs, which have no accelerators, boot an image."""
    return all(
        image.requirements[key].tolerates_absence for key in _ACCELERATORS if key in image.requirements
    )


def _create(ec2: Any, template: LaunchTemplate) -> None:
    tags = [{"ResourceType": "launch-template", "Tags": tag_list(template.tags)}]
    ec2.create_launch_template(
        LaunchTemplateName=template.name, LaunchTemplateData=template.data, TagSpecifications=tags
    )


def _run_request(template: LaunchTemplate, tags: Mapping[str, str], override: Override) -> dict[str, Any]:
    interfaces = [
        {**interface, "SubnetId": override.subnet_id} for interface in template.data["NetworkInterfaces"]
    ]
    resource_types = ("instance", "volume", "network-interface")
    return {
        "DryRun": True,
        "MinCount": 1,
        "MaxCount": 1,
        "LaunchTemplate": {"LaunchTemplateName": template.name, "Version": "1"},
        "InstanceType": override.instance_type,
        "NetworkInterfaces": interfaces,
        "TagSpecifications": [
            {"ResourceType": resource_type, "Tags": tag_list(tags)} for resource_type in resource_types
        ],
    }


def _denied(action: str, call: Callable[[], object]) -> tuple[str, str] | None:
    """Return the condition's reason and message if EC2 denies a call. Raises Transient for temporary errors."""
    try:
        with transient_errors(f"ec2:{action} (dry run)"):
            call()
    except (ClientError, BotoCoreError) as error:
        if error_code(error) in DENIED:
            message = f"ec2:{action}: {error_code(error)}: {error_message(error)}"
            return f"{action}AuthCheckFailed", message
    return None
