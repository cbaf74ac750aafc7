"""Notices: what EC2 and AWS Health say of instances that will soon be gone, or are."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

WARNING = timedelta(minutes=2)
"""From a warning to the end of the instance, as EC2 documents it; less is possible, more is not."""
BLOCK_WARNING = timedelta(minutes=40)
"""From the warning that a Capacity Block expires to its end,"""
BLOCK_LEAD = timedelta(minutes=30)
"""and from the moment at which EC2 begins to take its instances."""


class Fate(StrEnum):
    """What becomes of an instance; most certain and soonest first. The word is the cause of its claim's end."""

    TERMINATED = "InstanceTerminated"
    """it shuts down, or has, and not because we asked"""
    STOPPED = "InstanceStopped"
    SPOT = "SpotInterrupted"
    RESERVATION = "ReservationInterrupted"
    """the owner of the interruptible capacity reservation that it runs in wants it back"""
    IMPAIRED = "InstanceImpaired"
    """it, or the machine under it, fails EC2's own checks"""
    EXPIRING = "ReservationExpires"
    """the Capacity Block that it runs in ends"""
    SCHEDULED = "ScheduledChange"
    """AWS will reboot, move or retire it at a date"""
    REBALANCE = "RebalanceRecommended"
    """it is at elevated risk of an interruption: no more than a hint"""

    @property
    def is_over(self) -> bool:
        """Return whether nothing runs any more, so that no pod can be given its grace."""
        return self in {Fate.TERMINATED, Fate.STOPPED}

    @property
    def is_certain(self) -> bool:
        """Return whether EC2 takes the instance in minutes at most, or has taken it, whatever anybody's budgets say."""
        return self not in {Fate.SCHEDULED, Fate.REBALANCE}


@dataclass(frozen=True, slots=True)
class Notice:
    """What is said of one instance, or of all in a capacity reservation: then `instance_id` is empty.

    `until` is when it goes, None where that is not said; `message` is for people.
    """

    fate: Fate
    instance_id: str
    until: datetime | None
    message: str
    reservation_id: str = ""
    told_at: datetime | None = field(default=None, compare=False)
    """When the event happened that says it; None where EC2 was asked."""
    check: str = field(default="", compare=False)
    """Which of EC2's own checks of the instance says it, in EC2's word"""


@dataclass(frozen=True, slots=True)
class KeptEvent:
    """An event of EC2 or AWS Health that is kept for a cluster until what follows from it is done.

    `event` is its JSON as EventBridge sent it, `account` the account in which it was received. `id` is EventBridge's:
    an event that is delivered twice has the same id both times.
    """

    id: str
    event: str
    account: str
