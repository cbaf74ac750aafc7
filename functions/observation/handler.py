"""On a tick: if the forwarder is silent, read the API server and write the snapshot."""

from nodesmith.composition import runtime

handler = runtime.observation()
