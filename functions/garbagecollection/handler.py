"""On a tick: find and delete resources in AWS and the cluster that are no longer needed."""

from nodesmith.composition import runtime

handler = runtime.garbagecollection()
