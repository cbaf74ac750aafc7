"""All dashboards: those over what the forwarder exports, and the one over CloudWatch."""

from __future__ import annotations

from monitoring.capacity import FLEET, LATENCY, MONEY
from monitoring.changes import DISRUPTION, HEALTH, INTERRUPTIONS
from monitoring.cloudwatch import OPERATION as OPERATION

DASHBOARDS = (FLEET, MONEY, LATENCY, DISRUPTION, INTERRUPTIONS, HEALTH)
