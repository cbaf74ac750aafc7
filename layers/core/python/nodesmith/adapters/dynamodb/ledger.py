"""DynamoDB: the ledger of one cluster, in a single partition, and what all clusters of a region have learned.

`META` holds the version that commits are conditional on, when the ledger last changed (`changed`), and cluster details.
These items hold one document each: `CLAIM#name`, `MOVE#id`, `GANG#uid`, `NODECLASS#name`,
`OFFERING#capacityType#type#zone`, `GROUPOFFERING#capacityType#type#zone#placementGroup`,
`RISK#capacityType#type#zone`, `BACKOFF#nodepool`, `SUBNET#id`, `DRAIN#nodepool`, `MOVEBACKOFF#nodepool#reason`,
`CONTENT#kind/name` and `HEALTH#nodepool`. Claims, moves, gangs and health also have a revision. Claims also have their
instance and reservation, which the table indexes, so one write updates a claim and its index entries.

The table's TTL removes back-offs a day after they end, and risks when they become negligible. `PAUSE` exists while
disruption is paused, and `SHIFTS` while the cluster is shifted away from a zone. `DEPARTURE#claim` counts for an hour
or two after a node's termination began; the TTL removes it.
`TURN#concern` is a lock: it exists while a run does work that only one run may do at a time.

The CreateFleet calls that clusters of a region may make are in a partition that they share.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from nodesmith.adapters.aws.calls import transient_errors
from nodesmith.adapters.dynamodb.ledgermarks import KeptLedger, LedgerMark, Locks, read_mark
from nodesmith.adapters.dynamodb.partition import META, Attributes, Found, Partition, conflicts, written_once
from nodesmith.adapters.dynamodb.sharedpartition import take_calls
from nodesmith.model.apimachinery.labels import RESERVATION_ID
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.ec2.zonalshifts import ZonalShift, shift_item
from nodesmith.model.functions.hints import Concern
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.ledger import gangs, moves
from nodesmith.model.ledger.backoffs import Backoff, RegistrationHealth
from nodesmith.model.ledger.gangs import Gang
from nodesmith.model.ledger.interruptions import DrainTime, Risk
from nodesmith.model.ledger.items import (
    backoff_item,
    claim_to_item,
    cluster_item,
    drain_time_item,
    health_item,
    nodeclass_item,
    offered_item,
    read_offered,
    risk_item,
)
from nodesmith.model.ledger.learned import Boot, Offered
from nodesmith.model.ledger.ledger import Departure, Ledger, Pause, departure_item, departure_of, pause_item
from nodesmith.model.ledger.moves import Move, MoveKind
from nodesmith.model.nodeclasses.status import ClusterInfo, NodeClassStatus
from nodesmith.settings import learned_partition_key, partition_key

_KEPT_AFTER_BACKOFF = timedelta(days=1)


class DynamoStore:
    """The Store of one cluster. `client` is a boto3 DynamoDB client. Every call may raise Transient.

    `clock` determines which departures still count, when learned capacity expires, and when the ledger changed.
    """

    def __init__(self, client: Any, table: str, cluster: str, clock: Callable[[], datetime]) -> None:
        self._client, self._table, self._cluster, self._clock = client, table, cluster, clock
        self._unmarked = Partition(client, table, partition_key(cluster))
        self._mark = LedgerMark(self._unmarked, clock)
        self._partition = Partition(client, table, partition_key(cluster), self._mark.before_write)
        self._nodeclasses: Mapping[str, NodeClassStatus] = {}  # as last read
        self._locks = Locks(self._partition)
        self._claims: dict[str, tuple[str, NodeClaim]] = {}
        """Claims as last read, with their text. Most of thousands are unchanged at the next read."""
        self._kept = KeptLedger()

    def load(self) -> Ledger:
        """Return the ledger, strongly consistent. If its mark has not changed, only NodeClasses are read again.

        The version is read first, in a separate query, because a query is not a snapshot. If a commit lands during the
        read, the reader must have a version too old to commit on, never the new version with the old claims.
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
        self,
        version: int,
        claims: Sequence[NodeClaim],
        decision: str,
        move: Move | None = None,
        gang: Gang | None = None,
    ) -> None:
        """Write new claims and the move or gang that they are part of, and increment the version, in one transaction.

        Raises Conflict if `version` is outdated, a claim's name is taken, or the revision of move or gang has changed.
        """
        now = self._clock()
        new = [self._put(_claim(self._partition, replace(claim, revision=1)), 0) for claim in claims]
        moved = [self._put(_move(self._partition, move), move.revision)] if move else []
        moved += [self._put(_gang(self._partition, gang), gang.revision)] if gang else []
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
        """Write a claim if its revision has not changed, and return it with its new revision. Raises Conflict."""
        saved = replace(claim, revision=claim.revision + 1)
        self._partition.put_revised(_claim(self._partition, saved), claim.revision, f"NodeClaim {claim.name}")
        return saved

    def forget(self, claim: NodeClaim) -> None:
        """Delete a claim if its revision has not changed. One that is already gone is ignored. Raises Conflict.

        Its departure is written first. If the deletion then fails, the departure does not count twice.
        """
        departure = departure_of(claim)
        if departure is not None:
            self._partition.put(_departure(self._partition, departure))
        self._partition.delete_revised(f"CLAIM#{claim.name}", claim.revision, f"NodeClaim {claim.name}")

    def known(self, claims: Collection[str]) -> Collection[str]:
        """Return the names of those of these claims that exist, strongly consistent."""
        there = self._partition.there([f"CLAIM#{name}" for name in claims])
        return {sk.removeprefix("CLAIM#") for sk in there}

    def save_move(self, move: Move) -> Move:
        """Write a move if its revision has not changed, and return it with its new revision. Raises Conflict."""
        self._partition.put_revised(_move(self._partition, move), move.revision, f"move {move.id}")
        return replace(move, revision=move.revision + 1)

    def forget_move(self, move: Move) -> None:
        """Delete a move if its revision has not changed. One that is already gone is ignored. Raises Conflict."""
        self._partition.delete_revised(f"MOVE#{move.id}", move.revision, f"move {move.id}")

    def save_gang(self, gang: Gang) -> Gang:
        """Write a gang if its revision has not changed, and return it with its new revision. Raises Conflict."""
        self._partition.put_revised(_gang(self._partition, gang), gang.revision, f"gang of {gang.request}")
        return replace(gang, revision=gang.revision + 1)

    def forget_gang(self, gang: Gang) -> None:
        """Delete a gang if its revision has not changed. One that is already gone is ignored. Raises Conflict."""
        self._partition.delete_revised(f"GANG#{gang.id}", gang.revision, f"gang of {gang.request}")

    def take_lock(self, concern: Concern, now: datetime, until: datetime) -> bool:
        """Lock a concern until `until`. If another run holds the lock, record the attempt and return False."""
        return self._locks.take(concern, now, until)

    def release_lock(self, concern: Concern, until: datetime) -> bool:
        """Release the lock that expires at `until`. Return True if another run tried to take it meanwhile."""
        return self._locks.end(concern, until)

    def take_calls(self, wanted: int, now: datetime) -> int:
        """Take calls from the region's budget of CreateFleet calls, and return how many were granted."""
        return take_calls(self._client, self._table, self._cluster, wanted, now)

    def pause(self, pause: Pause | None) -> None:
        """Pause voluntary disruption, or resume it if `pause` is None."""
        if pause is None:
            self._partition.delete("PAUSE")
        else:
            self._partition.put(self._partition.item("PAUSE", pause_item(pause)))

    def save_zonal_shifts(self, shifts: Sequence[ZonalShift]) -> None:
        """Write the cluster's zonal shifts, which replace the previous ones."""
        if shifts:
            self._partition.put(self._partition.item("SHIFTS", [*map(shift_item, shifts)]))
        else:
            self._partition.delete("SHIFTS")

    def save_nodeclass(self, status: NodeClassStatus) -> None:
        """Write the resolved status of an EC2NodeClass. If it says the same as before, the ledger is not marked."""
        is_same = status.says_the_same_as(self._nodeclasses.get(status.name))
        partition = self._unmarked if is_same else self._partition
        partition.put(partition.item(f"NODECLASS#{status.name}", nodeclass_item(status)))

    def forget_nodeclass(self, name: str) -> None:
        """Delete the resolved status of an EC2NodeClass."""
        self._partition.delete(f"NODECLASS#{name}")

    def save_contents(self, contents: Mapping[str, str]) -> None:
        """Write the content hashes of objects, by `Kind/name`."""
        items = [self._partition.item(f"CONTENT#{key}", content) for key, content in sorted(contents.items())]
        self._partition.write([{"PutRequest": {"Item": item}} for item in items])

    def forget_contents(self, keys: Collection[str]) -> None:
        """Delete the content hashes of objects that no longer exist, by `Kind/name`."""
        found = [self._partition.key(f"CONTENT#{key}") for key in sorted(keys)]
        self._partition.write([{"DeleteRequest": {"Key": key}} for key in found])

    def save_cluster(self, cluster: ClusterInfo) -> None:
        """Write the cluster details, next to the version."""
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
        """Write the interruption risks of offerings. Each expires when it becomes negligible."""
        items = [
            self._partition.item(
                f"RISK#{_pool(key)}", risk_item(risk), ttl=int(risk.forgotten_at.timestamp())
            )
            for key, risk in risks.items()
        ]
        self._partition.write([{"PutRequest": {"Item": item}} for item in items])

    def save_drain_time(self, nodepool: str, drain_time: DrainTime) -> None:
        """Write how long draining a NodePool's nodes takes. It expires when it becomes negligible."""
        expires = int(drain_time.forgotten_at.timestamp())
        item = self._partition.item(f"DRAIN#{nodepool}", drain_time_item(drain_time), ttl=expires)
        self._partition.put(item)

    def clear_unavailable(self, offerings: Collection[OfferingKey]) -> None:
        """Delete back-offs of offerings."""
        keys = [self._partition.key(_offering(key)) for key in offerings]
        self._partition.write([{"DeleteRequest": {"Key": key}} for key in keys])

    def save_nodepool_backoff(self, nodepool: str, backoff: Backoff | None) -> None:
        """Write a NodePool's back-off, or delete it if `backoff` is None."""
        if backoff is None:
            self._partition.delete(f"BACKOFF#{nodepool}")
        else:
            self._partition.put(_backoff(self._partition, f"BACKOFF#{nodepool}", backoff))

    def save_move_backoff(self, kind: MoveKind, backoff: Backoff | None) -> None:
        """Write the back-off of a NodePool's moves for one reason, or delete it if `backoff` is None."""
        sk = f"MOVEBACKOFF#{kind.nodepool}#{kind.reason}"
        if backoff is None:
            self._partition.delete(sk)
        else:
            self._partition.put(_backoff(self._partition, sk, backoff))

    def save_health(self, nodepool: str, health: RegistrationHealth) -> None:
        """Write a NodePool's registration health if its revision has not changed. Raises Conflict."""
        saved = replace(health, revision=health.revision + 1)
        item = self._partition.item(f"HEALTH#{nodepool}", health_item(saved), revision=saved.revision)
        self._partition.put_revised(item, health.revision, f"registration health of NodePool {nodepool}")

    def forget_health(self, nodepool: str) -> None:
        """Delete a NodePool's registration health."""
        self._partition.delete(f"HEALTH#{nodepool}")

    def learned(self) -> dict[Boot, Offered]:
        """Return the observed node capacity of the region, eventually consistent."""
        return read_learned(self._client, self._table)

    def learn(self, offered: Mapping[Boot, Offered]) -> None:
        """Write observed node capacity. It expires after half a year."""
        write_learned(self._client, self._table, offered, self._clock())


def _claim(partition: Partition, claim: NodeClaim) -> Attributes:
    return partition.item(
        f"CLAIM#{claim.name}",
        claim_to_item(claim),
        revision=claim.revision,
        instance=claim.instance_id,
        reservation=claim.labels.get(RESERVATION_ID, ""),
    )


def _move(partition: Partition, move: Move) -> Attributes:
    """Return the item of a move with its next revision."""
    saved = replace(move, revision=move.revision + 1)
    return partition.item(f"MOVE#{move.id}", moves.to_item(saved), revision=saved.revision)


def _gang(partition: Partition, gang: Gang) -> Attributes:
    """Return the item of a gang with its next revision."""
    saved = replace(gang, revision=gang.revision + 1)
    return partition.item(f"GANG#{gang.id}", gangs.to_item(saved), revision=saved.revision)


def _departure(partition: Partition, departure: Departure) -> Attributes:
    expires = int(departure.kept_until.timestamp())
    return partition.item(f"DEPARTURE#{departure.claim}", departure_item(departure), ttl=expires)


def _backoff(partition: Partition, sk: str, backoff: Backoff) -> Attributes:
    expires = int((backoff.until + _KEPT_AFTER_BACKOFF).timestamp())
    return partition.item(sk, backoff_item(backoff), ttl=expires)


def _offering(key: OfferingKey) -> str:
    """Return the sort key. Pools inside placement groups have a kind of their own, which earlier versions ignore."""
    return f"GROUPOFFERING#{_pool(key)}" if key.group else f"OFFERING#{_pool(key)}"


def _pool(key: OfferingKey) -> str:
    within = f"#{key.group}" if key.group else ""
    return f"{key.capacity_type}#{key.instance_type}#{key.zone}{within}"


# Observed node capacity is in a partition that all clusters of a region share, as `{pk, sk: type#image, doc}`. The
# last write wins. The next such node restores what a write has lost.
_KEPT = timedelta(days=180)


def read_learned(client: Any, table: str) -> dict[Boot, Offered]:
    """Return all entries, eventually consistent. `client` is a boto3 DynamoDB client. Raises Transient."""
    pages = client.get_paginator("query").paginate(
        TableName=table,
        KeyConditionExpression="pk = :pk",
        ExpressionAttributeValues={":pk": {"S": _partition(client)}},
    )
    found: dict[Boot, Offered] = {}
    with transient_errors("dynamodb:Query"):
        for page in pages:
            for item in page["Items"]:
                boot = Boot(*item["sk"]["S"].split("#"))
                found[boot] = read_offered(json.loads(item["doc"]["S"]))
    return found


def write_learned(client: Any, table: str, offered: Mapping[Boot, Offered], now: datetime) -> None:
    """Write `offered`. Entries expire after half a year, so that no error lasts forever. Raises Transient."""
    expires = str(int((now + _KEPT).timestamp()))
    for boot in sorted(offered):
        item = {
            "pk": {"S": _partition(client)},
            "sk": {"S": f"{boot.instance_type}#{boot.image_id}"},
            "doc": {"S": json.dumps(offered_item(offered[boot]), separators=(",", ":"))},
            "ttl": {"N": expires},
        }
        with transient_errors("dynamodb:PutItem"):
            client.put_item(TableName=table, Item=item)


def _partition(client: Any) -> str:
    return learned_partition_key(client.meta.region_name)
