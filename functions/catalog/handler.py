"""A schedule: ask AWS what can be bought, and at what price."""

from nodesmith import regionruntime

handler = regionruntime.catalog()
