"""The input of garbage collection, in the order in which it was read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from nodesmith.model.ec2.launches import Instance
from nodesmith.model.garbage import Kind, Owned
from nodesmith.model.karpenter.nodeclaims import NodeClaim, Phase
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.snapshot import Snapshot

YOUNG = timedelta(minutes=1)
"""The minimum age of garbage: EC2 does not list an instance immediately after its launch, and clocks differ."""
SERVING = frozenset({Phase.LAUNCHED, Phase.REGISTERED, Phase.INITIALIZED})
"""Phases in which a claim has an instance and keeps it."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that is known.

    `instances` are nodesmith's living instances. `owned` are its other AWS resources by kind, without kinds that could
    not be listed. `living` are the suspects that are alive after all. `detached_since` is when volumes and network
    interfaces, by id, were first seen detached.
    """

    snapshot: Snapshot
    instances: Sequence[Instance]
    owned: Mapping[Kind, Sequence[Owned]]
    ledger: Ledger
    living: Collection[str]
    detached_since: Mapping[str, datetime]
    now: datetime

    @property
    def alive(self) -> frozenset[str]:
        """The ids of living instances that nodesmith owns or refers to."""
        return frozenset(self.living) | {instance.id for instance in self.instances}

    @property
    def claimed(self) -> frozenset[str]:
        """The names of the Nodes that belong to a claim."""
        return frozenset(node.name for claim in self.ledger.claims for node in self.snapshot.nodes_of(claim))

    @property
    def pending(self) -> list[NodeClaim]:
        """The claims whose instance may appear at any moment."""
        return [claim for claim in self.ledger.claims if claim.phase is Phase.PENDING]
