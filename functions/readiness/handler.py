"""When NodePools or EC2NodeClasses change, or on a tick: resolve them and report whether they are ready."""

from nodesmith.composition import runtime

handler = runtime.readiness()
