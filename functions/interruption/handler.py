"""EC2 takes an instance, or will: the replacement is launched before anything else is done."""

from nodesmith import runtime

handler = runtime.interruption()
