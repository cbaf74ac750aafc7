"""The ledger: nodesmith's state that is not in the cluster. It is an input of every decision, beside the snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import assert_never

from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.ec2.zonalshifts import ZonalShift
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.ledger.backoffs import Backoff
from nodesmith.model.ledger.draintimes import DrainTime
from nodesmith.model.ledger.learned import Boot, Offered
from nodesmith.model.ledger.moves import Move, MoveKind
from nodesmith.model.ledger.pauses import Departure, Pause
from nodesmith.model.ledger.registrationhealth import RegistrationHealth
from nodesmith.model.ledger.risks import Risk
from nodesmith.model.nodeclasses.nodeclasses import EC2NodeClass
from nodesmith.model.nodeclasses.status import ClusterInfo, NodeClassStatus


@dataclass(frozen=True, slots=True)
class Ledger:
    """All items of one cluster. `version` is the version that a decision read and that its commit is conditional on.

    `unavailable` are offerings that recently had no capacity, and `nodepool_backoffs` are NodePools whose launches were
    refused. `health` is whether the nodes of each NodePool join the cluster. `learned` is what nodes in any cluster of
    the account have been observed to offer; only decisions about purchases get it. `moves` are the disruptions in
    progress. While `paused` is set, no voluntary disruption begins. `departures` are ends in the last hour and possibly
    older ones. `risks` are pools in which EC2 has interrupted nodes, and `drain_times` are NodePools whose drains took
    long. `move_backoffs` are kinds of moves whose replacements recently could not be launched. `contents` are content
    hashes, by `Kind/name`, of the NodePools and of users' new NodeClaims that readiness has read from the API server.
    `subnet_backoffs` are subnets, by id, that recently had no free address. `zonal_shifts` are the zones that the
    cluster is shifted away from, and those whose shift has just ended.
    """

    version: int = 0
    claims: tuple[NodeClaim, ...] = ()
    nodeclasses: Mapping[str, NodeClassStatus] = field(default_factory=dict)
    cluster: ClusterInfo | None = None
    unavailable: Mapping[OfferingKey, Backoff] = field(default_factory=dict)
    nodepool_backoffs: Mapping[str, Backoff] = field(default_factory=dict)
    health: Mapping[str, RegistrationHealth] = field(default_factory=dict)
    learned: Mapping[Boot, Offered] = field(default_factory=dict)
    moves: tuple[Move, ...] = ()
    paused: Pause | None = None
    departures: tuple[Departure, ...] = ()
    risks: Mapping[OfferingKey, Risk] = field(default_factory=dict)
    drain_times: Mapping[str, DrainTime] = field(default_factory=dict)
    move_backoffs: Mapping[MoveKind, Backoff] = field(default_factory=dict)
    contents: Mapping[str, str] = field(default_factory=dict)
    subnet_backoffs: Mapping[str, Backoff] = field(default_factory=dict)
    zonal_shifts: tuple[ZonalShift, ...] = ()

    def shifted(self, now: datetime) -> Mapping[str, ZonalShift]:
        """Return the zonal shifts in effect, by the name of the zone."""
        return {shift.zone: shift for shift in self.zonal_shifts if shift.holds(now)}

    def has_read(self, said: NodePool | EC2NodeClass) -> bool:
        """Return whether readiness has read an object with exactly this content from the API server.

        The content of an EC2NodeClass is stored with its resolved status, since both come from one reading.
        """
        match said:
            case NodePool():
                return self.contents.get(f"NodePool/{said.name}") == said.content
            case EC2NodeClass():
                status = self.nodeclasses.get(said.name)
                return status is not None and status.content == said.content
            case _:
                assert_never(said)

    @property
    def sources(self) -> frozenset[str]:
        """The names of the claims that moves in progress will end."""
        return frozenset(name for move in self.moves if not move.is_over for name in move.sources)

    @property
    def replacements(self) -> frozenset[str]:
        """The names of the claims that were bought for moves in progress."""
        return frozenset(name for move in self.moves if not move.is_over for name in move.replacements)

    @property
    def doubles(self) -> frozenset[str]:
        """The names of replacements for moves in progress with a source that still serves: the two count as one."""
        serving = {claim.name for claim in self.claims if not claim.is_ending}
        moves = (move for move in self.moves if not move.is_over and serving.intersection(move.sources))
        return frozenset(name for move in moves for name in move.replacements)

    @property
    def resting(self) -> Mapping[str, Move]:
        """Claim name → the abandoned move that it was a source of. Such claims are not moved again for a while."""
        return {name: move for move in self.moves if move.is_over for name in move.sources}
