"""The ports of functions that serve a whole region, of stored EC2 events, and of events for subscribers.

Every call may raise Transient.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from nodesmith.model import functions
from nodesmith.model.ec2.notices import KeptEvent
from nodesmith.model.functions import Concern, Finding, Record
from nodesmith.model.ledger.region import Region
from nodesmith.model.limits.spendinglimits import SpendingLimit
from nodesmith.registration import Registration, Trial

if TYPE_CHECKING:
    from nodesmith.decisions.reporting.notifications import Notification


class Routes(Protocol):
    """The clusters that instances and capacity reservations belong to, for all clusters of a region."""

    def of_instance(self, instance_id: str) -> frozenset[str]:
        """Return the clusters with a claim that has this instance: at most one."""

    def of_reservation(self, reservation_id: str) -> frozenset[str]:
        """Return the clusters with instances in this capacity reservation."""


class MarkedInstances(Protocol):
    """The spot instances of all clusters that EC2 has marked for interruption."""

    def ids(self) -> Collection[str]:
        """Return the ids of nodesmith's instances that EC2 has marked, whether or not their warnings have arrived."""


class ShiftedClusters(Protocol):
    """The EKS clusters of a region that Application Recovery Controller has shifted away from a zone."""

    def clusters(self) -> Collection[str]:
        """Return their names, whether or not nodesmith serves them. Raises Rejected."""


class Registrations(Protocol):
    """The registrations of the clusters that nodesmith serves."""

    def get(self, cluster: str) -> Registration:
        """Return a cluster's registration. Raises Rejected if there is none or if it cannot be read."""

    def all(self) -> tuple[Sequence[Registration], Mapping[str, str]]:
        """Return all readable registrations, sorted by name, and the faults of the others by name."""


class LimitParameters(Protocol):
    """The SpendingLimits that users have written."""

    def all(self) -> Mapping[str, str]:
        """Return the values of all parameters, by the limit's name."""


class SharedLimits(Protocol):
    """The SpendingLimits as clusters read them, and what each cluster takes of them."""

    def region(self) -> Region:
        """Return what clusters share."""

    def save(self, limits: Sequence[SpendingLimit], clusters: Collection[str]) -> bool:
        """Write the limits and the registered clusters; return whether that changed any."""


class Trials(Protocol):
    """The trial of a release, which serves some clusters first."""

    def current(self) -> Trial:
        """Return the current trial or the last one that ended; a trial without clusters if there is none."""

    def keep(self, trial: Trial) -> None:
        """Store the trial, which functions then follow."""


class Ticks(Protocol):
    """Wake-ups for the functions of all concerns."""

    def send(self, concern: Concern, clusters: Sequence[Registration]) -> None:
        """Send a concern a hint for each of these clusters. Raises Transient, Rejected after all have been tried."""

    def wake(self, concern: Concern) -> None:
        """Wake a concern that serves the whole region. Raises Transient, Rejected."""


class Marks(Protocol):
    """When clusters last changed."""

    def of(self, clusters: Collection[str]) -> Mapping[str, functions.Marks]:
        """Return the marks of each of these clusters, which may be a second out of date. Raises Rejected."""


class HealthRecords(Protocol):
    """The health records of functions, and the findings of the last check."""

    def of(self, cluster: str) -> Sequence[Record]:
        """Return the records of a cluster's concerns, or of the region's if `cluster` is empty. Raises Rejected."""

    def state(self) -> tuple[Mapping[str, datetime], frozenset[Finding]]:
        """Return since when each cluster has been known (the region as ""), and the findings of the last check."""

    def keep(self, since: Mapping[str, datetime], found: Iterable[Finding]) -> None:
        """Store both for the next check."""


class DeadLetters(Protocol):
    """The messages and events that were given up."""

    def waiting(self) -> int:
        """Return the number of messages in the dead-letter queue. Raises Rejected."""


class HealthEvents(Protocol):
    """Events about changes of health, for subscribers."""

    def publish(self, changes: Iterable[Mapping[str, str]]) -> None:
        """Send an event for each change. Raises Rejected."""


class EventBus(Protocol):
    """Notifications for people and programs (EventBridge's default bus)."""

    def put(self, notifications: Sequence[Notification]) -> Iterator[str]:
        """Send notifications, and yield the ids of those that were accepted. Raises Rejected."""


class Notices(Protocol):
    """The EC2 events that are kept for one cluster until they have been handled (DynamoDB)."""

    def pending(self) -> Sequence[KeptEvent]:
        """Return all events, strongly consistent, by id, including items whose event cannot be read."""

    def done(self, ids: Collection[str]) -> None:
        """Delete the events with these ids, unless they are gone."""


class RegionNotices(Protocol):
    """The stored EC2 events of all clusters of a region."""

    def keep(self, cluster: str, id_: str, event: str, account: str) -> None:
        """Store an event (JSON) of an account for a cluster under its id. Repeated deliveries are stored once."""
