"""EC2: Spot instances of all clusters in a region that are marked for interruption."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from nodesmith.adapters.ec2.instances import where
from nodesmith.adapters.ec2.instancestatus import marked_requests
from nodesmith.model.karpenter.ownership import MANAGED_BY_TAG

MOST = 5_000
"""How many marked instances are read at a time. The rest are left for the next look, a minute later."""


class Ec2MarkedInstances:
    """The MarkedInstances of a region.

    `ec2` returns a boto3 EC2 client. It is called only on use, because a client is slow to create and events need none.
    """

    def __init__(self, ec2: Callable[[], Any]) -> None:
        self._ec2 = ec2

    def ids(self) -> frozenset[str]:
        """Return the ids of instances whose marked spot requests carry our tag. Raises Transient."""
        found = islice(marked_requests(self._ec2(), where("tag-key", MANAGED_BY_TAG)), MOST)
        return frozenset(request["InstanceId"] for request in found if request.get("InstanceId"))
