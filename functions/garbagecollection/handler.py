"""A tick: find what AWS or the cluster still holds for nothing, and let it go."""

from nodesmith import runtime

handler = runtime.garbagecollection()
