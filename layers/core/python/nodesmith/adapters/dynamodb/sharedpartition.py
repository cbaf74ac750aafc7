"""DynamoDB: commitments, in the partition that the clusters of a region share.

`COMMITMENTS` holds what the catalog function has read of commitments,
and `COMMITTED` the reports of all clusters on what they use of them. A cluster that buys on commitments writes its
report on condition that no other has done so since it read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from nodesmith.adapters.dynamodb.partition import Partition
from nodesmith.keys import budget_partition_key
from nodesmith.model.ledger.commitments import (
    NO_COMMITMENTS,
    CommitmentBook,
    Commitments,
    book_item,
    read_book,
    read_reports,
    reports_item,
)

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
