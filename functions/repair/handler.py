"""On a tick: find nodes that have been unhealthy for too long, and have them replaced."""

from nodesmith.composition import runtime

handler = runtime.repair()
