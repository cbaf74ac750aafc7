"""Notices from EC2 and AWS Health about instances that have ended or will end soon."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

WARNING = timedelta(minutes=2)
"""Time from a warning to the end of the instance, as EC2 documents it. It may be shorter, but not longer."""
BLOCK_WARNING = timedelta(minutes=40)
"""Time from the expiration warning of a Capacity Block to its end."""
BLOCK_LEAD = timedelta(minutes=30)
"""Time from when EC2 starts to terminate the instances of a Capacity Block to its end."""


class Fate(StrEnum):
    """What happens to an instance, most certain and soonest first. The value is the cause of its claim's end."""

    TERMINATED = "InstanceTerminated"
    """it is shutting down or has shut down, and nodesmith did not request it"""
    STOPPED = "InstanceStopped"
    SPOT = "SpotInterrupted"
    RESERVATION = "ReservationInterrupted"
    """the owner of its interruptible capacity reservation reclaims the capacity"""
    IMPAIRED = "InstanceImpaired"
    """the instance or its host fails EC2's status checks"""
    EXPIRING = "ReservationExpires"
    """the Capacity Block that it runs in ends"""
    SCHEDULED = "ScheduledChange"
    """AWS will reboot, move or retire it at a scheduled time"""
    REBALANCE = "RebalanceRecommended"
    """it is at elevated risk of interruption, which is not certain"""

    @property
    def is_over(self) -> bool:
        """Return whether the instance no longer runs, so that pods cannot have their grace period."""
        return self in {Fate.TERMINATED, Fate.STOPPED}

    @property
    def is_certain(self) -> bool:
        """Return whether EC2 takes the instance within minutes, or has taken it, regardless of budgets."""
        return self not in {Fate.SCHEDULED, Fate.REBALANCE}


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice about one instance, or about all instances in a capacity reservation if `instance_id` is empty.

    `until` is when the instance ends, None if that is not stated. `message` is a sentence for users.
    """

    fate: Fate
    instance_id: str
    until: datetime | None
    message: str
    reservation_id: str = ""
    told_at: datetime | None = field(default=None, compare=False)
    """When the event occurred; None if the notice comes from a query to EC2."""
    check: str = field(default="", compare=False)
    """The EC2 status check that failed, by its name in EC2; empty for other notices"""


@dataclass(frozen=True, slots=True)
class KeptEvent:
    """An event from EC2 or AWS Health that is kept for a cluster until it has been fully handled.

    `event` is its JSON as EventBridge sent it, and `account` is the account that received it. `id` is EventBridge's id:
    an event that is delivered twice has the same id both times.
    """

    id: str
    event: str
    account: str
