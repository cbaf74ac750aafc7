"""What garbage collection decides from, in the order in which it was looked at."""

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
"""What is younger is left alone: EC2 does not list an instance in the moment of its launch, and clocks differ."""
SERVING = frozenset({Phase.LAUNCHED, Phase.REGISTERED, Phase.INITIALIZED})
"""Phases of a claim that has an instance and keeps it."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known.

    `instances` are our living ones. `owned` is what else we made, a kind that could not be listed left out. `living`
    are those of the suspects that live after all. `detached_since` says since when volumes and interfaces, by id, are
    seen attached to nothing.
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
        """The ids of instances that live, as far as anybody here believes in them."""
        return frozenset(self.living) | {instance.id for instance in self.instances}

    @property
    def claimed(self) -> frozenset[str]:
        """The names of the Nodes that are a claim's."""
        return frozenset(node.name for claim in self.ledger.claims for node in self.snapshot.nodes_of(claim))

    @property
    def pending(self) -> list[NodeClaim]:
        """The claims whose instance may come at any moment."""
        return [claim for claim in self.ledger.claims if claim.phase is Phase.PENDING]
