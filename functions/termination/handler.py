"""A claim is to go, or a tick says look: drain its node, terminate its instance, leave nothing behind."""

from nodesmith import runtime

handler = runtime.termination()
