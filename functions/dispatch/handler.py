"""A schedule: wake the concerns that are due, for every cluster of the region."""

from nodesmith import runtime

handler = runtime.dispatch()
