"""On a tick: find what AWS or the cluster holds without need, and delete it."""

from nodesmith.composition import runtime

handler = runtime.garbagecollection()
