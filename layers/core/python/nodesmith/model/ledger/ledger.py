"""The ledger: nodesmith's state that is not in the cluster, an input of every decision. Limits on disruption."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, assert_never

from nodesmith.model.apimachinery.frozen import FrozenMap
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.ec2.instancetypes import InstanceType
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.ec2.notices import InterruptionCause
from nodesmith.model.ec2.zonalshifts import ZonalShift
from nodesmith.model.karpenter.nodeclaims import IN_VAIN, NodeClaim, Phase
from nodesmith.model.karpenter.nodepools import NodePool
from nodesmith.model.kubernetes.provisioningrequests import Gang
from nodesmith.model.ledger.commitments import NO_COMMITMENTS, Commitments
from nodesmith.model.ledger.learned import Backoff, Boot, DrainTime, Offered, RegistrationHealth, Risk
from nodesmith.model.ledger.moves import Move, MoveKind
from nodesmith.model.ledger.region import NO_SPENDING, Spending
from nodesmith.model.ledger.shortages import lost_zones, over_quota
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
    cluster is shifted away from, and those whose shift has just ended. `gangs` are what is done for
    ProvisioningRequests. `spending` is what nodes have cost, how many were requested lately, and what clusters share.
    `handover` is the user's last word on whether Karpenter or nodesmith serves the cluster. `commitments` are the
    Savings Plans and Reserved Instances of the account, with what the other clusters use of them; like `learned`, only
    decisions about purchases and moves get them.
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
    gangs: tuple[Gang, ...] = ()
    spending: Spending = NO_SPENDING
    handover: Handover | None = None
    commitments: Commitments = NO_COMMITMENTS

    def booked(self, now: datetime) -> frozenset[str]:
        """Return the names of NodeClaims, and of Nodes without one, on which room is kept for a gang."""
        return frozenset(place for gang in self.gangs if gang.keeps_room(now) for place in gang.places)

    def shifted(self, now: datetime) -> Mapping[str, ZonalShift]:
        """Return the zonal shifts in effect, by the name of the zone."""
        return {shift.zone: shift for shift in self.zonal_shifts if shift.holds(now)}

    def lost_zones(self, now: datetime) -> frozenset[tuple[str, str]]:
        """Return the zones, each with a capacity type, in which EC2 is taken to have nothing left."""
        return lost_zones(self.unavailable, now) | self.spending.lost_zones(now)

    def exhausted(self, types: Collection[InstanceType], now: datetime) -> frozenset[OfferingKey]:
        """Return the offerings of these types that are left alone because of what EC2 answered about others.

        They are in zones that have nothing left, or exceed a quota of vCPUs.
        """
        lost = self.lost_zones(now)
        zone_offerings = {OfferingKey(sold, kind.name, zone) for sold, zone in lost for kind in types}
        return over_quota(self.unavailable, types, now) | zone_offerings

    def has_read(self, manifest: NodePool | EC2NodeClass) -> bool:
        """Return whether readiness has read an object with exactly this content from the API server.

        The content of an EC2NodeClass is stored with its resolved status, since both come from one reading.
        """
        match manifest:
            case NodePool():
                return self.contents.get(f"NodePool/{manifest.name}") == manifest.content
            case EC2NodeClass():
                status = self.nodeclasses.get(manifest.name)
                return status is not None and status.content == manifest.content
            case _:
                assert_never(manifest)

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
    def abandoned_by_source(self) -> Mapping[str, Move]:
        """Claim name → the abandoned move that it was a source of. Such claims are not moved again for a while."""
        return {name: move for move in self.moves if move.is_over for name in move.sources}


PAUSED = "DisruptionPaused"
"""The condition of NodePools while disruption is paused."""
RATE_WINDOW = timedelta(hours=1)
REPEATED_WINDOW = timedelta(hours=26)
"""How long the departure of a repeated attempt is kept: longer than the longest wait before the next attempt."""
_TAKEN = frozenset(InterruptionCause) - {InterruptionCause.TERMINATED, InterruptionCause.STOPPED}
"""Causes of ends that EC2 is responsible for."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of voluntary disruption in a cluster. `reason` is what the user gave, or empty.

    It ends by itself at `until`; None if only the user ends it.
    """

    since: datetime
    reason: str = ""
    until: datetime | None = None

    def holds(self, now: datetime) -> bool:
        """Return whether the pause is in effect."""
        return self.until is None or now < self.until

    def __str__(self) -> str:
        return f"disruption has been paused since {self.since:%Y-%m-%d %H:%M} UTC" + (
            f": {self.reason}" if self.reason else ""
        )


@dataclass(frozen=True, slots=True)
class Handover:
    """The user's choice of who serves the cluster from `at` on: Karpenter (`nodesmith release`) or nodesmith.

    Until the handover to Karpenter `is_settled`, nodesmith completes what it has begun, and begins nothing new. Signs
    of Karpenter from before `at` do not count.
    """

    at: datetime
    to_karpenter: bool = False
    is_settled: bool = False


@dataclass(frozen=True, slots=True)
class Departure:
    """A forgotten NodeClaim and when its end began, kept for as long as a rate limit looks back.

    `bought_at` and `cause` are the claim's. The other fields are those about the pods that it was bought for. They are
    set only if the claim counts as an attempt.
    """

    claim: str
    nodepool: str
    at: datetime
    bought_at: datetime | None = None
    initialized_at: datetime | None = None
    attempts: Mapping[str, int] = FrozenMap()
    served: tuple[str, ...] = ()
    cause: str = ""
    use: str = ""
    """The claim's `use`; `IN_VAIN` if it had none yet."""
    removals_before: int = 0

    @property
    def kept_until(self) -> datetime:
        """Until when the departure is needed."""
        is_repeated = any(attempt > 1 for attempt in self.attempts.values())
        return self.at + (REPEATED_WINDOW if is_repeated else RATE_WINDOW)


def departure_of(claim: NodeClaim) -> Departure | None:
    """Return the departure of a forgotten claim, None if its end was not decided."""
    if claim.terminating_at is None:
        return None
    departure = Departure(claim.name, claim.nodepool, claim.terminating_at, cause=claim.cause)
    if not (claim.attempts and counts_as_attempt(claim)):
        return replace(departure, removals_before=claim.removals_before)
    return replace(
        departure,
        bought_at=claim.bought_at,
        initialized_at=claim.initialized_at,
        attempts=claim.attempts,
        served=claim.served,
        use=claim.use or IN_VAIN,
        removals_before=claim.removals_before,
    )


def counts_as_attempt(claim: NodeClaim) -> bool:
    """Return whether a claim shows if its pods can run: it was not given up, and EC2 has not taken its instance."""
    return claim.phase is not Phase.GIVEN_UP and not (claim.is_ending and claim.cause in _TAKEN)


def shown_pause(nodepools: Iterable[Mapping[str, Any]]) -> Pause | None:
    """Return the pause that NodePool objects show in their conditions, None if none of them shows one."""
    for manifest in nodepools:
        for condition in (manifest.get("status") or {}).get("conditions") or ():
            if condition.get("type") == PAUSED and condition.get("status") == "True":
                message = str(condition.get("message") or "")
                since = parse_time(str(condition["lastTransitionTime"]))
                return Pause(since, message.removeprefix(str(Pause(since))).removeprefix(": "))
    return None


def pause_item(pause: Pause) -> dict[str, Any]:
    """Write a pause as JSON data."""
    until = {"until": pause.until.isoformat()} if pause.until else {}
    return {"since": pause.since.isoformat(), "reason": pause.reason, **until}


def read_pause(item: Mapping[str, Any]) -> Pause:
    """Read what `pause_item` wrote."""
    until = datetime.fromisoformat(item["until"]) if item.get("until") else None
    return Pause(datetime.fromisoformat(item["since"]), item["reason"], until)


def handover_item(handover: Handover) -> dict[str, Any]:
    """Write a handover as JSON data."""
    return {
        "at": handover.at.isoformat(),
        "toKarpenter": handover.to_karpenter,
        "settled": handover.is_settled,
    }


def read_handover(item: Mapping[str, Any]) -> Handover:
    """Read what `handover_item` wrote."""
    return Handover(datetime.fromisoformat(item["at"]), bool(item["toKarpenter"]), bool(item["settled"]))


def departure_item(departure: Departure) -> dict[str, Any]:
    """Write a departure as JSON data."""
    written: dict[str, Any] = {
        "claim": departure.claim,
        "nodepool": departure.nodepool,
        "at": departure.at.isoformat(),
    }
    if departure.bought_at is not None:
        written |= {"boughtAt": departure.bought_at.isoformat(), "attempts": dict(departure.attempts)}
    if departure.initialized_at is not None:
        written["initializedAt"] = departure.initialized_at.isoformat()
    details = {"cause": departure.cause, "use": departure.use, "removals_before": departure.removals_before}
    written |= {name: value for name, value in details.items() if value}
    return written | ({"served": list(departure.served)} if departure.served else {})


def read_departure(item: Mapping[str, Any]) -> Departure:
    """Read what `departure_item` wrote."""
    moments = (item.get(name) for name in ("at", "boughtAt", "initializedAt"))
    at, bought_at, initialized_at = (datetime.fromisoformat(text) if text else None for text in moments)
    assert at is not None  # noqa: S101
    attempts, served = FrozenMap[int](item.get("attempts")), tuple(item.get("served", ()))
    details = str(item.get("cause", "")), str(item.get("use", "")), int(item.get("removals_before", 0))
    return Departure(
        item["claim"], item["nodepool"], at, bought_at, initialized_at, attempts, served, *details
    )
