"""Metrics on launches that EC2 refused."""

from __future__ import annotations

from nodesmith.launcheffects import Settled
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.metrics import Metrics


def note_refused(metrics: Metrics, settled: Settled, ledger: Ledger) -> None:
    """Count each offering that EC2 refused to a call, even if another offering served the call."""
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
