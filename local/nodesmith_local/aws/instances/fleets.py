"""CreateFleet of type instant as EC2 does it, on moto's instances.

The simulation's pools are either empty or deep. So of the pools with capacity, the allocation strategies that nodesmith
uses choose the one with the lowest price, or with the highest priority if the request has priorities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from moto.ec2.models.instances import InstanceState, MetadataOptions
from moto.ec2.utils import random_fleet_id

from nodesmith.model.apimachinery.labels import SPOT
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith_local.aws.strict import placementgroups
from nodesmith_local.aws.strict.ec2limits import groups_of
from nodesmith_local.aws.strict.servicelimits import GROUPS_PER_INTERFACE


@dataclass(frozen=True, slots=True)
class Market:
    """The offerings of EC2 at one moment.

    `price` returns a pool's price, or None where it is not sold; `has_capacity` returns whether the pool has an
    instance left. `fault` is an error code that EC2 returns for every pool inside its answer, and `refusal` returns the
    error code for one pool; both are empty for none.
    """

    now: datetime
    price: Callable[[OfferingKey], float | None]
    has_capacity: Callable[[OfferingKey], bool]
    fault: str = ""
    refusal: Callable[[OfferingKey], str] = lambda pool: ""  # noqa: ARG005


@dataclass(frozen=True, slots=True)
class Candidate:
    """One override: its instance type and pool. `data` is the template's data merged with the override."""

    template: Mapping[str, Any]
    override: Mapping[str, Any]
    data: Mapping[str, Any]
    pool: OfferingKey
    price: float | None


def create_fleet(backend: Any, request: Mapping[str, Any], market: Market) -> dict[str, Any]:
    """Carry out a CreateFleet request and return its response. Raises moto's EC2 errors."""
    target = request["TargetCapacitySpecification"]
    capacity_type = target.get("DefaultTargetCapacityType") or "on-demand"
    errors: list[dict[str, Any]] = []
    candidates = [
        candidate
        for config in request["LaunchTemplateConfigs"]
        for candidate in _candidates(backend, config, capacity_type, market)
    ]
    candidates.sort(key=lambda c: (c.price is None, _priority(request, c), c.price or 0.0, c.pool))
    instances = []
    for _ in range(int(target["TotalTargetCapacity"])):
        launched = _first_launch(backend, request, candidates, market, errors)
        if launched is None:
            break
        instances.append(launched)
    return {"FleetId": random_fleet_id(), "Errors": errors, "Instances": instances}


def _priority(request: Mapping[str, Any], candidate: Candidate) -> float:
    """Return an override's priority, of which the lowest wins; 0 if the allocation strategy does not use them."""
    options = (request.get("OnDemandOptions") or {}, request.get("SpotOptions") or {})
    used = any(str(option.get("AllocationStrategy", "")).endswith("prioritized") for option in options)
    return float(candidate.override.get("Priority") or 0.0) if used else 0.0


def _candidates(
    backend: Any, config: Mapping[str, Any], capacity_type: str, market: Market
) -> Iterator[Candidate]:
    specification = config["LaunchTemplateSpecification"]
    if "LaunchTemplateId" in specification:
        template = backend.get_launch_template(template_id=specification["LaunchTemplateId"])
    else:
        template = backend.get_launch_template_by_name(name=specification["LaunchTemplateName"])
    version = template.get_version(specification.get("Version", "$Default"))
    response = {
        "LaunchTemplateId": template.id,
        "LaunchTemplateName": template.name,
        "Version": str(version.number),
    }
    for override in config.get("Overrides") or [{}]:
        data = {**version.data, **override}
        zone = backend.get_subnet(data["SubnetId"]).availability_zone
        pool = OfferingKey(capacity_type, data["InstanceType"], zone)
        yield Candidate(response, override, data, pool, market.price(pool))


def _first_launch(
    backend: Any,
    request: Mapping[str, Any],
    candidates: Sequence[Candidate],
    market: Market,
    errors: list[dict[str, Any]],
) -> dict[str, Any] | None:
    for candidate in candidates:
        pool, refusal = candidate.pool, _refusal(backend, candidate, market)
        if refusal:
            code, message = refusal
            errors.append(_error(candidate.template, candidate.override, pool.capacity_type, code, message))
            continue
        instance = _launch(backend, candidate, request.get("TagSpecifications") or ())
        instance.launch_time = market.now.replace(tzinfo=None)
        return {
            "LaunchTemplateAndOverrides": _override_item(candidate.template, candidate.override),
            "Lifecycle": pool.capacity_type,
            "InstanceIds": [instance.id],
            "InstanceType": pool.instance_type,
        }
    return None


def _refusal(backend: Any, candidate: Candidate, market: Market) -> tuple[str, str] | None:
    """Return EC2's error code and message if this override launches nothing, else None."""
    pool, profile = candidate.pool, _profile_name(candidate.data)
    zone_text = f"the Availability Zone you requested ({pool.zone})"
    if market.fault:
        return market.fault, "Failed on demand."
    if candidate.price is None:
        return "Unsupported", f"The instance type {pool.instance_type} is not supported in {zone_text}."
    if refused := market.refusal(pool):
        return refused, f"On demand, in {zone_text}."
    if not market.has_capacity(pool):
        return (
            "InsufficientInstanceCapacity",
            f"There is not sufficient {pool.instance_type} capacity in {zone_text}.",
        )
    placed = placementgroups.refusal(backend, candidate.data, pool.zone)
    if placed:
        return placed
    groups = max(map(len, groups_of(candidate.data)))
    if groups > GROUPS_PER_INTERFACE.maximum:
        return (
            GROUPS_PER_INTERFACE.code,
            f"You have exceeded the number of security groups per interface: {groups}.",
        )
    interfaces = candidate.data.get("NetworkInterfaces") or ()
    if len(interfaces) > 1 and any(interface.get("AssociatePublicIpAddress") for interface in interfaces):
        several = "when launching with multiple network interfaces"
        message = f"The associatePublicIPAddress parameter cannot be specified {several}."
        return "InvalidParameterCombination", message
    if not _has_ipv6(backend, candidate):
        return (
            "InvalidParameterValue",
            f"No IPv6 CIDR block is associated with subnet {candidate.data['SubnetId']}.",
        )
    if profile and not _profile_exists(backend, profile):
        detail = f"Value ({profile}) for parameter iamInstanceProfile.name is invalid."
        return "InvalidParameterValue", f"{detail} Invalid IAM Instance Profile name"
    return None


def _launch(backend: Any, candidate: Candidate, specifications: Sequence[Mapping[str, Any]]) -> Any:
    data, pool = candidate.data, candidate.pool
    tags = _tags(data.get("TagSpecifications") or ())
    for kind, kind_tags in _tags(specifications).items():
        tags[kind] = {**tags.get(kind, {}), **kind_tags}
    interface: Mapping[str, Any] = next(iter(data.get("NetworkInterfaces") or ()), {})
    reservation = backend.run_instances(
        data["ImageId"],
        1,
        data.get("UserData"),
        [],
        instance_type=pool.instance_type,
        is_instance_type_default=False,
        region_name=backend.region_name,
        subnet_id=data["SubnetId"],
        security_group_ids=list(interface.get("Groups") or data.get("SecurityGroupIds") or ()),
        associate_public_ip=interface.get("AssociatePublicIpAddress"),
        ipv6_address_count=int(interface.get("Ipv6AddressCount") or 0) or None,
        key_name=data.get("KeyName"),
        tags=tags,
        lifecycle=SPOT if pool.capacity_type == SPOT else None,
        monitoring_state="enabled" if (data.get("Monitoring") or {}).get("Enabled") else "disabled",
        **({"block_device_mappings": data["BlockDeviceMappings"]} if data.get("BlockDeviceMappings") else {}),
    )
    instance = reservation.instances[0]
    placementgroups.place(instance, data)
    instance.metadata_options = MetadataOptions(data.get("MetadataOptions"))
    instance.add_tags({"aws:ec2launchtemplate:id": candidate.template["LaunchTemplateId"]})
    # moto's instances run from the start; EC2's are pending until they are placed.
    instance._state = InstanceState("pending", 0)  # noqa: SLF001
    for nic in instance.nics.values():
        nic.add_tags(tags.get("network-interface", {}))
    profile = _profile_name(data)
    if profile:
        backend.associate_iam_instance_profile(instance_id=instance.id, iam_instance_profile_name=profile)
    return instance


def _has_ipv6(backend: Any, candidate: Candidate) -> bool:
    """Return whether the subnet has the IPv6 addresses that the interfaces ask for, if they ask for any."""
    data = candidate.data
    requests_ipv6 = any(
        interface.get("Ipv6AddressCount") for interface in data.get("NetworkInterfaces") or ()
    )
    return not requests_ipv6 or bool(backend.get_subnet(data["SubnetId"]).ipv6_cidr_block_associations)


def _profile_name(data: Mapping[str, Any]) -> str:
    return str((data.get("IamInstanceProfile") or {}).get("Name", ""))


def _profile_exists(backend: Any, name: str) -> bool:
    from moto.iam import iam_backends

    profiles = iam_backends[backend.account_id][backend.partition].instance_profiles
    return name in {profile.name for profile in profiles.values()}


def _tags(specifications: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    return {
        specification["ResourceType"]: {tag["Key"]: tag["Value"] for tag in specification.get("Tags") or ()}
        for specification in specifications
    }


def _error(
    template: Mapping[str, Any], override: Mapping[str, Any], capacity_type: str, code: str, message: str
) -> dict[str, Any]:
    return {
        "LaunchTemplateAndOverrides": _override_item(template, override),
        "Lifecycle": capacity_type,
        "ErrorCode": code,
        "ErrorMessage": message,
    }


def _override_item(template: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    # EC2 names a template by its id alone.
    template_reference = {
        key: template[key] for key in ("LaunchTemplateId", "Version") if key in template
    } or dict(template)
    return {"LaunchTemplateSpecification": template_reference, "Overrides": dict(override)}
