"""DynamoDB: the partition that the clusters of a region share: their budget of calls, and commitments.

`CREATEFLEET` is the budget of CreateFleet calls. `COMMITMENTS` holds what the catalog function has read of commitments,
and `COMMITTED` the reports of all clusters on what they use of them. A cluster that buys on commitments writes its
report on condition that no other has done so since it read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from nodesmith.adapters.dynamodb.partition import Partition
from nodesmith.errors import Conflict
from nodesmith.model.ec2.launches import CallBudget
from nodesmith.model.ledger.commitments import (
    NO_COMMITMENTS,
    CommitmentBook,
    Commitments,
    book_item,
    read_book,
    read_reports,
    reports_item,
)
from nodesmith.settings import budget_partition_key

_BOOK, _REPORTS = "COMMITMENTS", "COMMITTED"
_BOTH = "COMMIT"


class DynamoCommitments:
    """The commitments of a region. `client` is a boto3 DynamoDB client. Every call may raise Transient."""

    def __init__(self, client: Any, table: str) -> None:
        self._partition = Partition(client, table, budget_partition_key(client.meta.region_name))

    def load(self) -> Commitments:
        """Return the commitments and reports, strongly consistent; NO_COMMITMENTS if none have been read."""
        found: Mapping[str, Any] = {item["sk"]["S"]: item for item in self._partition.items(_BOTH)}
        if _BOOK not in found:
            return NO_COMMITMENTS
        book, reports = _book(found[_BOOK]["doc"]["S"]), found.get(_REPORTS)
        if reports is None:
            return Commitments(book)
        reported = read_reports(json.loads(reports["doc"]["S"]))
        return Commitments(book, reported, int(reports["revision"]["N"]))

    def report(self, found: Commitments) -> None:
        """Write the reports if their revision has not changed. Raises Conflict."""
        item = self._partition.item(_REPORTS, reports_item(found), revision=found.revision + 1)
        self._partition.put_revised(item, found.revision, "what clusters use of commitments")

    def keep(self, book: CommitmentBook) -> None:
        """Write what was read of commitments, replacing the previous book."""
        self._partition.put(self._partition.item(_BOOK, book_item(book)))


@lru_cache(maxsize=4)
def _book(text: str) -> CommitmentBook:
    """Read a book. Equal texts give one object, on which caches of decisions rely."""
    return read_book(json.loads(text))


_BUDGET_SK = "CREATEFLEET"
_BUDGET_ATTEMPTS = 5


def take_calls(client: Any, table: str, cluster: str, wanted: int, now: datetime) -> int:
    """Return how many of `wanted` calls a cluster may make now, and count them as made.

    `client` is a boto3 DynamoDB client. The answer is 0 if other clusters change the budget at every attempt.
    Raises Transient.
    """
    partition = Partition(client, table, budget_partition_key(client.meta.region_name))
    for _ in range(_BUDGET_ATTEMPTS):
        document, revision = partition.revised(_BUDGET_SK)
        granted, budget = CallBudget.from_item(document).take(cluster, wanted, now)
        item = partition.item(_BUDGET_SK, budget.to_item(), revision=revision + 1)
        try:
            partition.put_revised(item, revision, "the budget of CreateFleet calls")
        except Conflict:
            continue
        return granted
    return 0
