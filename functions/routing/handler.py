"""When EC2 reports what happens to an instance: find the cluster that launched it, and wake its interruption."""

from nodesmith.composition import regionruntime

handler = regionruntime.routing()
