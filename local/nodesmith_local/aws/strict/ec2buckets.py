"""Rate limits of EC2's API: token buckets of one account in one region.

Figures and actions: "Request throttling for the Amazon EC2 API", Amazon EC2 Developer Guide. An action takes one token
from its request bucket; those that run, start, stop or terminate instances also take a resource token each. That page
names no bucket for CreateFleet, so it counts as a mutating action, and its instances use RunInstances' resource bucket.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from nodesmith_local.aws.ratelimits import TokenBucket
from nodesmith_local.aws.strict.refusals import AwsRequest, Refusal


@dataclass(frozen=True, slots=True)
class Rate:
    """A bucket's maximum capacity, and the tokens that it gains a second."""

    burst: float
    refill_per_second: float


SOURCE = "Request throttling for the Amazon EC2 API, Amazon EC2 Developer Guide"
CODE = "RequestLimitExceeded"
NON_MUTATING, UNFILTERED, MUTATING, INTENSIVE = Rate(100, 20), Rate(50, 10), Rate(50, 5), Rate(50, 5)
UNCATEGORIZED: Mapping[str, Rate] = {
    "AssociateIamInstanceProfile": Rate(100, 5),
    "CreateLaunchTemplateVersion": Rate(100, 5),
    "CreateNetworkInterface": Rate(100, 5),
    "CreateTags": Rate(100, 10),
    "CreateVolume": Rate(100, 5),
    "DeleteNetworkInterface": Rate(100, 5),
    "DeleteTags": Rate(100, 10),
    "DeleteVolume": Rate(100, 5),
    "RunInstances": Rate(5, 2),
    "StartInstances": Rate(5, 2),
    "TerminateInstances": Rate(100, 5),
}
"""Actions with a bucket of their own, among those that are called here."""
RESOURCES: Mapping[str, Rate] = {
    "RunInstances": Rate(1000, 2),
    "StartInstances": Rate(1000, 2),
    "StopInstances": Rate(1000, 20),
    "TerminateInstances": Rate(1000, 20),
}
_UNFILTERED = frozenset(
    "DescribeInstances DescribeInstanceStatus DescribeNetworkInterfaces DescribeSecurityGroups DescribeSnapshots "
    "DescribeSpotInstanceRequests DescribeVolumes".split()
)
_INTENSIVE = frozenset(
    "AcceptVpcPeeringConnection AuthorizeSecurityGroupIngress CancelSpotInstanceRequests CreateKeyPair "
    "CreateVpcPeeringConnection DeleteVpcPeeringConnection RejectVpcPeeringConnection RevokeSecurityGroupIngress "
    "RequestSpotInstances".split()
)
_READING = ("Describe", "List", "Search", "Get")


def rate_of(request: AwsRequest) -> Rate:
    """Return the size of the request bucket that an EC2 call uses. Each action has its own bucket."""
    operation, parameters = request.operation, request.parameters
    if operation in UNCATEGORIZED:
        return UNCATEGORIZED[operation]
    if operation in _UNFILTERED and not (parameters.get("Filters") or parameters.get("MaxResults")):
        return UNFILTERED
    if operation.startswith(_READING):
        return NON_MUTATING
    return INTENSIVE if operation in _INTENSIVE else MUTATING


class Ec2Buckets:
    """The buckets of one account in one region, full at first. Threads may share it."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._buckets: dict[tuple[str, Rate], TokenBucket] = {}

    def check(self, request: AwsRequest) -> None:
        """Take the tokens of an EC2 call. Raises Refusal if a bucket holds too few."""
        if request.service != "ec2":
            return
        bucket = self.bucket(request.operation, rate_of(request))
        resource, count = _resources(request)
        if not bucket.take() or (
            count and not self.bucket(f"{resource}/resources", RESOURCES[resource]).take(count)
        ):
            raise Refusal(CODE, "Request limit exceeded.")

    def bucket(self, name: str, rate: Rate) -> TokenBucket:
        """Return the bucket with this name and rate; create it if it does not exist."""
        with self._lock:
            if (name, rate) not in self._buckets:
                self._buckets[name, rate] = TokenBucket(rate.burst, rate.refill_per_second, self._now)
            return self._buckets[name, rate]


def _resources(request: AwsRequest) -> tuple[str, int]:
    """Return the resource bucket that a call uses, and its number of tokens; ("", 0) for none."""
    parameters = request.parameters
    match request.operation:
        case "CreateFleet":
            return "RunInstances", int(parameters["TargetCapacitySpecification"]["TotalTargetCapacity"])
        case "RunInstances":
            return "RunInstances", int(parameters.get("MaxCount") or 1)
        case "StartInstances" | "StopInstances" | "TerminateInstances" as operation:
            return operation, len(parameters.get("InstanceIds") or ())
        case _:
            return "", 0
