"""EC2's limits on tags, ids, pages, filters, launch templates with their volumes, and fleets.

CreateFleet is checked for sizes, and for parameters that depend on the type of fleet and of capacity. Sources of the
limits on volumes: EbsBlockDevice in EC2's API model; Amazon EBS volume types, EBS User Guide.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nodesmith_local.aws.strict import servicelimits as limits
from nodesmith_local.aws.strict.refusals import AwsRequest, Refusal, require

Parameters = Mapping[str, Any]
_TEMPLATE_NAME = re.compile(r"[a-zA-Z0-9().\-/_]+")
_RESERVED = "aws:"
_WITH_PAGES_OF_AT_LEAST_5 = frozenset(
    "DescribeInstances DescribeInstanceStatus DescribeSpotInstanceRequests DescribeVolumes DescribeSubnets "
    "DescribeSecurityGroups DescribeNetworkInterfaces DescribeSpotPriceHistory DescribeTags".split()
)
_NO_PAGES_OF = {"DescribeInstances": "InstanceIds", "DescribeInstanceStatus": "InstanceIds"}
_IDS = {
    "TerminateInstances": limits.TERMINATED_IDS,
    "DescribeInstances": limits.DESCRIBED_IDS,
    "DescribeInstanceStatus": limits.STATUS_IDS,
}
_ONLY_INSTANT = {
    "SpotOptions": ("SingleInstanceType", "SingleAvailabilityZone", "MinTargetCapacity"),
    "OnDemandOptions": (
        "SingleInstanceType",
        "SingleAvailabilityZone",
        "MinTargetCapacity",
        "CapacityReservationOptions",
    ),
}
_ONLY_MAINTAIN = ("ExcessCapacityTerminationPolicy", "ReplaceUnhealthyInstances")
_TAGGED = {
    "instant": frozenset({"fleet", "instance", "volume", "network-interface"}),
    "request": frozenset({"fleet"}),
    "maintain": frozenset({"fleet"}),
}
_GIB = {
    "gp2": range(1, 16_385),
    "gp3": range(1, 65_537),
    "io1": range(4, 16_385),
    "io2": range(4, 65_537),
    "sc1": range(125, 16_385),
    "st1": range(125, 16_385),
    "standard": range(1, 1025),
}
_IOPS = {"gp3": range(3000, 80_001), "io1": range(100, 64_001), "io2": range(100, 256_001)}
_IOPS_PER_GIB = {"gp3": 500, "io1": 50, "io2": 1000}
_GP3 = {"VolumeSize": limits.GP3_SIZE, "Iops": limits.GP3_IOPS, "Throughput": limits.GP3_THROUGHPUT}
_MIB_PER_1000_IOPS = 250
_VALUE, _COMBINATION = "InvalidParameterValue", "InvalidParameterCombination"


def check_ec2(request: AwsRequest) -> None:
    """Raise Refusal for an EC2 request that exceeds a limit."""
    if request.service != "ec2":
        return
    parameters, operation = request.parameters, request.operation
    if operation in _IDS:
        require(_IDS[operation], len(parameters.get("InstanceIds") or ()), "InstanceIds")
    _check_page(operation, parameters)
    _check_filters(parameters.get("Filters") or ())
    for specification in parameters.get("TagSpecifications") or ():
        check_tags(specification.get("Tags") or ())
    operation_check = _BY_OPERATION.get(operation)
    if operation_check:
        operation_check(parameters)


def check_tags(tags: Sequence[Parameters]) -> None:
    """Raise Refusal for tags that EC2 does not accept."""
    require(limits.TAGS, len(tags), "Tags")
    keys = [str(tag.get("Key", "")) for tag in tags]
    for key, value in zip(keys, (str(tag.get("Value") or "") for tag in tags), strict=True):
        require(limits.TAG_KEY, len(key), f"Tag key {key[:20]!r}")
        require(limits.TAG_VALUE, len(value), f"Tag value of {key!r}")
    require(limits.RESERVED_TAGS, sum(key.lower().startswith(_RESERVED) for key in keys), "Tags under aws:")
    if len(set(keys)) < len(keys):
        raise Refusal("InvalidParameterValue", f"Duplicate tag key specified: {sorted(keys)}.")


def _check_page(operation: str, parameters: Parameters) -> None:
    results = parameters.get("MaxResults")
    if results is None:
        return
    if operation in _WITH_PAGES_OF_AT_LEAST_5:
        require(limits.PAGE, int(results), "MaxResults")
    ids = _NO_PAGES_OF.get(operation, "")
    if ids and parameters.get(ids):
        raise Refusal("InvalidParameterCombination", f"{ids} cannot be used with the parameter maxResults")


def _check_filters(filters: Sequence[Parameters]) -> None:
    values = [str(value) for filter_ in filters for value in filter_.get("Values") or ()]
    require(limits.FILTERS, len(filters), "Filters")
    require(limits.FILTER_VALUES, len(values), "Filter values of the call")
    require(limits.FILTER_VALUE, max(map(len, values), default=0), "Filter value")


def _check_template(parameters: Parameters) -> None:
    name, data = str(parameters.get("LaunchTemplateName", "")), parameters.get("LaunchTemplateData") or {}
    check_token(limits.TEMPLATE_CLIENT_TOKEN, parameters)
    require(limits.TEMPLATE_NAME, len(name), "LaunchTemplateName")
    if not _TEMPLATE_NAME.fullmatch(name):
        raise Refusal(limits.TEMPLATE_NAME.code, f"The launch template name {name!r} is invalid.")
    require(limits.USER_DATA, len(base64.b64decode(data.get("UserData") or "")), "User data is limited")
    for specification in data.get("TagSpecifications") or ():
        check_tags(specification.get("Tags") or ())
    check_volumes(data.get("BlockDeviceMappings") or ())
    hops = (data.get("MetadataOptions") or {}).get("HttpPutResponseHopLimit")
    if hops is not None:
        require(limits.HOP_LIMIT, int(hops), "HttpPutResponseHopLimit")


def _check_new_tags(parameters: Parameters) -> None:
    require(limits.TAGGED_RESOURCES, len(parameters.get("Resources") or ()), "Resources")
    check_tags(parameters.get("Tags") or ())


def groups_of(data: Parameters) -> Iterator[Sequence[str]]:
    """Return the security groups of each network interface that this launch data creates."""
    yield data.get("SecurityGroupIds") or ()
    for interface in data.get("NetworkInterfaces") or ():
        yield interface.get("Groups") or ()


def check_fleet(parameters: Parameters) -> None:
    """Raise Refusal for a CreateFleet request that EC2 does not accept."""
    kind = str(parameters.get("Type") or "maintain")
    configs = parameters.get("LaunchTemplateConfigs") or ()
    check_token(limits.CLIENT_TOKEN, parameters)
    if kind != "instant":
        overrides = sum(len(config.get("Overrides") or ()) for config in configs)
        require(limits.FLEET_OVERRIDES, overrides, "Overrides across all launch templates")
    for config in configs:
        _check_named(config.get("LaunchTemplateSpecification") or {})
    _check_target(parameters)
    _check_options(kind, parameters)
    for specification in parameters.get("TagSpecifications") or ():
        tagged = specification.get("ResourceType")
        if tagged not in _TAGGED[kind]:
            raise Refusal(
                "InvalidParameterValue", f"'{tagged}' is not a valid taggable resource type of {kind} fleets."
            )


def check_token(limit: limits.Limit, parameters: Parameters) -> None:
    """Raise Refusal for a client token that is too long or not ASCII."""
    token = str(parameters.get("ClientToken") or "")
    require(limit, len(token), "ClientToken")
    if not token.isascii():
        raise Refusal(limit.code, "ClientToken must be ASCII.")


def _check_named(template: Parameters) -> None:
    if ("LaunchTemplateId" in template) == ("LaunchTemplateName" in template):
        raise Refusal(
            "InvalidParameterCombination", "Name a launch template either by its id or by its name."
        )
    if not template.get("Version"):
        raise Refusal("MissingParameter", "You must specify a launch template version.")


def _check_target(parameters: Parameters) -> None:
    target = parameters["TargetCapacitySpecification"]
    require(limits.FLEET_TARGET, int(target["TotalTargetCapacity"]), "TotalTargetCapacity")
    parts = [target[part] for part in ("OnDemandTargetCapacity", "SpotTargetCapacity") if target.get(part)]
    if sum(map(int, parts)) > int(target["TotalTargetCapacity"]):
        raise Refusal("InvalidParameterValue", "The parts of the target capacity exceed TotalTargetCapacity.")


def _check_options(kind: str, parameters: Parameters) -> None:
    market = parameters["TargetCapacitySpecification"].get("DefaultTargetCapacityType")
    reserved = parameters.get("ReservedCapacityOptions")
    if market == "capacity-block" and (parameters.get("OnDemandOptions") or parameters.get("SpotOptions")):
        raise _combination("OnDemandOptions and SpotOptions", "DefaultTargetCapacityType capacity-block")
    if reserved and (market != "reserved-capacity" or kind != "instant"):
        raise _combination(
            "ReservedCapacityOptions", "anything but reserved-capacity in fleets of type instant"
        )
    if kind == "instant" and (parameters.get("SpotOptions") or {}).get("MaintenanceStrategies"):
        raise _combination("MaintenanceStrategies", "Type instant")
    if kind == "instant" and (parameters.get("ValidFrom") or parameters.get("ValidUntil")):
        raise _combination("ValidFrom and ValidUntil", "Type instant")
    if kind != "maintain" and any(parameters.get(name) for name in _ONLY_MAINTAIN):
        raise _combination(" and ".join(_ONLY_MAINTAIN), f"Type {kind}")
    if kind != "instant":
        for options, names in _ONLY_INSTANT.items():
            if any((parameters.get(options) or {}).get(name) for name in names):
                raise _combination(f"{', '.join(names)} of {options}", f"Type {kind}")


def _combination(parameter: str, other: str) -> Refusal:
    return Refusal("InvalidParameterCombination", f"{parameter} cannot be used with {other}.")


def check_volumes(mappings: Sequence[Mapping[str, Any]]) -> None:
    """Raise Refusal for block device mappings that EBS does not offer, or of which two have one name."""
    names = [str(mapping.get("DeviceName", "")) for mapping in mappings]
    if len(set(names)) < len(names):
        raise Refusal("InvalidBlockDeviceMapping", f"Duplicate device name in {sorted(names)}.")
    for mapping in mappings:
        volume = mapping.get("Ebs") or {}
        if any(int(volume.get(name, 1)) < 1 for name in ("Iops", "Throughput")):
            raise Refusal(_VALUE, "Iops and throughput must be positive.")
        if volume.get("VolumeType") in _GIB:
            _check(volume)


def _check(volume: Mapping[str, Any]) -> None:
    kind = volume["VolumeType"]
    size, iops, throughput = (
        None if volume.get(name) is None else int(volume[name])
        for name in ("VolumeSize", "Iops", "Throughput")
    )
    for name, limit in _GP3.items() if kind == "gp3" else ():
        if volume.get(name) is not None:
            require(limit, int(volume[name]), f"{name} of a gp3 volume")
    if size is not None and size not in _GIB[kind]:
        raise Refusal(_VALUE, f"Volume of size {size}GB is invalid for volume type {kind}.")
    if iops is None and kind in {"io1", "io2"}:
        raise Refusal("MissingParameter", f"The parameter iops is required for {kind} volumes.")
    if iops is not None:
        _check_iops(kind, size, iops)
    if throughput is None:
        return
    if kind != "gp3":
        raise Refusal(_COMBINATION, f"The parameter throughput is not supported for {kind} volumes.")
    if throughput * 1000 > (iops or 3000) * _MIB_PER_1000_IOPS:
        raise Refusal(_VALUE, f"Throughput to iops ratio of {throughput}/{iops or 3000} is too high.")


def _check_iops(kind: str, size: int | None, iops: int) -> None:
    if kind not in _IOPS:
        raise Refusal(_COMBINATION, f"The parameter iops is not supported for {kind} volumes.")
    if iops not in _IOPS[kind]:
        raise Refusal(_VALUE, f"Iops {iops} is invalid for volume type {kind}.")
    # The least that a volume has, 3,000 IOPS of gp3 and 100 of the others, is there at any size.
    if size is not None and iops > max(_IOPS[kind].start, size * _IOPS_PER_GIB[kind]):
        raise Refusal(_VALUE, f"Iops to volume size ratio of {iops}/{size} is too high for {kind}.")


_BY_OPERATION: Mapping[str, Callable[[Parameters], None]] = {
    "CreateFleet": check_fleet,
    "CreateLaunchTemplate": _check_template,
    "CreateTags": _check_new_tags,
}
