"""A tick: when the forwarder has gone silent, look at the API server ourselves."""

from nodesmith import runtime

handler = runtime.observation()
