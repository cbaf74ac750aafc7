"""DynamoDB: the ledger of one cluster, in a single partition, and what all clusters of a region have learned.

`META` holds the version that commits are conditional on, when the ledger last changed (`changed`), the launches of the
last hour, and cluster details. `SPENT#month#labels` holds what nodes that are gone have cost in a month.
These items hold one document each: `CLAIM#name`, `MOVE#id`, `GANG#uid`, `NODECLASS#name`,
`OFFERING#capacityType#type#zone`, `GROUPOFFERING#capacityType#type#zone#placementGroup`,
`RISK#capacityType#type#zone`, `BACKOFF#nodepool`, `SUBNET#id`, `DRAIN#nodepool`, `MOVEBACKOFF#nodepool#reason`,
`CONTENT#kind/name` and `HEALTH#nodepool`. Claims, moves, gangs and health also have a revision. Claims also have their
instance and reservation, which the table indexes, so one write updates a claim and its index entries.

The table's TTL removes back-offs a day after they end, and risks when they become negligible. `PAUSE` exists while
disruption is paused, `HANDOVER` once Karpenter's nodes were adopted or released, and `SHIFTS` during a zonal shift.
`DEPARTURE#claim` counts for an hour or two after a node's termination began. `UNBOOKED#claim#name` and
`UNBOOKED#move#id` wait for cost allocation. `TURN#concern` is a lock: it exists while a run does work that only one run
may do at a time. Data that clusters of a region share is in other partitions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from nodesmith.adapters.aws.calls import transient_errors
from nodesmith.adapters.dynamodb.ledgeritems import (
    LedgerReader,
    UnbookedItems,
    backoff_of,
    claim_of,
    departure_of_node,
    gang_of,
    move_of,
    offering_key,
    pool_key,
    same_version,
    spent_update,
    version_condition,
)
from nodesmith.adapters.dynamodb.ledgermarks import (
    MARK,
    KeptLedger,
    LedgerMark,
    Locks,
    read_mark,
)
from nodesmith.adapters.dynamodb.partition import (
    META,
    Attributes,
    LostShare,
    Partition,
    conflicts,
    written_once,
)
from nodesmith.adapters.dynamodb.regionitems import SharedItems, read_learned, write_learned
from nodesmith.errors import Conflict
from nodesmith.keys import partition_key
from nodesmith.model.apimachinery.times import format_time
from nodesmith.model.ec2.launches import OfferingKey
from nodesmith.model.ec2.zonalshifts import ZonalShift, shift_item
from nodesmith.model.functions import Concern
from nodesmith.model.karpenter.nodeclaims import NodeClaim
from nodesmith.model.kubernetes.provisioningrequests import Gang
from nodesmith.model.ledger.items import cluster_item, drain_time_item, health_item, risk_item
from nodesmith.model.ledger.learned import Backoff, Boot, DrainTime, Offered, RegistrationHealth, Risk
from nodesmith.model.ledger.ledger import Handover, Ledger, Pause, departure_of, handover_item, pause_item
from nodesmith.model.ledger.moves import Move, MoveKind, Stage
from nodesmith.model.ledger.region import Scarcity, Spending
from nodesmith.model.ledger.spending import spent_by
from nodesmith.model.nodeclasses.status import ClusterInfo, NodeClassStatus, nodeclass_item
from nodesmith.model.policies import LAUNCHES_OF_CLUSTER

_COMMITTED = "SET version = :next, decision = :decision, changed = :changed, launches = :launches"
_SHARE_ATTEMPTS = 8  # of a commit, while other clusters commit at the same time


class DynamoStore:
    """The Store of one cluster. `client` is a boto3 DynamoDB client. Every call may raise Transient.

    `clock` determines which departures still count, when learned capacity expires, and when the ledger changed.
    `most_launches` is how many nodes may be requested within an hour. With `shares`, the store also reads what clusters
    share, and writes what this one takes of it: every function that buys nodes must.
    """

    def __init__(
        self,
        client: Any,
        table: str,
        cluster: str,
        clock: Callable[[], datetime],
        *,
        most_launches: int = LAUNCHES_OF_CLUSTER,
        shares: bool = False,
    ) -> None:
        self._client, self._table, self._clock = client, table, clock
        self._unmarked = Partition(client, table, partition_key(cluster))
        self.unbooked = UnbookedItems(self._unmarked)
        self._mark = LedgerMark(self._unmarked, clock)
        self._partition = Partition(client, table, partition_key(cluster), self._mark.before_write)
        self._nodeclasses: Mapping[str, NodeClassStatus] = {}  # as last read
        self._locks, self._kept = Locks(self._partition), KeptLedger()
        self._claims: dict[str, tuple[str, NodeClaim]] = {}
        """Claims as last read, with their text. Most of thousands are unchanged at the next read."""
        self._most_launches = most_launches
        self._region = SharedItems(client, table, cluster)
        self._shared = self._region if shares else None
        self._last: Ledger | None = None  # as last read, with the commits since

    def load(self) -> Ledger:
        """Return the ledger, strongly consistent. If its mark has not changed, only NodeClasses are read again.

        The version is read first, in a separate query, because a query is not a snapshot. If a commit lands during the
        read, the reader must have a version too old to commit on, never the new version with the old claims.
        """
        now, region = self._clock(), None
        if self._shared is not None:
            meta, region = self._shared.with_mark(self._partition)
        else:
            meta = self._partition.attributes(META, *MARK)
        version, changed, launches = read_mark(meta)
        cached = self._kept.at(version, changed, now)
        items = LedgerReader(version, self._claims, now)
        items.take_all(self._partition.items("NODECLASS#" if cached else ""))
        ledger = items.ledger()
        self._nodeclasses = ledger.nodeclasses
        if cached is None:
            self._claims = items.texts
            self._kept.keep(ledger, changed, now)
        ledger = ledger if cached is None else replace(cached, nodeclasses=ledger.nodeclasses)
        spending = Spending(launches, self._most_launches, ledger.spending.spent, region)
        self._last = replace(ledger, spending=spending)
        return self._last

    def commit(
        self,
        version: int,
        claims: Sequence[NodeClaim],
        decision: str,
        move: Move | None = None,
        gang: Gang | None = None,
        changed: Sequence[NodeClaim] = (),
    ) -> None:
        """Write new and `changed` claims and their move or gang, and increment the version, in one transaction.

        Raises Conflict if `version` is outdated, a new name is taken, or the revision of anything else has changed.
        """
        now, ledger = self._clock(), self._last or self.load()
        if ledger.version != version:
            raise Conflict(f"version {version} of {self._partition.pk} is no longer the newest")
        written = [*(replace(claim, revision=0) for claim in claims), *changed]
        saved = [(replace(claim, revision=claim.revision + 1), claim.revision) for claim in written]
        new = [self._put(claim_of(self._partition, claim), revision) for claim, revision in saved]
        new += [self._put(move_of(self._partition, move), move.revision)] if move else []
        new += [self._put(gang_of(self._partition, gang), gang.revision)] if gang else []
        spending = self._charged(ledger, claims, decision, now, new)
        names = {claim.name for claim, _ in saved}
        after = (*(c for c in ledger.claims if c.name not in names), *(claim for claim, _ in saved))
        self._last = replace(ledger, version=version + 1, claims=after, spending=spending)
        self._mark.is_written(now)

    def _charged(
        self, last: Ledger, claims: Sequence[NodeClaim], decision: str, now: datetime, items: list[Attributes]
    ) -> Spending:
        """Write a commit, together with what the cluster then takes of what clusters share; return the latter.

        If only another cluster's commit is in the way, it is tried again with what is left. Raises Conflict.
        """
        shared, before, version = self._shared, last.spending, last.version
        stale = f"version {version} of {self._partition.pk} is no longer the newest"
        for _ in range(_SHARE_ATTEMPTS):
            after = before.charged(last.claims, claims, now)
            region = after.region if after is not before else None
            region_items = [shared.put(region)] if shared is not None and region is not None else []
            transaction = [self._next(version, decision, now, after), *items, *region_items]
            try:
                with conflicts(stale, len(transaction) - 1):
                    self._client.transact_write_items(TransactItems=transaction)
            except LostShare:
                if shared is None or region is None:
                    raise
                before = replace(before, region=shared.region())
                continue
            return replace(after, region=region and replace(region, revision=region.revision + 1))
        raise Conflict("other clusters have bought nodes at each attempt")

    def _next(self, version: int, decision: str, now: datetime, spending: Spending) -> Attributes:
        condition, values = version_condition(version)
        values |= {
            ":next": {"N": str(version + 1)},
            ":decision": {"S": decision},
            ":changed": {"S": format_time(now)},
            ":launches": {"S": json.dumps(spending.launches.to_item(), separators=(",", ":"))},
        }
        update = {"UpdateExpression": _COMMITTED, "ConditionExpression": condition}
        key = {"TableName": self._table, "Key": self._partition.key(META)}
        return {"Update": {**key, **update, "ExpressionAttributeValues": values}}

    def save_shares(self) -> None:
        """Write what the cluster takes of the limits that clusters share, unless that is written already.

        It does nothing if other clusters or this one commit at each attempt: the next run repeats it.
        """
        shared = self._shared
        if shared is None or not (stored := shared.region()).is_used:
            return
        for _ in range(_SHARE_ATTEMPTS):
            ledger, now = self.load(), self._clock()
            region = ledger.spending.region or stored
            shares = region.own_shares(ledger.claims, ledger.spending.spent, now)
            after = region.with_own(shares)
            if after.shares == region.shares:
                return
            same = {"Update": {"TableName": self._table, **same_version(self._partition, ledger.version)}}
            with suppress(Conflict), conflicts("what clusters share has changed"):
                self._client.transact_write_items(TransactItems=[same, shared.put(after)])
                return

    def _put(self, item: Attributes, revision: int) -> Attributes:
        return {"Put": {"TableName": self._table, "Item": item, **written_once(revision)}}

    def save(self, claim: NodeClaim) -> NodeClaim:
        """Write a claim if its revision has not changed, and return it with its new revision. Raises Conflict."""
        saved = replace(claim, revision=claim.revision + 1)
        item = claim_of(self._partition, saved)
        self._partition.put_revised(item, claim.revision, f"NodeClaim {claim.name}")
        return saved

    def forget(self, claim: NodeClaim) -> None:
        """Delete a claim if its revision has not changed. One that is already gone is ignored. Raises Conflict.

        Its departure is written first, and counts once even if the deletion then fails. The transaction that deletes
        the claim also adds its node's cost in this month, so it is added exactly once.
        """
        if claim.instance_id:
            self.unbooked.keep_claim(claim, self._clock())
        if (departure := departure_of(claim)) is not None:
            self._partition.put(departure_of_node(self._partition, departure))
        sk, subject = f"CLAIM#{claim.name}", f"NodeClaim {claim.name}"
        spent = spent_by(claim, self._clock())
        if spent is None:
            self._partition.delete_revised(sk, claim.revision, subject)
            return
        try:
            self._partition.delete_adding(sk, claim.revision, subject, spent_update(self._partition, spent))
        except Conflict:
            if self._partition.existing_sort_keys([sk]):
                raise

    def existing_claims(self, claims: Collection[str]) -> Collection[str]:
        """Return the names of those of these claims that exist, strongly consistent."""
        existing = self._partition.existing_sort_keys([f"CLAIM#{name}" for name in claims])
        return {sk.removeprefix("CLAIM#") for sk in existing}

    def save_move(self, move: Move) -> Move:
        """Write a move if its revision has not changed, and return it with its new revision. Raises Conflict."""
        self._partition.put_revised(move_of(self._partition, move), move.revision, f"move {move.id}")
        return replace(move, revision=move.revision + 1)

    def forget_move(self, move: Move) -> None:
        """Delete a move if its revision has not changed. One that is already gone is ignored. Raises Conflict."""
        if move.stage is Stage.ENDING:
            self.unbooked.keep_move(move, self._clock())
        self._partition.delete_revised(f"MOVE#{move.id}", move.revision, f"move {move.id}")

    def save_gang(self, gang: Gang) -> Gang:
        """Write a gang if its revision has not changed, and return it with its new revision. Raises Conflict."""
        self._partition.put_revised(gang_of(self._partition, gang), gang.revision, f"gang of {gang.request}")
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
        return self._region.take_calls(wanted, now)

    def record_scarcity(self, scarcity: Scarcity, now: datetime) -> None:
        """Record what EC2 lacks, for all clusters of the region."""
        self._region.record_scarcity(scarcity, now)

    def pause(self, pause: Pause | None) -> None:
        """Pause voluntary disruption, or resume it if `pause` is None."""
        self._keep("PAUSE", self._partition.item("PAUSE", pause_item(pause)) if pause else None)

    def hand_over(self, handover: Handover) -> None:
        """Write who serves the cluster from now on."""
        self._partition.put(self._partition.item("HANDOVER", handover_item(handover)))

    def save_zonal_shifts(self, shifts: Sequence[ZonalShift]) -> None:
        """Write the cluster's zonal shifts, which replace the previous ones."""
        items = [*map(shift_item, shifts)]
        self._keep("SHIFTS", self._partition.item("SHIFTS", items) if items else None)

    def _keep(self, sk: str, item: Attributes | None) -> None:
        """Write an item, or delete it if it is None."""
        if item is None:
            self._partition.delete(sk)
        else:
            self._partition.put(item)

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
        self._partition.delete_all(f"CONTENT#{key}" for key in sorted(keys))

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
        items = (backoff_of(self._partition, offering_key(k), b) for k, b in offerings.items())
        self._partition.write([{"PutRequest": {"Item": item}} for item in items])

    def save_subnet_backoffs(self, subnets: Mapping[str, Backoff]) -> None:
        """Write back-offs of subnets, by id."""
        items = [backoff_of(self._partition, f"SUBNET#{id_}", backoff) for id_, backoff in subnets.items()]
        self._partition.write([{"PutRequest": {"Item": item}} for item in items])

    def save_risks(self, risks: Mapping[OfferingKey, Risk]) -> None:
        """Write the interruption risks of offerings. Each expires when it becomes negligible."""
        items = [
            self._partition.item(
                f"RISK#{pool_key(key)}", risk_item(risk), ttl=int(risk.forgotten_at.timestamp())
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
        self._partition.delete_all(map(offering_key, offerings))

    def save_nodepool_backoff(self, nodepool: str, backoff: Backoff | None) -> None:
        """Write a NodePool's back-off, or delete it if `backoff` is None."""
        self._keep_backoff(f"BACKOFF#{nodepool}", backoff)

    def save_move_backoff(self, kind: MoveKind, backoff: Backoff | None) -> None:
        """Write the back-off of a NodePool's moves for one reason, or delete it if `backoff` is None."""
        self._keep_backoff(f"MOVEBACKOFF#{kind.nodepool}#{kind.reason}", backoff)

    def _keep_backoff(self, sk: str, backoff: Backoff | None) -> None:
        self._keep(sk, backoff_of(self._partition, sk, backoff) if backoff else None)

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
