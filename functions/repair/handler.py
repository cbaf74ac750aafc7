"""A tick: find nodes that have been sick for too long, and let them be replaced."""

from nodesmith import runtime

handler = runtime.repair()
