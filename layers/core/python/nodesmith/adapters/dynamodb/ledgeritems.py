"""DynamoDB: a cluster's ledger item by item, as it is read and written."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from nodesmith.adapters.dynamodb.partition import META, Attributes, Partition
from nodesmith.model.apimachinery.labels import RESERVATION_ID
from nodesmith.model.apimachinery.times import parse_time
from nodesmith.model.costs.allocations import to_book
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.ec2.zonalshifts import ZonalShift, read_shift
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.provisioningrequests import Gang, gang_item, read_gang
from nodesmith.model.ledger import moves
from nodesmith.model.ledger.items import (
    backoff_item,
    claim_from_item,
    claim_to_item,
    read_backoff,
    read_cluster,
    read_drain_time,
    read_health,
    read_risk,
)
from nodesmith.model.ledger.learned import Backoff, DrainTime, RegistrationHealth, Risk
from nodesmith.model.ledger.ledger import (
    Departure,
    Handover,
    Ledger,
    Pause,
    departure_item,
    read_departure,
    read_handover,
    read_pause,
)
from nodesmith.model.ledger.moves import Move, MoveKind
from nodesmith.model.ledger.region import Spending
from nodesmith.model.ledger.spending import Spent, month_end
from nodesmith.model.nodeclasses.status import ClusterInfo, NodeClassStatus, read_nodeclass

_KEPT_AFTER_BACKOFF = timedelta(days=1)
_KEPT_AFTER_MONTH = timedelta(days=35)


class LedgerReader:
    """A partition that is being read.

    `cached` holds the claims of the last read with their text, `texts` those of this read. Expired departures are
    omitted, because DynamoDB's TTL removes them with a delay.
    """

    def __init__(self, version: int, cached: Mapping[str, tuple[str, NodeClaim]], now: datetime) -> None:
        self._version, self._known, self._now = version, cached, now
        self.texts: dict[str, tuple[str, NodeClaim]] = {}
        self._cluster: ClusterInfo | None = None
        self._claims: list[NodeClaim] = []
        self._moves: list[Move] = []
        self._nodeclasses: dict[str, NodeClassStatus] = {}
        self._unavailable: dict[OfferingKey, Backoff] = {}
        self._backoffs: dict[str, Backoff] = {}
        self._health: dict[str, RegistrationHealth] = {}
        self._paused: Pause | None = None
        self._handover: Handover | None = None
        self._departures: list[Departure] = []
        self._risks: dict[OfferingKey, Risk] = {}
        self._drain_times: dict[str, DrainTime] = {}
        self._move_backoffs: dict[MoveKind, Backoff] = {}
        self._subnets: dict[str, Backoff] = {}
        self._contents: dict[str, str] = {}
        self._shifts: tuple[ZonalShift, ...] = ()
        self._gangs: list[Gang] = []
        self._spent: list[Spent] = []

    def take_all(self, items: Iterable[Attributes]) -> None:
        """Read several items."""
        for item in items:
            self.take(item)

    def take(self, item: Attributes) -> None:  # noqa: C901 (a case for each kind)
        """Read one item."""
        kind, _, name = item["sk"]["S"].partition("#")
        if kind == "CLAIM":
            self._claims.append(self._claim(name, item["doc"]["S"], int(item["revision"]["N"])))
            return
        document: Any = json.loads(item["doc"]["S"]) if "doc" in item else None
        match kind:  # a newer version may have written other kinds, which are ignored
            case "META":
                self._cluster = read_cluster(document) if document else None
            case "MOVE":
                self._moves.append(replace(moves.from_item(document), revision=int(item["revision"]["N"])))
            case "GANG":
                self._gangs.append(replace(read_gang(document), revision=int(item["revision"]["N"])))
            case "NODECLASS":
                self._nodeclasses[name] = read_nodeclass(document)
            case "OFFERING" | "GROUPOFFERING":
                self._unavailable[OfferingKey(*name.split("#")[:4])] = read_backoff(document)
            case "RISK":
                self._risks[OfferingKey(*name.split("#"))] = read_risk(document)
            case "DRAIN":
                self._drain_times[name] = read_drain_time(document)
            case "BACKOFF":
                self._backoffs[name] = read_backoff(document)
            case "MOVEBACKOFF":
                self._move_backoffs[MoveKind(*name.split("#"))] = read_backoff(document)
            case "SUBNET":
                self._subnets[name] = read_backoff(document)
            case "SHIFTS":
                self._shifts = tuple(map(read_shift, document))
            case "PAUSE":
                self._paused = read_pause(document)
            case "HANDOVER":
                self._handover = read_handover(document)
            case "DEPARTURE":
                self._departures.append(read_departure(document))
            case "CONTENT":
                self._contents[name] = document
            case "SPENT":
                month, labels = name.partition("#")[0], document["labels"]
                self._spent.append(Spent(month, labels, int(item["spent"]["N"])))
            case "HEALTH":
                self._health[name] = replace(read_health(document), revision=int(item["revision"]["N"]))

    def _claim(self, name: str, text: str, revision: int) -> NodeClaim:
        cached = self._known.get(name)
        claim = cached[1] if cached and cached[0] == text else claim_from_item(json.loads(text))
        if claim.revision != revision:
            claim = replace(claim, revision=revision)
        self.texts[name] = text, claim
        return claim

    def ledger(self) -> Ledger:
        """Return the ledger that was read."""
        claims = tuple(sorted(self._claims, key=lambda c: c.name))
        lately = [departure for departure in self._departures if self._now <= departure.kept_until]
        return Ledger(
            self._version,
            claims,
            self._nodeclasses,
            self._cluster,
            self._unavailable,
            self._backoffs,
            self._health,
            moves=tuple(sorted(self._moves, key=lambda m: m.id)),
            paused=self._paused,
            departures=tuple(sorted(lately, key=lambda d: d.claim)),
            risks=self._risks,
            drain_times=self._drain_times,
            move_backoffs=self._move_backoffs,
            subnet_backoffs=self._subnets,
            contents=self._contents,
            zonal_shifts=self._shifts,
            gangs=tuple(sorted(self._gangs, key=lambda gang: gang.id)),
            handover=self._handover,
            spending=Spending(spent=tuple(sorted(self._spent, key=lambda spent: spent.key))),
        )


def claim_of(partition: Partition, claim: NodeClaim) -> Attributes:
    """Return the item of a claim."""
    return partition.item(
        f"CLAIM#{claim.name}",
        claim_to_item(claim),
        revision=claim.revision,
        instance=claim.instance_id,
        reservation=claim.labels.get(RESERVATION_ID, ""),
    )


def spent_update(partition: Partition, spent: Spent) -> Attributes:
    """Return the update that adds what a node has cost. The item expires a month after its own."""
    expires = int((month_end(parse_time(f"{spent.month}-01T00:00:00Z")) + _KEPT_AFTER_MONTH).timestamp())
    document = json.dumps({"labels": dict(sorted(spent.labels.items()))}, separators=(",", ":"))
    return {
        "Key": partition.key(f"SPENT#{spent.key}"),
        "UpdateExpression": "SET doc = :doc, #ttl = :ttl ADD spent :amount",
        "ExpressionAttributeNames": {"#ttl": "ttl"},
        "ExpressionAttributeValues": {
            ":doc": {"S": document},
            ":ttl": {"N": str(expires)},
            ":amount": {"N": str(spent.amount)},
        },
    }


def move_of(partition: Partition, move: Move) -> Attributes:
    """Return the item of a move with its next revision."""
    saved = replace(move, revision=move.revision + 1)
    return partition.item(f"MOVE#{move.id}", moves.to_item(saved), revision=saved.revision)


def gang_of(partition: Partition, gang: Gang) -> Attributes:
    """Return the item of a gang with its next revision."""
    saved = replace(gang, revision=gang.revision + 1)
    return partition.item(f"GANG#{gang.id}", gang_item(saved), revision=saved.revision)


def departure_of_node(partition: Partition, departure: Departure) -> Attributes:
    """Return the item of a departure, which expires."""
    expires = int(departure.kept_until.timestamp())
    return partition.item(f"DEPARTURE#{departure.claim}", departure_item(departure), ttl=expires)


def backoff_of(partition: Partition, sk: str, backoff: Backoff) -> Attributes:
    """Return the item of a back-off, which expires."""
    expires = int((backoff.until + _KEPT_AFTER_BACKOFF).timestamp())
    return partition.item(sk, backoff_item(backoff), ttl=expires)


def offering_key(key: OfferingKey) -> str:
    """Return the sort key. Pools inside placement groups have a kind of their own, which earlier versions ignore."""
    return f"GROUPOFFERING#{pool_key(key)}" if key.group else f"OFFERING#{pool_key(key)}"


def pool_key(key: OfferingKey) -> str:
    """Return the part of a sort key that names a capacity pool."""
    within = f"#{key.group}" if key.group else ""
    return f"{key.capacity_type}#{key.instance_type}#{key.zone}{within}"


def version_condition(version: int) -> tuple[str, Attributes]:
    """Return the condition that a ledger still has this version, with its values."""
    condition = "version = :read" if version else "attribute_not_exists(version) OR version = :read"
    return condition, {":read": {"N": str(version)}}


def same_version(partition: Partition, version: int) -> Attributes:
    """Return an update that changes nothing, and that a commit at the same time conflicts with."""
    condition, values = version_condition(version)
    return {
        "Key": partition.key(META),
        "UpdateExpression": "SET version = :read",
        "ConditionExpression": condition,
        "ExpressionAttributeValues": values,
    }


# Ended nodes and moves, until cost allocation has booked them. No decision reads them, and `Found` ignores them.
_UNBOOKED = "UNBOOKED#"
_KEPT_UNBOOKED = timedelta(days=8)


class UnbookedItems:
    """The ended nodes and moves of one cluster that are not booked yet. Every call may raise Transient.

    Deleting them does not mark the ledger as changed.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def keep_claim(self, claim: NodeClaim, now: datetime) -> None:
        """Write a claim that is forgotten now, with what its cost depends on."""
        self._keep(f"claim#{claim.name}", claim_to_item(to_book(claim, now)), now)

    def keep_move(self, move: Move, now: datetime) -> None:
        """Write a move whose sources have begun to end."""
        self._keep(f"move#{move.id}", moves.to_item(move), now)

    def _keep(self, name: str, document: Mapping[str, Any], now: datetime) -> None:
        expires = int((now + _KEPT_UNBOOKED).timestamp())
        self._partition.put(self._partition.item(f"{_UNBOOKED}{name}", document, ttl=expires))

    def all(self) -> tuple[list[NodeClaim], list[Move]]:
        """Return the claims of ended nodes and the moves, by name and id."""
        documents = {
            item["sk"]["S"].removeprefix(_UNBOOKED): json.loads(item["doc"]["S"])
            for item in self._partition.items(_UNBOOKED)
        }
        claims = [claim_from_item(document) for sk, document in documents.items() if sk.startswith("claim#")]
        return claims, [
            moves.from_item(document) for sk, document in documents.items() if sk.startswith("move#")
        ]

    def booked(self, claims: Collection[str], moves: Collection[str]) -> None:
        """Delete claims by name and moves by id. Those that are gone are ignored."""
        sks = [*(f"{_UNBOOKED}claim#{name}" for name in claims), *(f"{_UNBOOKED}move#{id_}" for id_ in moves)]
        self._partition.delete_all(sks)
