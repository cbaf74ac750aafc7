"""Metrics on notices from EC2 and AWS Health about instances, under Karpenter's names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from nodesmith.model.ec2.notices import Fate, Notice
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.metrics import Metrics, snake_case

_MESSAGE_TYPES: Mapping[Fate, str] = {
    Fate.TERMINATED: "instance_terminated",
    Fate.STOPPED: "instance_stopped",
    Fate.SPOT: "spot_interrupted",
    Fate.RESERVATION: "capacity_reservation_interrupted",
    Fate.EXPIRING: "capacity_reservation_interrupted",
    Fate.SCHEDULED: "scheduled_change",
    Fate.REBALANCE: "rebalance_recommendation",
}
_NOTHING = "no_op"
"""Karpenter's type for a message that requires no action."""


def note_message(metrics: Metrics, notices: Sequence[Notice], now: datetime) -> None:
    """Count a message that was read. `notices` is its content, empty if the message is of no interest."""
    first = notices[0] if notices else None
    kind = _MESSAGE_TYPES.get(first.fate, _NOTHING) if first else _NOTHING
    metrics.count("interruption_received_messages_total", message_type=kind)
    if first is not None and first.told_at is not None:
        seconds = (now - first.told_at).total_seconds()
        metrics.observe("interruption_message_queue_duration_seconds", seconds)


def note_checks(metrics: Metrics, notices: Iterable[Notice], ending: Iterable[NodeClaim]) -> None:
    """Count the claims whose termination begins because an EC2 status check failed."""
    checks = {(notice.instance_id, notice.fate.value): notice.check for notice in notices if notice.check}
    for claim in ending:
        check = checks.get((claim.instance_id, claim.cause))
        if check:
            name = "interruption_instance_status_unhealthy_total"
            metrics.count(name, category=snake_case(check))
