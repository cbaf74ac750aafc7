"""The ledger in memory, with DynamoDB's guarantees, and failures on demand."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from nodesmith.errors import Conflict
from nodesmith.model.costs.allocations import to_book
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.ec2.zonalshifts import ZonalShift, read_shift, shift_item
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.provisioningrequests import Gang, gang_item, read_gang
from nodesmith.model.ledger import moves
from nodesmith.model.ledger.items import (
    claim_from_item,
    claim_to_item,
    drain_time_item,
    health_item,
    offered_item,
    read_drain_time,
    read_health,
    read_offered,
    read_risk,
    risk_item,
)
from nodesmith.model.ledger.learned import Backoff, Boot, DrainTime, Offered, RegistrationHealth, Risk
from nodesmith.model.ledger.ledger import Departure, Handover, Ledger, Pause, departure_of
from nodesmith.model.ledger.moves import Move, MoveKind, Stage
from nodesmith.model.ledger.region import CallBudget, Region, Scarcity, Spending
from nodesmith.model.ledger.spending import NO_LAUNCHES, Launches, Spent, spent_by
from nodesmith.model.nodeclasses.status import ClusterInfo, NodeClassStatus
from nodesmith.model.policies import LAUNCHES_OF_CLUSTER


def _nothing(method: str) -> None:
    """Do nothing."""


@dataclass(slots=True)
class FakeUnbooked:
    """Ended nodes and moves that are not booked yet."""

    claims: dict[str, NodeClaim] = field(default_factory=dict)
    moves: dict[str, Move] = field(default_factory=dict)

    def all(self) -> tuple[list[NodeClaim], list[Move]]:
        return list(self.claims.values()), list(self.moves.values())

    def booked(self, claims: Collection[str], moves: Collection[str]) -> None:
        for name in claims:
            self.claims.pop(name, None)
        for id_ in moves:
            self.moves.pop(id_, None)


@dataclass(slots=True)
class FakeStore:
    """A Store for one cluster. `raise_before` and `raise_after` are called with each method's name and may raise."""

    version: int = 0
    claims: dict[str, NodeClaim] = field(default_factory=dict)
    moves: dict[str, Move] = field(default_factory=dict)
    gangs: dict[str, Gang] = field(default_factory=dict)
    decisions: list[str] = field(default_factory=list)
    nodeclasses: dict[str, NodeClassStatus] = field(default_factory=dict)
    cluster: ClusterInfo | None = None
    unavailable: dict[OfferingKey, Backoff] = field(default_factory=dict)
    nodepool_backoffs: dict[str, Backoff] = field(default_factory=dict)
    health: dict[str, RegistrationHealth] = field(default_factory=dict)
    paused: Pause | None = None
    handover: Handover | None = None
    locks: dict[Concern, tuple[datetime, bool]] = field(default_factory=dict)
    """The end of each lock, and whether another run came in the meantime."""
    departures: dict[str, Departure] = field(default_factory=dict)
    risks: dict[OfferingKey, Risk] = field(default_factory=dict)
    drain_times: dict[str, DrainTime] = field(default_factory=dict)
    move_backoffs: dict[MoveKind, Backoff] = field(default_factory=dict)
    subnet_backoffs: dict[str, Backoff] = field(default_factory=dict)
    zonal_shifts: tuple[ZonalShift, ...] = ()
    contents: dict[str, str] = field(default_factory=dict)
    offered: dict[Boot, Offered] = field(default_factory=dict)
    """What nodes have shown about instance types; other clusters may share it."""
    name: str = "test"
    budget: list[CallBudget] = field(default_factory=lambda: [CallBudget()])
    """The region's budget of CreateFleet calls, in a list that the stores of other clusters may share."""
    spent: dict[str, Spent] = field(default_factory=dict)
    launches: Launches = NO_LAUNCHES
    most_launches: int = LAUNCHES_OF_CLUSTER
    region: list[Region] | None = None
    """What clusters share, in a list that the stores of other clusters may share; None to share nothing."""
    wall_clock: Callable[[], datetime] | None = None
    """The time, with which it keeps what nodes of forgotten claims have cost, and omits departures that are over.

    None to keep no costs and all departures.
    """
    unbooked: FakeUnbooked = field(default_factory=lambda: FakeUnbooked())
    raise_before: Callable[[str], None] = _nothing
    raise_after: Callable[[str], None] = _nothing

    def lose_next_commit(self) -> None:
        """Let another run commit just before the next commit, which therefore raises Conflict."""
        rivals = [Conflict("somebody was first")]

        def forestall(method: str) -> None:
            if method == "commit" and rivals:
                self.version += 1
                raise rivals.pop()

        self.raise_before = forestall

    def _departures(self) -> tuple[Departure, ...]:
        """Return those that are still kept; all of them without a clock."""
        found = (self.departures[name] for name in sorted(self.departures))
        return tuple(d for d in found if self.wall_clock is None or self.wall_clock() <= d.kept_until)

    def load(self) -> Ledger:
        self.raise_before("load")
        ledger = Ledger(
            self.version,
            tuple(self.claims[name] for name in sorted(self.claims)),
            dict(self.nodeclasses),
            self.cluster,
            dict(self.unavailable),
            dict(self.nodepool_backoffs),
            dict(self.health),
            moves=tuple(self.moves[id_] for id_ in sorted(self.moves)),
            paused=self.paused,
            handover=self.handover,
            departures=self._departures(),
            risks=dict(self.risks),
            drain_times=dict(self.drain_times),
            move_backoffs=dict(self.move_backoffs),
            subnet_backoffs=dict(self.subnet_backoffs),
            contents=dict(self.contents),
            zonal_shifts=self.zonal_shifts,
            gangs=tuple(self.gangs[id_] for id_ in sorted(self.gangs)),
            spending=self._spending(),
        )
        self.raise_after("load")
        return ledger

    def _spending(self) -> Spending:
        region = None
        if self.region:
            budget = self.budget[0]
            region = replace(self.region[0], cluster=self.name, calls=budget, lost=budget.lost)
        spent = tuple(self.spent[key] for key in sorted(self.spent))
        return Spending(self.launches, self.most_launches, spent, region)

    def commit(
        self,
        version: int,
        claims: Sequence[NodeClaim],
        decision: str,
        move: Move | None = None,
        gang: Gang | None = None,
        changed: Sequence[NodeClaim] = (),
    ) -> None:
        self.raise_before("commit")
        is_outdated = version != self.version or any(claim.name in self.claims for claim in claims)
        for claim in changed:
            known = self.claims.get(claim.name)
            is_outdated = is_outdated or known is None or known.revision != claim.revision
        if is_outdated:
            raise Conflict(f"version {version} is no longer the newest")
        spending = self._spending()
        if claims:
            now = self.wall_clock() if self.wall_clock else max(claim.created_at for claim in claims)
            spending = spending.charged(self.claims.values(), claims, now)
        if move is not None:
            self._write_move(move)
        if gang is not None:
            self._write_gang(gang)
        self._write_spending(spending)
        self.version += 1
        self.decisions.append(decision)
        for claim in claims:
            self.claims[claim.name] = _stored(replace(claim, revision=1))
        for claim in changed:
            self.claims[claim.name] = _stored(replace(claim, revision=claim.revision + 1))
        self.raise_after("commit")

    def _write_spending(self, spending: Spending) -> None:
        written = Spending.from_item(json.loads(json.dumps(spending.to_item())))
        self.launches = written.launches
        if self.region is not None and written.region is not None:
            self.region[0] = written.region

    def save_shares(self) -> None:
        self.raise_before("save_shares")
        region = self._spending().region
        if region is not None and self.wall_clock is not None:
            own = region.own_shares(self.claims.values(), self.spent.values(), self.wall_clock())
            self._write_spending(replace(self._spending(), region=region.with_own(own)))
        self.raise_after("save_shares")

    def save(self, claim: NodeClaim) -> NodeClaim:
        self.raise_before("save")
        known = self.claims.get(claim.name)
        if known is None or known.revision != claim.revision:
            raise Conflict(f"NodeClaim {claim.name} has moved on")
        saved = _stored(replace(claim, revision=claim.revision + 1))
        self.claims[claim.name] = saved
        self.raise_after("save")
        return saved

    def forget(self, claim: NodeClaim) -> None:
        self.raise_before("forget")
        known = self.claims.get(claim.name)
        if known is not None and known.revision != claim.revision:
            raise Conflict(f"NodeClaim {claim.name} has moved on")
        departure = departure_of(claim)
        if departure is not None:
            self.departures[claim.name] = departure
        spent = (
            spent_by(claim, self.wall_clock()) if self.wall_clock is not None and known is not None else None
        )
        if spent is not None:
            before = self.spent.get(spent.key)
            self.spent[spent.key] = replace(spent, amount=spent.amount + (before.amount if before else 0))
        if claim.instance_id:
            now = self.wall_clock() if self.wall_clock else claim.phase_since
            self.unbooked.claims[claim.name] = _stored(to_book(claim, now))
        self.claims.pop(claim.name, None)
        self.raise_after("forget")

    def take_lock(self, concern: Concern, now: datetime, until: datetime) -> bool:
        self.raise_before("take_lock")
        ends, _ = self.locks.get(concern, (now, False))
        is_free = ends <= now
        self.locks[concern] = (until, False) if is_free else (ends, True)
        self.raise_after("take_lock")
        return is_free

    def release_lock(self, concern: Concern, until: datetime) -> bool:
        self.raise_before("release_lock")
        ends, came = self.locks.get(concern, (None, False))
        if ends == until:
            del self.locks[concern]
        self.raise_after("release_lock")
        return came and ends == until

    def take_calls(self, wanted: int, now: datetime) -> int:
        self.raise_before("take_calls")
        granted, self.budget[0] = self.budget[0].take(self.name, wanted, now)
        self.raise_after("take_calls")
        return granted

    def record_scarcity(self, scarcity: Scarcity, now: datetime) -> None:
        self.raise_before("tell_scarcity")
        self.budget[0] = self.budget[0].with_scarcity(scarcity, now)
        self.raise_after("tell_scarcity")

    def pause(self, pause: Pause | None) -> None:
        self.raise_before("pause")
        self.paused = pause
        self.raise_after("pause")

    def hand_over(self, handover: Handover) -> None:
        self.raise_before("hand_over")
        self.handover = handover
        self.raise_after("hand_over")

    def save_move(self, move: Move) -> Move:
        self.raise_before("save_move")
        saved = self._write_move(move)
        self.raise_after("save_move")
        return saved

    def _write_move(self, move: Move) -> Move:
        known = self.moves.get(move.id)
        if (known.revision if known else 0) != move.revision:
            raise Conflict(f"move {move.id} has moved on")
        saved = replace(move, revision=move.revision + 1)
        self.moves[move.id] = moves.from_item(json.loads(json.dumps(moves.to_item(saved))))
        return saved

    def save_gang(self, gang: Gang) -> Gang:
        self.raise_before("save_gang")
        saved = self._write_gang(gang)
        self.raise_after("save_gang")
        return saved

    def _write_gang(self, gang: Gang) -> Gang:
        known = self.gangs.get(gang.id)
        if (known.revision if known else 0) != gang.revision:
            raise Conflict(f"gang of {gang.request} has moved on")
        saved = replace(gang, revision=gang.revision + 1)
        self.gangs[gang.id] = read_gang(json.loads(json.dumps(gang_item(saved))))
        return saved

    def forget_gang(self, gang: Gang) -> None:
        self.raise_before("forget_gang")
        known = self.gangs.get(gang.id)
        if known is not None and known.revision != gang.revision:
            raise Conflict(f"gang of {gang.request} has moved on")
        self.gangs.pop(gang.id, None)
        self.raise_after("forget_gang")

    def forget_move(self, move: Move) -> None:
        self.raise_before("forget_move")
        known = self.moves.get(move.id)
        if known is not None and known.revision != move.revision:
            raise Conflict(f"move {move.id} has moved on")
        if move.stage is Stage.ENDING:
            self.unbooked.moves[move.id] = moves.from_item(json.loads(json.dumps(moves.to_item(move))))
        self.moves.pop(move.id, None)
        self.raise_after("forget_move")

    def existing_claims(self, claims: Collection[str]) -> Collection[str]:
        self.raise_before("known")
        found = {name for name in claims if name in self.claims}
        self.raise_after("known")
        return found

    def save_nodeclass(self, status: NodeClassStatus) -> None:
        self.raise_before("save_nodeclass")
        self.nodeclasses[status.name] = status
        self.raise_after("save_nodeclass")

    def forget_nodeclass(self, name: str) -> None:
        self.raise_before("forget_nodeclass")
        self.nodeclasses.pop(name, None)
        self.raise_after("forget_nodeclass")

    def save_contents(self, contents: Mapping[str, str]) -> None:
        self.raise_before("save_contents")
        self.contents.update(contents)
        self.raise_after("save_contents")

    def forget_contents(self, keys: Collection[str]) -> None:
        self.raise_before("forget_contents")
        for key in keys:
            self.contents.pop(key, None)
        self.raise_after("forget_contents")

    def save_cluster(self, cluster: ClusterInfo) -> None:
        self.raise_before("save_cluster")
        self.cluster = cluster
        self.raise_after("save_cluster")

    def save_unavailable(self, offerings: Mapping[OfferingKey, Backoff]) -> None:
        self.raise_before("save_unavailable")
        self.unavailable.update(offerings)
        self.raise_after("save_unavailable")

    def save_subnet_backoffs(self, subnets: Mapping[str, Backoff]) -> None:
        self.raise_before("save_subnet_backoffs")
        self.subnet_backoffs.update(subnets)
        self.raise_after("save_subnet_backoffs")

    def save_zonal_shifts(self, shifts: Sequence[ZonalShift]) -> None:
        self.raise_before("save_zonal_shifts")
        self.zonal_shifts = tuple(read_shift(json.loads(json.dumps(shift_item(each)))) for each in shifts)
        self.raise_after("save_zonal_shifts")

    def save_risks(self, risks: Mapping[OfferingKey, Risk]) -> None:
        self.raise_before("save_risks")
        self.risks.update({key: read_risk(json.loads(json.dumps(risk_item(r)))) for key, r in risks.items()})
        self.raise_after("save_risks")

    def save_drain_time(self, nodepool: str, drain_time: DrainTime) -> None:
        self.raise_before("save_drain_time")
        self.drain_times[nodepool] = read_drain_time(json.loads(json.dumps(drain_time_item(drain_time))))
        self.raise_after("save_drain_time")

    def clear_unavailable(self, offerings: Collection[OfferingKey]) -> None:
        self.raise_before("clear_unavailable")
        for key in offerings:
            self.unavailable.pop(key, None)
        self.raise_after("clear_unavailable")

    def save_nodepool_backoff(self, nodepool: str, backoff: Backoff | None) -> None:
        self.raise_before("save_nodepool_backoff")
        if backoff is None:
            self.nodepool_backoffs.pop(nodepool, None)
        else:
            self.nodepool_backoffs[nodepool] = backoff
        self.raise_after("save_nodepool_backoff")

    def save_move_backoff(self, kind: MoveKind, backoff: Backoff | None) -> None:
        self.raise_before("save_move_backoff")
        if backoff is None:
            self.move_backoffs.pop(kind, None)
        else:
            self.move_backoffs[kind] = backoff
        self.raise_after("save_move_backoff")

    def save_health(self, nodepool: str, health: RegistrationHealth) -> None:
        self.raise_before("save_health")
        known = self.health.get(nodepool)
        if (known.revision if known else 0) != health.revision:
            raise Conflict(f"what is known of NodePool {nodepool} has moved on")
        saved = replace(health, revision=health.revision + 1)
        self.health[nodepool] = read_health(json.loads(json.dumps(health_item(saved))))
        self.raise_after("save_health")

    def learned(self) -> Mapping[Boot, Offered]:
        self.raise_before("learned")
        found = dict(self.offered)
        self.raise_after("learned")
        return found

    def learn(self, offered: Mapping[Boot, Offered]) -> None:
        self.raise_before("learn")
        self.offered.update(
            {b: read_offered(json.loads(json.dumps(offered_item(o)))) for b, o in offered.items()}
        )
        self.raise_after("learn")

    def forget_health(self, nodepool: str) -> None:
        self.raise_before("forget_health")
        self.health.pop(nodepool, None)
        self.raise_after("forget_health")


def _stored(claim: NodeClaim) -> NodeClaim:
    """Return the claim as storage returns it."""
    return claim_from_item(json.loads(json.dumps(claim_to_item(claim))))
