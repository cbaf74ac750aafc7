"""On a schedule: collect the region's offerings and their prices."""

from nodesmith.composition import regionruntime

handler = regionruntime.catalog()
