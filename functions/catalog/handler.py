"""On a schedule: collect what AWS sells in the region, and at what price."""

from nodesmith.composition import regionruntime

handler = regionruntime.catalog()
