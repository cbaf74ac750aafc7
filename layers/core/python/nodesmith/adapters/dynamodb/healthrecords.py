"""DynamoDB: health records of functions, heartbeats of forwarders, and when clusters last changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from nodesmith.adapters.aws.calls import all_errors, as_transient
from nodesmith.adapters.dynamodb.partition import META, Attributes, Partition, read_items, read_moment
from nodesmith.errors import Conflict, Rejected, Transient
from nodesmith.keys import forwarder_partition_key, health_partition_key, partition_key
from nodesmith.model.apimachinery.times import format_time, parse_time
from nodesmith.model.functions import AT_ONCE, Finding, Heartbeat, Marks, Record
from nodesmith.settings import dead_letters_url

WRITE_EVERY = timedelta(minutes=5)
"""How often a process records that its runs succeed"""
SEEN_EVERY = timedelta(minutes=1)
"""How often a process records that a symptom recurs"""
APART = timedelta(seconds=20)
"""Minimum time between a process's writes that are not urgent"""
_NEXT_TICK = timedelta(minutes=1)
_STATE = "STATE"
_ATTEMPTS = 3
_LONGEST_MESSAGES = 200_000
"""The most characters of findings' messages in one item, which holds 400 KB."""


class HealthWriter:
    """Records the runs of one concern for one cluster (`""` for a concern of the region) in few writes."""

    def __init__(
        self, client: Any, table: str, cluster: str, concern: str, clock: Callable[[], datetime]
    ) -> None:
        self._partition = Partition(client, table, health_partition_key(cluster))
        self._cluster, self._concern, self._clock = cluster, concern, clock
        self._written: _Written | None = None
        self._written_at = clock()
        self._recorded: frozenset[str] = frozenset()

    def ran(self, succeeded: bool, errors: Mapping[str, str], due: datetime | None = AT_ONCE) -> None:
        """Record a run, the symptoms `errors`, and when the concern is `due` again even if nothing changes.

        If `due` is None, the concern need not run until something changes. By default it is due as soon as possible. If
        the write fails or is denied, the next run writes the record.
        """
        now = self._clock()
        if not self._is_to_write(succeeded, errors, due, now):
            return
        try:
            with as_transient("dynamodb:PutItem"):
                self._write(succeeded, errors, due, now)
        except (Conflict, Transient):
            self._written = None
            return
        self._written_at, self._recorded = now, frozenset(errors)

    def _is_to_write(
        self, succeeded: bool, errors: Mapping[str, str], due: datetime | None, now: datetime
    ) -> bool:
        if self._written is None or not self._recorded.issuperset(errors):
            return True
        record, since = self._written.record, now - self._written_at
        next_record = record.after(succeeded, errors, now, due)
        if not record.is_due(now) and _is_sooner(next_record.due, record.due):
            return True
        if since >= (SEEN_EVERY if errors else WRITE_EVERY) and (succeeded or errors):
            return True
        rests = next_record.due is None or next_record.due > now + _NEXT_TICK
        return since >= APART and (not succeeded or (record.is_due(now) and rests))

    def _write(self, succeeded: bool, errors: Mapping[str, str], due: datetime | None, now: datetime) -> None:
        """Write the record that follows the last one of this process or, after a conflict, that of another process.

        Raises Conflict, Transient.
        """
        for attempt in range(_ATTEMPTS):
            before = self._written or self._read()
            record = before.record.after(succeeded, errors, now, due)
            item = self._partition.item(self._concern, record.to_document(), revision=before.revision + 1)
            try:
                if before.is_unnumbered:
                    self._partition.put(item)
                else:
                    self._partition.put_revised(item, before.revision, f"the record of {self._concern}")
            except Conflict:
                self._written = None
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            self._written = _Written(record, before.revision + 1)
            return

    def _read(self) -> _Written:
        attributes = self._partition.attributes(self._concern, "doc", "revision")
        record = _record(self._cluster, self._concern, _document(attributes.get("doc", {}).get("S", "")))
        revision = int(attributes["revision"]["N"]) if "revision" in attributes else 0
        return _Written(record, revision, is_unnumbered=bool(attributes) and not revision)


@dataclass(frozen=True, slots=True)
class _Written:
    """A record as last seen in the table. Earlier releases wrote records without a revision number."""

    record: Record
    revision: int
    is_unnumbered: bool = False


def _is_sooner(due: datetime | None, other: datetime | None) -> bool:
    return due is not None and (other is None or due < other)


class HealthRecords:
    """The records of all functions of a region, and the last findings. `client` is a boto3 DynamoDB client."""

    def __init__(self, client: Any, table: str) -> None:
        self._client, self._table = client, table

    def of(self, cluster: str) -> list[Record]:
        """Return the records of a cluster's concerns, or of the region's if `cluster` is empty.

        Eventually consistent: they may be a second old. Raises Transient, Rejected.
        """
        partition = Partition(self._client, self._table, health_partition_key(cluster))
        with all_errors("dynamodb:Query"):
            items = list(partition.items(consistent=False))
        documents = [(item["sk"]["S"], item.get("doc", {}).get("S", "")) for item in items]
        return [
            _record(cluster, concern, _document(text)) for concern, text in documents if concern != _STATE
        ]

    def state(self) -> tuple[Mapping[str, datetime], frozenset[Finding]]:
        """Return since when each cluster is known (the region has an empty name), and the last findings.

        Raises Transient.
        """
        document = Partition(self._client, self._table, health_partition_key("")).document(_STATE)
        try:
            since = {name: parse_time(text) for name, text in document.get("since", {}).items()}
            findings = frozenset(
                Finding(cluster, concern, kind, text)
                for cluster, concern, kind, text, *_ in document.get("findings", ())
            )
        except (TypeError, ValueError):
            return {}, frozenset()
        return since, findings

    def keep(self, since: Mapping[str, datetime], findings: Iterable[Finding]) -> None:
        """Store what `state` returns, without the messages of very many findings. Raises Transient."""
        ordered = sorted(findings)
        is_long = sum(len(json.dumps(finding.message)) for finding in ordered) > _LONGEST_MESSAGES
        document = {
            "since": {name: format_time(moment) for name, moment in sorted(since.items())},
            "findings": [[e.cluster, e.concern, e.kind, "" if is_long else e.message] for e in ordered],
        }
        partition = Partition(self._client, self._table, health_partition_key(""))
        partition.put(partition.item(_STATE, document))


class SqsDeadLetters:
    """The region's dead-letter queue. `client` returns the boto3 client of a service.

    `queue_url` is the URL of the queue of delayed invocations.
    """

    def __init__(self, client: Callable[[str], Any], queue_url: str) -> None:
        self._client, self._url = client, dead_letters_url(queue_url)

    def waiting(self) -> int:
        """Return the approximate number of messages. Raises Transient, or Rejected if the queue does not exist."""
        with all_errors(f"sqs:GetQueueAttributes of {self._url}"):
            answer = self._client("sqs").get_queue_attributes(
                QueueUrl=self._url, AttributeNames=["ApproximateNumberOfMessages"]
            )
        return int(answer["Attributes"]["ApproximateNumberOfMessages"])


def _document(text: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text or "{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _record(cluster: str, concern: str, document: Mapping[str, Any]) -> Record:
    """Return a record. An unreadable one counts as missing, and the next run writes it again."""
    try:
        return Record.from_document(cluster, concern, document)
    except (AttributeError, KeyError, TypeError, ValueError, Rejected):
        return Record(cluster, concern)


HEARTBEAT = "HEARTBEAT"


class DynamoHeartbeats:
    """The Heartbeats of one cluster. `client` is a boto3 DynamoDB client. All calls may raise Transient, Rejected."""

    def __init__(self, client: Any, table: str, cluster: str) -> None:
        self._partition = Partition(client, table, forwarder_partition_key(cluster))

    def write_heartbeat(self, at: datetime, changed: datetime) -> None:
        """Write that the forwarder is alive, and when it last wrote a snapshot because something had changed."""
        item = {**self._partition.key(HEARTBEAT), "at": _text(at), "changed": _text(changed)}
        with all_errors("dynamodb:PutItem"):
            self._partition.put(item)

    def last(self) -> Heartbeat | None:
        """Return the latest heartbeat, perhaps a second old, or None if there is none that can be read."""
        with all_errors("dynamodb:Query"):
            attributes = self._partition.attributes(HEARTBEAT, "at", "changed", consistent=False)
        return read_heartbeat(attributes)


def read_heartbeat(item: Attributes) -> Heartbeat | None:
    """Return the heartbeat in an item, or None if it is missing or cannot be read."""
    at, changed = read_moment(item, "at"), read_moment(item, "changed")
    return None if at is None or changed is None else Heartbeat(at, changed)


def _text(moment: datetime) -> Attributes:
    return {"S": moment.astimezone(UTC).isoformat(timespec="milliseconds")}


_NAMES = {"#pk": "pk", "#sk": "sk", "#changed": "changed", "#at": "at"}
_ASKED = {"ProjectionExpression": ", ".join(_NAMES), "ExpressionAttributeNames": _NAMES}


class DynamoMarks:
    """The Marks of a region's clusters. `client` is a boto3 DynamoDB client."""

    def __init__(self, client: Any, table: str) -> None:
        self._client, self._table = client, table

    def of(self, clusters: Collection[str]) -> Mapping[str, Marks]:
        """Return the marks of these clusters, by cluster, perhaps a second old. Raises Transient, Rejected."""
        ledgers = {partition_key(cluster): cluster for cluster in sorted(clusters)}
        forwarders = {forwarder_partition_key(cluster): cluster for cluster in ledgers.values()}
        keys = [_key(pk, META) for pk in ledgers] + [_key(pk, HEARTBEAT) for pk in forwarders]
        with all_errors("dynamodb:BatchGetItem"):
            items = {item["pk"]["S"]: item for item in read_items(self._client, self._table, keys, _ASKED)}
        return {
            cluster: Marks(
                read_heartbeat(items.get(forwarder_partition_key(cluster), {})),
                read_moment(items.get(pk, {}), "changed"),
            )
            for pk, cluster in ledgers.items()
        }


def _key(pk: str, sk: str) -> Attributes:
    return {"pk": {"S": pk}, "sk": {"S": sk}}
