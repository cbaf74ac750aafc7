"""A tick, or a move that can go on: let the fleet follow the work down, in steps of which each is safe."""

from nodesmith import runtime

handler = runtime.disruption()
