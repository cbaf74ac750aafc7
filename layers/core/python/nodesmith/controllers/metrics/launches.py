"""What EC2 would not launch, for Prometheus."""

from __future__ import annotations

from nodesmith.launcheffects import Settled
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.metrics.metrics import Metrics


def note_refused(metrics: Metrics, settled: Settled, ledger: Ledger) -> None:
    """Count each offering that a call was refused, also where another one has served it."""
    statuses = ledger.nodeclasses.values()
    zone_ids = {subnet.zone: subnet.zone_id for status in statuses for subnet in status.subnets}
    for _, offering, code in sorted(settled.refused):
        metrics.count(
            "cloudprovider_instance_launch_failures_total",
            zone=offering.zone,
            zone_id=zone_ids.get(offering.zone, ""),
            capacity_type=offering.capacity_type,
            reason=code,
        )
