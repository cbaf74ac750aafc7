"""The ports of what serves all clusters of a region at once. Every call may raise Transient."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from nodesmith.model.functions import marks
from nodesmith.model.functions.health import Finding, Record
from nodesmith.model.functions.hints import Concern
from nodesmith.registration import Registration, Trial


class Routes(Protocol):
    """Whose an instance is, for all clusters of a region."""

    def of_instance(self, instance_id: str) -> frozenset[str]:
        """Return the clusters with a claim that has this instance: one, or none."""

    def of_reservation(self, reservation_id: str) -> frozenset[str]:
        """Return the clusters with instances in this capacity reservation."""


class MarkedInstances(Protocol):
    """The Spot instances of all clusters that EC2 will take."""

    def ids(self) -> Collection[str]:
        """Return the instances that nodesmith has launched and EC2 has marked, whether their warnings came or not."""


class Registrations(Protocol):
    """The clusters that are served."""

    def get(self, cluster: str) -> Registration:
        """Return a cluster's registration. Raises Rejected where there is none, or one that cannot be read."""

    def all(self) -> tuple[Sequence[Registration], Mapping[str, str]]:
        """Return all registrations that can be read, by name, and what is wrong with each of the others."""


class Trials(Protocol):
    """The release that serves some clusters first."""

    def current(self) -> Trial:
        """Return the trial that is under way, or that was ended last; one of no clusters where there is none."""

    def keep(self, trial: Trial) -> None:
        """Let functions go by it."""


class Ticks(Protocol):
    """The functions of all concerns."""

    def send(self, concern: Concern, clusters: Sequence[Registration]) -> None:
        """Send each of these clusters a hint for a concern. Raises Transient, Rejected when all have been tried."""

    def wake(self, concern: Concern) -> None:
        """Wake a concern that serves the whole region. Raises Transient, Rejected."""


class Marks(Protocol):
    """When clusters last changed."""

    def of(self, clusters: Collection[str]) -> Mapping[str, marks.Marks]:
        """Return the marks of each of these clusters, a second old, perhaps. Raises Rejected."""


class HealthRecords(Protocol):
    """What functions record of their work, and what was last found wrong with it."""

    def of(self, cluster: str) -> Sequence[Record]:
        """Return the records of a cluster's concerns, or of the region's for no name. Raises Rejected."""

    def state(self) -> tuple[Mapping[str, datetime], frozenset[Finding]]:
        """Return since when each cluster is known (the region by no name), and what was last found."""

    def keep(self, since: Mapping[str, datetime], found: Iterable[Finding]) -> None:
        """Keep both for the next look."""


class DeadLetters(Protocol):
    """Messages and events that were given up."""

    def waiting(self) -> int:
        """Return how many there are. Raises Rejected."""


class HealthEvents(Protocol):
    """The way to whoever wants to hear of changes."""

    def tell(self, changes: Iterable[Mapping[str, str]]) -> None:
        """Send an event for each change. Raises Rejected."""
