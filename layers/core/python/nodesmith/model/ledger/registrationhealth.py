"""Whether the nodes that a NodePool buys join the cluster: how the last of them ended, and what is left alone since.

A NodePool is unhealthy when half of its last four nodes did not join (Karpenter's figures). What is known counts for
the NodePool, EC2NodeClass and images that it was learned with (`basis`), and for nothing after they have changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.ledger.backoffs import Backoff
from nodesmith.model.nodeclasses.status import NodeClassStatus

REMEMBERED = 4
_UNHEALTHY = 2


@dataclass(frozen=True, slots=True)
class Ending:
    """How the launch for one claim ended: whether its node joined the cluster."""

    claim: str
    registered: bool


@dataclass(frozen=True, slots=True)
class RegistrationHealth:
    """What is known of one NodePool. `endings` are its last, newest last; `reason` and `message` the last failure's.

    `backoff` is there from the moment the NodePool is unhealthy until one of its nodes joins again: once it is over
    one node at a time is tried. `offerings` are those that failed last, which this NodePool leaves alone.
    """

    basis: str
    since: datetime | None = None
    """Claims made before are of another basis; None where there was none."""
    endings: tuple[Ending, ...] = ()
    reason: str = ""
    message: str = ""
    backoff: Backoff | None = None
    offerings: Mapping[OfferingKey, Backoff] = field(default_factory=dict)
    revision: int = 0
    """Counts writes to the ledger: the optimistic lock."""

    @property
    def failures(self) -> int:
        """How many of its last nodes did not join."""
        return sum(not ending.registered for ending in self.endings)

    @property
    def is_unhealthy(self) -> bool:
        """Return whether too many of its last nodes did not join."""
        return self.failures >= _UNHEALTHY

    @property
    def has_registered(self) -> bool:
        """Return whether one of its last nodes did join."""
        return any(ending.registered for ending in self.endings)


def basis_of(pool: NodePool, status: NodeClassStatus | None) -> str:
    """Name what a NodePool's nodes are made from now; a change of it is a new chance."""
    resolved = f"{status.generation}.{status.hash}" if status else ""
    images = ",".join(sorted(image.id for image in status.images)) if status else ""
    return f"{pool.uid}/{pool.generation} {pool.nodeclass.name}/{resolved} {images}"


def current(health: RegistrationHealth | None, basis: str) -> RegistrationHealth | None:
    """Return what is known, None where it was learned with something else."""
    return health if health is not None and health.basis == basis else None
