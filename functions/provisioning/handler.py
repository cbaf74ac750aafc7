"""When pods are pending, or on a tick: buy the nodes that they need."""

from nodesmith.composition import runtime

handler = runtime.provisioning()
