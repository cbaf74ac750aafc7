"""When a NodeClaim ends, or on a tick: drain its node, terminate its instance, clean up everything."""

from nodesmith.composition import runtime

handler = runtime.termination()
