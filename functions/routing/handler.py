"""EC2 says what becomes of an instance, and not whose it is: the cluster that launched it is told."""

from nodesmith import regionruntime

handler = regionruntime.routing()
