"""When EC2 reclaims an instance, or announces it: launch the replacement before anything else."""

from nodesmith.composition import runtime

handler = runtime.interruption()
