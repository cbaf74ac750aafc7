"""How a node is built on EC2: from one NodeClaim to its CreateFleet request and the launch templates it names.

Pure: the same claim, offerings and NodeClass give the same bytes, so that a retry asks EC2 for the very same thing.
`plan` chooses overrides, `templates` says what an instance is made of, `userdata` what it reads when it boots, `tags`
what it is marked with, `validation` which NodeClasses cannot be launched from, and why.
"""

from nodesmith.decisions.launch.plan import MAX_OVERRIDES, Templates, launch_plan
from nodesmith.decisions.launch.sharing import dealt, shared
from nodesmith.decisions.launch.subnets import subnet_by_zone, usable
from nodesmith.decisions.launch.validation import Obstacle, launch_obstacle

__all__ = [
    "MAX_OVERRIDES",
    "Obstacle",
    "Templates",
    "dealt",
    "launch_obstacle",
    "launch_plan",
    "shared",
    "subnet_by_zone",
    "usable",
]
