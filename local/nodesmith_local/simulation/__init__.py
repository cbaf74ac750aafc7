"""The simulation behind `nodesmith simulate`: a recorded workload with other NodePools, prices or settings.

It works on values, not on an API server: the decisions of the deployed functions run on snapshots that this package
builds, and this package carries them out. It needs no library of the extra `local`.
"""
