"""How a node is launched on EC2: the CreateFleet request of a NodeClaim, and the launch templates that it refers to.

The functions are pure: the same claim, offerings and NodeClass result in the same bytes, so that a retry sends EC2 the
same request. `fleets` chooses overrides and subnets, combines equal requests, and assigns their instances; `templates`
builds launch templates, `userdata` writes what an instance reads when it boots, and `validation` finds NodeClasses that
cannot be launched from, with the reason: settings that their image family lacks, and volumes and addresses that EBS or
EC2 refuses.
"""

from nodesmith.decisions.launch.fleets import (
    MAX_OVERRIDES,
    Templates,
    as_launched,
    launch_plan,
    matched,
    shared,
    subnet_by_zone,
    usable,
)
from nodesmith.decisions.launch.validation import Obstacle, launch_obstacle

__all__ = [
    "MAX_OVERRIDES",
    "Obstacle",
    "Templates",
    "as_launched",
    "launch_obstacle",
    "launch_plan",
    "matched",
    "shared",
    "subnet_by_zone",
    "usable",
]
