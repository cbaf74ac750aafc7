"""EC2: the Spot instances of all clusters of a region that it has marked to be taken."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from nodesmith.adapters.ec2.instances import where
from nodesmith.adapters.ec2.instancestatus import marked_requests
from nodesmith.model.karpenter.instancetags import MANAGED_BY_TAG

MOST = 5_000
"""How many marked instances are read at a time; those beyond are there a minute later."""


class Ec2MarkedInstances:
    """The MarkedInstances of a region. `ec2` gives a boto3 EC2 client: it takes time to make, and no event needs it."""

    def __init__(self, ec2: Callable[[], Any]) -> None:
        self._ec2 = ec2

    def ids(self) -> frozenset[str]:
        """Return the instances whose spot requests carry our tag and are marked. Raises Transient."""
        found = islice(marked_requests(self._ec2(), where("tag-key", MANAGED_BY_TAG)), MOST)
        return frozenset(request["InstanceId"] for request in found if request.get("InstanceId"))
