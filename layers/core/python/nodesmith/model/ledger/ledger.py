"""The ledger: what nodesmith knows and the cluster does not. The second half of what a decision is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from nodesmith.model.ec2.launches import OfferingKey
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
    """All items of one cluster. `version` is what a decision read, and what its commit is conditional on.

    `unavailable` are offerings that lately had no capacity, `nodepool_backoffs` NodePools whose launches were refused,
    `health` whether the nodes of a NodePool join the cluster. `learned` is what nodes have been seen to offer, in any
    cluster of the account; only decisions about what to buy are given it. `moves` are the disruptions under way.
    While `paused`, none begins that could as well be left; `departures` are ends of the last hour and maybe older ones.
    `risks` are pools that EC2 has taken nodes from, `drain_times` NodePools whose drains took long, `move_backoffs`
    kinds of moves whose replacements were lately not to be had. `contents` are content hashes, by `Kind/name`, of the
    NodePools and of users' new NodeClaims that readiness has read from the API server. `subnet_backoffs` are
    subnets, by id, that lately had no free address.
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

    def has_read(self, said: NodePool | EC2NodeClass) -> bool:
        """Whether readiness has read an object from the API server exactly as it is here.

        Of an EC2NodeClass the content is kept with what it resolved to: both are of the same reading.
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
        """The claims, by name, that moves under way are to take."""
        return frozenset(name for move in self.moves if not move.is_over for name in move.sources)

    @property
    def replacements(self) -> frozenset[str]:
        """The claims, by name, that were bought for moves under way."""
        return frozenset(name for move in self.moves if not move.is_over for name in move.replacements)

    @property
    def doubles(self) -> frozenset[str]:
        """The claims, by name, that were bought for moves of which a source still serves: the two count as one."""
        serving = {claim.name for claim in self.claims if not claim.is_ending}
        moves = (move for move in self.moves if not move.is_over and serving.intersection(move.sources))
        return frozenset(name for move in moves for name in move.replacements)

    @property
    def resting(self) -> Mapping[str, Move]:
        """The claims, by name, that a move was to take and is not, with that move: they are left alone for a while."""
        return {name: move for move in self.moves if move.is_over for name in move.sources}
