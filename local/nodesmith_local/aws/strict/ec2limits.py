"""EC2's limits on tags, ids, pages, filters and launch templates."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nodesmith_local.aws.strict import servicelimits as limits
from nodesmith_local.aws.strict.fleetlimits import check_fleet, check_token
from nodesmith_local.aws.strict.refusals import AwsRequest, Refusal, require
from nodesmith_local.aws.strict.volumelimits import check_volumes

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


def check_ec2(request: AwsRequest) -> None:
    """Raise Refusal for an EC2 request that exceeds a limit."""
    if request.service != "ec2":
        return
    asked, operation = request.parameters, request.operation
    if operation in _IDS:
        require(_IDS[operation], len(asked.get("InstanceIds") or ()), "InstanceIds")
    _check_page(operation, asked)
    _check_filters(asked.get("Filters") or ())
    for specification in asked.get("TagSpecifications") or ():
        check_tags(specification.get("Tags") or ())
    more = _BY_OPERATION.get(operation)
    if more:
        more(asked)


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


def _check_page(operation: str, asked: Parameters) -> None:
    results = asked.get("MaxResults")
    if results is None:
        return
    if operation in _WITH_PAGES_OF_AT_LEAST_5:
        require(limits.PAGE, int(results), "MaxResults")
    ids = _NO_PAGES_OF.get(operation, "")
    if ids and asked.get(ids):
        raise Refusal("InvalidParameterCombination", f"{ids} cannot be used with the parameter maxResults")


def _check_filters(filters: Sequence[Parameters]) -> None:
    values = [str(value) for each in filters for value in each.get("Values") or ()]
    require(limits.FILTERS, len(filters), "Filters")
    require(limits.FILTER_VALUES, len(values), "Filter values of the call")
    require(limits.FILTER_VALUE, max(map(len, values), default=0), "Filter value")


def _check_template(asked: Parameters) -> None:
    name, data = str(asked.get("LaunchTemplateName", "")), asked.get("LaunchTemplateData") or {}
    check_token(limits.TEMPLATE_CLIENT_TOKEN, asked)
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


def _check_new_tags(asked: Parameters) -> None:
    require(limits.TAGGED_RESOURCES, len(asked.get("Resources") or ()), "Resources")
    check_tags(asked.get("Tags") or ())


def groups_of(data: Parameters) -> Iterator[Sequence[str]]:
    """Return the security groups of each network interface that this launch data creates."""
    yield data.get("SecurityGroupIds") or ()
    for interface in data.get("NetworkInterfaces") or ():
        yield interface.get("Groups") or ()


_BY_OPERATION: Mapping[str, Callable[[Parameters], None]] = {
    "CreateFleet": check_fleet,
    "CreateLaunchTemplate": _check_template,
    "CreateTags": _check_new_tags,
}
