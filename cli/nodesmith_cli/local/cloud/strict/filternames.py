"""Filters of EC2's describe calls, held against the names that each operation's documentation lists.

EC2 refuses a filter it does not know. The service model has the names in its documentation strings only, as a list of
`<code>name</code> - meaning`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from html import unescape

from moto.core.utils import get_service_model

from nodesmith_cli.local.cloud.strict.refusals import AwsRequest, Refusal

_NAMED = re.compile(r"<li>\s*<p>\s*<code>(.*?)</code>")
_BY_TAG = frozenset({"tag", "tag:<key>", "tag-key"})
UNDOCUMENTED: Mapping[str, frozenset[str]] = {
    # Karpenter's AWS provider asks so (pkg/providers/capacityreservation), and EC2 answers.
    "DescribeCapacityReservations": _BY_TAG,
}
"""Names that EC2 takes without listing them."""


def check_filters(request: AwsRequest) -> None:
    """Raise Refusal for a filter that the operation does not have."""
    filters = request.parameters.get("Filters")
    if request.service != "ec2" or not filters:
        return
    known = documented_filters(request.operation)
    for each in filters:
        name = str(each.get("Name", ""))
        if name not in known and not (name.startswith("tag:") and known & _BY_TAG):
            raise Refusal("InvalidParameterValue", f"The filter '{name}' is invalid")


@cache
def documented_filters(operation: str) -> frozenset[str]:
    """Return the filters of an EC2 operation: `tag:<key>` stands for any tag."""
    shape = get_service_model("ec2").operation_model(operation).input_shape
    text = shape.members["Filters"].documentation if shape else ""
    return frozenset(map(unescape, _NAMED.findall(text))) | UNDOCUMENTED.get(operation, frozenset())
