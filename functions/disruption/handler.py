"""On a tick, or when a move can proceed: shrink the fleet to its workload, in steps that are each safe."""

from nodesmith.composition import runtime

handler = runtime.disruption()
