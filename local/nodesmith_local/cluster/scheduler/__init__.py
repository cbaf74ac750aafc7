"""A stand-in for kube-scheduler. It shares no code with nodesmith's decisions, because tests check them with it.

Not implemented: preemption, attach limits of volumes, and namespace selectors other than the empty one.
"""

from nodesmith_local.cluster.scheduler.scheduler import Scheduler

__all__ = ["Scheduler"]
