"""When EC2 takes an instance or will take it: launch the replacement before anything else."""

from nodesmith.composition import runtime

handler = runtime.interruption()
