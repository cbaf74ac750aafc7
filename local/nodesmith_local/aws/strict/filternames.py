"""Filters of EC2's describe calls, checked against the names in each operation's documentation.

EC2 refuses an unknown filter. The service model has the names only in its documentation strings, as a list of
`<code>name</code> - meaning`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from html import unescape

from moto.core.utils import get_service_model

from nodesmith_local.aws.strict.refusals import AwsRequest, Refusal

_NAMED = re.compile(r"<li>\s*<p>\s*<code>(.*?)</code>")
_BY_TAG = frozenset({"tag", "tag:<key>", "tag-key"})
UNDOCUMENTED: Mapping[str, frozenset[str]] = {
    # Karpenter's AWS provider uses these (pkg/providers/capacityreservation), and EC2 accepts them.
    "DescribeCapacityReservations": _BY_TAG,
}
"""Names that EC2 accepts but does not list."""


def check_filters(request: AwsRequest) -> None:
    """Raise Refusal for a filter that the operation does not have."""
    filters = request.parameters.get("Filters")
    if request.service != "ec2" or not filters:
        return
    documented = documented_filters(request.operation)
    for filter_ in filters:
        name = str(filter_.get("Name", ""))
        if name not in documented and not (name.startswith("tag:") and documented & _BY_TAG):
            raise Refusal("InvalidParameterValue", f"The filter '{name}' is invalid")


@cache
def documented_filters(operation: str) -> frozenset[str]:
    """Return the filters of an EC2 operation; `tag:<key>` stands for any tag."""
    shape = get_service_model("ec2").operation_model(operation).input_shape
    text = shape.members["Filters"].documentation if shape else ""
    return frozenset(map(unescape, _NAMED.findall(text))) | UNDOCUMENTED.get(operation, frozenset())
