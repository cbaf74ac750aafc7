"""On a schedule: wake the concerns that are due, for every cluster of the region."""

from nodesmith.composition import regionruntime

handler = regionruntime.dispatch()
