"""DynamoDB: the ledger of one cluster, all of it in one partition.

`META` carries the version that commits are conditional on, when the ledger last changed (`changed`) and what is known
of the cluster. One document each hold `CLAIM#name`, `MOVE#id`, `NODECLASS#name`, `OFFERING#capacityType#type#zone`,
`RISK#capacityType#type#zone`, `BACKOFF#nodepool`, `SUBNET#id`, `DRAIN#nodepool`, `MOVEBACKOFF#nodepool#reason`,
`CONTENT#kind/name` and `HEALTH#nodepool`. Claims, moves and health have their revision beside it, and claims their
instance and reservation, by which the table has indexes: so a claim and the way to it are one write.

Back-offs expire by the table's TTL a day after they end, risks when they come to nothing. `PAUSE` is there while
disruption is paused, `DEPARTURE#claim` for an hour or two after a node's end began, and until the TTL.
`TURN#concern` is there while a run does what one does at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from nodesmith.adapters.aws.errors import transient_errors
from nodesmith.adapters.dynamodb.learned import read_learned, write_learned
from nodesmith.adapters.dynamodb.ledgercache import KeptLedger
from nodesmith.adapters.dynamodb.ledgermarks import LedgerMark, read_mark
from nodesmith.adapters.dynamodb.locks import Locks
from nodesmith.adapters.dynamodb.partition import META, Partition, conflicts, written_once
from nodesmith.adapters.dynamodb.reading import Attributes, Found
from nodesmith.model.apimachinery.labels import RESERVATION_ID
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.functions.hints import Concern
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.ledger import moves
from nodesmith.model.ledger.backoffs import Backoff
from nodesmith.model.ledger.draintimes import DrainTime
from nodesmith.model.ledger.items import (
    backoff_item,
    cluster_item,
    drain_time_item,
    health_item,
    nodeclass_item,
    risk_item,
)
from nodesmith.model.ledger.learned import Boot, Offered
from nodesmith.model.ledger.ledger import Ledger
from nodesmith.model.ledger.moves import Move, MoveKind
from nodesmith.model.ledger.nodeclaimitems import to_item
from nodesmith.model.ledger.pauses import Departure, Pause, departure_item, departure_of, pause_item
from nodesmith.model.ledger.registrationhealth import RegistrationHealth
from nodesmith.model.ledger.risks import Risk
from nodesmith.model.nodeclasses.status import ClusterInfo, NodeClassStatus
from nodesmith.settings import partition_key

_KEPT_AFTER_BACKOFF = timedelta(days=1)


class DynamoStore:
    """The Store of one cluster. `client` is a boto3 DynamoDB client. Every call may raise Transient.

    `clock` says which departures still count, when what has been learned expires, and when the ledger changed.
    """

    def __init__(self, client: Any, table: str, cluster: str, clock: Callable[[], datetime]) -> None:
        self._client, self._table, self._clock = client, table, clock
        self._unmarked = Partition(client, table, partition_key(cluster))
        self._mark = LedgerMark(self._unmarked, clock)
        self._partition = Partition(client, table, partition_key(cluster), self._mark.before_write)
        self._nodeclasses: Mapping[str, NodeClassStatus] = {}  # as last read
        self._locks = Locks(self._partition)
        self._claims: dict[str, tuple[str, NodeClaim]] = {}
        """Claims as last read, with their text: of thousands hardly any differs at the next look."""
        self._kept = KeptLedger()

    def load(self) -> Ledger:
        """Read the whole partition, strongly consistent; what it says of itself where nothing else has changed.

        The version is read first, by itself: a query is no snapshot, and a commit that lands while it runs must
        leave its reader with a version too old to commit on, never with the new version and the old claims.
        """
        now = self._clock()
        version, changed = read_mark(self._partition)
        kept = self._kept.at(version, changed, now)
        found = Found(version, self._claims, now)
        found.take_all(self._partition.items("NODECLASS#" if kept else ""))
        ledger = found.ledger()
        self._nodeclasses = ledger.nodeclasses
        if kept is not None:
            return replace(kept, nodeclasses=ledger.nodeclasses)
        self._claims = found.texts
        self._kept.keep(ledger, changed, now)
        return ledger

    def commit(
        self, version: int, claims: Sequence[NodeClaim], decision: str, move: Move | None = None
    ) -> None:
        """Write new claims, and the move they are part of, and move the version on, in one transaction.

        Raises Conflict.
        """
        now = self._clock()
        new = [self._put(_claim(self._partition, replace(claim, revision=1)), 0) for claim in claims]
        moved = [self._put(_move(self._partition, move), move.revision)] if move else []
        with conflicts(f"version {version} of {self._partition.pk} is no longer the newest"):
            self._client.transact_write_items(
                TransactItems=[self._next(version, decision, now), *new, *moved]
            )
        self._mark.is_written(now)

    def _next(self, version: int, decision: str, now: datetime) -> Attributes:
        condition = "version = :read" if version else "attribute_not_exists(version) OR version = :read"
        values = {
            ":next": {"N": str(version + 1)},
            ":read": {"N": str(version)},
            ":decision": {"S": decision},
            ":changed": {"S": format_time(now)},
        }
        update = {
            "TableName": self._table,
            "Key": self._partition.key(META),
            "UpdateExpression": "SET version = :next, decision = :decision, changed = :changed",
            "ConditionExpression": condition,
            "ExpressionAttributeValues": values,
        }
        return {"Update": update}

    def _put(self, item: Attributes, revision: int) -> Attributes:
        return {"Put": {"TableName": self._table, "Item": item, **written_once(revision)}}

    def save(self, claim: NodeClaim) -> NodeClaim:
        """Write a claim's progress on condition of its revision. Raises Conflict."""
        saved = replace(claim, revision=claim.revision + 1)
        self._partition.put_revised(_claim(self._partition, saved), claim.revision, f"NodeClaim {claim.name}")
        return saved

    def forget(self, claim: NodeClaim) -> None:
        """Delete a claim on condition of its revision; gone already is fine. Raises Conflict.

        Its departure is written before: one of a claim that is still there is no second one.
        """
        departure = departure_of(claim)
        if departure is not None:
            self._partition.put(_departure(self._partition, departure))
        self._partition.delete_revised(f"CLAIM#{claim.name}", claim.revision, f"NodeClaim {claim.name}")

    def known(self, claims: Collection[str]) -> Collection[str]:
        """Return those of these claims that are there, strongly consistent."""
        there = self._partition.there([f"CLAIM#{name}" for name in claims])
        return {sk.removeprefix("CLAIM#") for sk in there}

    def save_move(self, move: Move) -> Move:
        """Write a move's progress, or a new move, on condition of its revision. Raises Conflict."""
        self._partition.put_revised(_move(self._partition, move), move.revision, f"move {move.id}")
        return replace(move, revision=move.revision + 1)

    def forget_move(self, move: Move) -> None:
        """Delete a move on condition of its revision; gone already is fine. Raises Conflict."""
        self._partition.delete_revised(f"MOVE#{move.id}", move.revision, f"move {move.id}")

    def take_lock(self, concern: Concern, now: datetime, until: datetime) -> bool:
        """Begin a turn where there is none, or one that is over; else mark that somebody came, and give False."""
        return self._locks.take(concern, now, until)

    def release_lock(self, concern: Concern, until: datetime) -> bool:
        """End that very turn; True where somebody came."""
        return self._locks.end(concern, until)

    def pause(self, pause: Pause | None) -> None:
        """Write that disruption is paused or, with None, that it goes on."""
        if pause is None:
            self._partition.delete("PAUSE")
        else:
            self._partition.put(self._partition.item("PAUSE", pause_item(pause)))

    def save_nodeclass(self, status: NodeClassStatus) -> None:
        """Write what an EC2NodeClass resolved to. That it was looked at again is no change."""
        is_same = status.says_the_same_as(self._nodeclasses.get(status.name))
        partition = self._unmarked if is_same else self._partition
        partition.put(partition.item(f"NODECLASS#{status.name}", nodeclass_item(status)))

    def forget_nodeclass(self, name: str) -> None:
        """Delete an EC2NodeClass's resolution."""
        self._partition.delete(f"NODECLASS#{name}")

    def save_contents(self, contents: Mapping[str, str]) -> None:
        """Write content hashes of objects by `Kind/name`."""
        items = [self._partition.item(f"CONTENT#{key}", content) for key, content in sorted(contents.items())]
        self._partition.write([{"PutRequest": {"Item": item}} for item in items])

    def forget_contents(self, keys: Collection[str]) -> None:
        """Delete the content hashes of objects that are gone."""
        found = [self._partition.key(f"CONTENT#{key}") for key in sorted(keys)]
        self._partition.write([{"DeleteRequest": {"Key": key}} for key in found])

    def save_cluster(self, cluster: ClusterInfo) -> None:
        """Write what is known of the cluster, beside the version."""
        self._mark.before_write()
        with transient_errors("dynamodb:UpdateItem"):
            self._client.update_item(
                TableName=self._table,
                Key=self._partition.key(META),
                UpdateExpression="SET doc = :doc",
                ExpressionAttributeValues={":doc": {"S": json.dumps(cluster_item(cluster))}},
            )

    def save_unavailable(self, offerings: Mapping[OfferingKey, Backoff]) -> None:
        """Write back-offs of offerings."""
        items = [_backoff(self._partition, _offering(key), backoff) for key, backoff in offerings.items()]
        self._partition.write([{"PutRequest": {"Item": item}} for item in items])

    def save_subnet_backoffs(self, subnets: Mapping[str, Backoff]) -> None:
        """Write back-offs of subnets, by id."""
        items = [_backoff(self._partition, f"SUBNET#{id_}", backoff) for id_, backoff in subnets.items()]
        self._partition.write([{"PutRequest": {"Item": item}} for item in items])

    def save_risks(self, risks: Mapping[OfferingKey, Risk]) -> None:
        """Write what pools' interruptions come to; each expires when it comes to nothing."""
        items = [
            self._partition.item(
                f"RISK#{_pool(key)}", risk_item(risk), ttl=int(risk.forgotten_at.timestamp())
            )
            for key, risk in risks.items()
        ]
        self._partition.write([{"PutRequest": {"Item": item}} for item in items])

    def save_drain_time(self, nodepool: str, drain_time: DrainTime) -> None:
        """Write how long drains of a NodePool's nodes took; it expires when it comes to nothing."""
        expires = int(drain_time.forgotten_at.timestamp())
        item = self._partition.item(f"DRAIN#{nodepool}", drain_time_item(drain_time), ttl=expires)
        self._partition.put(item)

    def clear_unavailable(self, offerings: Collection[OfferingKey]) -> None:
        """Delete back-offs of offerings."""
        keys = [self._partition.key(_offering(key)) for key in offerings]
        self._partition.write([{"DeleteRequest": {"Key": key}} for key in keys])

    def save_nodepool_backoff(self, nodepool: str, backoff: Backoff | None) -> None:
        """Write or, with None, delete a NodePool's back-off."""
        if backoff is None:
            self._partition.delete(f"BACKOFF#{nodepool}")
        else:
            self._partition.put(_backoff(self._partition, f"BACKOFF#{nodepool}", backoff))

    def save_move_backoff(self, kind: MoveKind, backoff: Backoff | None) -> None:
        """Write or, with None, delete the back-off of a NodePool's moves for one reason."""
        sk = f"MOVEBACKOFF#{kind.nodepool}#{kind.reason}"
        if backoff is None:
            self._partition.delete(sk)
        else:
            self._partition.put(_backoff(self._partition, sk, backoff))

    def save_health(self, nodepool: str, health: RegistrationHealth) -> None:
        """Write whether a NodePool's nodes join, on condition of its revision. Raises Conflict."""
        saved = replace(health, revision=health.revision + 1)
        item = self._partition.item(f"HEALTH#{nodepool}", health_item(saved), revision=saved.revision)
        self._partition.put_revised(item, health.revision, f"what is known of NodePool {nodepool}")

    def forget_health(self, nodepool: str) -> None:
        """Delete what is known of a NodePool."""
        self._partition.delete(f"HEALTH#{nodepool}")

    def learned(self) -> dict[Boot, Offered]:
        """Read what nodes have been seen to offer in the region, eventually consistent."""
        return read_learned(self._client, self._table)

    def learn(self, offered: Mapping[Boot, Offered]) -> None:
        """Write what nodes have been seen to offer; it expires half a year later."""
        write_learned(self._client, self._table, offered, self._clock())


def _claim(partition: Partition, claim: NodeClaim) -> Attributes:
    return partition.item(
        f"CLAIM#{claim.name}",
        to_item(claim),
        revision=claim.revision,
        instance=claim.instance_id,
        reservation=claim.labels.get(RESERVATION_ID, ""),
    )


def _move(partition: Partition, move: Move) -> Attributes:
    """Return a move as it is from this write on."""
    saved = replace(move, revision=move.revision + 1)
    return partition.item(f"MOVE#{move.id}", moves.to_item(saved), revision=saved.revision)


def _departure(partition: Partition, departure: Departure) -> Attributes:
    expires = int(departure.kept_until.timestamp())
    return partition.item(f"DEPARTURE#{departure.claim}", departure_item(departure), ttl=expires)


def _backoff(partition: Partition, sk: str, backoff: Backoff) -> Attributes:
    expires = int((backoff.until + _KEPT_AFTER_BACKOFF).timestamp())
    return partition.item(sk, backoff_item(backoff), ttl=expires)


def _offering(key: OfferingKey) -> str:
    return f"OFFERING#{_pool(key)}"


def _pool(key: OfferingKey) -> str:
    return f"{key.capacity_type}#{key.instance_type}#{key.zone}"
