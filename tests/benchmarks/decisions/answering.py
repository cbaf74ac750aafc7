"""The AWS operations of a tick, answered in this process below botocore, so that AWS's own time is not counted."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.session import Session, get_session

Item = dict[str, Any]
_PAGE_BYTES = 1_000_000
"""The size of one page of DynamoDB's answer to a Query."""
_REGION = "us-east-1"


@dataclass(slots=True)
class Aws:
    """One table with one cluster's partition, and one bucket. `calls` counts requests by operation."""

    partition: str
    objects: dict[str, bytes] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    """Processor time spent on answers, which is not the caller's."""
    _items: dict[str, Item] = field(default_factory=dict)
    _pages: list[bytes] = field(default_factory=list)
    _session: Session = field(default_factory=get_session)

    def client(self, service: str) -> Any:
        """Return a botocore client whose requests are answered here."""
        self._session.set_credentials("none", "none")
        client = self._session.create_client(service, region_name=_REGION)
        client.meta.events.register("before-send", self._answer)
        return client

    def hold(self, items: Mapping[str, Item]) -> None:
        """Set the items of the partition, by sort key."""
        self._items, self._pages = dict(items), []

    def _answer(self, request: Any, event_name: str, **_: object) -> Any:
        started = time.process_time()
        _before, service, operation = event_name.split(".")
        self.calls[operation] += 1
        content = (
            self._object(request) if service == "s3" else self._table(operation, json.loads(request.body))
        )
        status, body = (
            (200, content) if content is not None else (404, b"<Error><Code>NoSuchKey</Code></Error>")
        )
        headers: Any = {"content-type": "application/x-amz-json-1.0", "content-length": str(len(body))}
        answer = AWSResponse(request.url, status, headers, _Body(body))
        self.seconds += time.process_time() - started
        return answer

    def _object(self, request: Any) -> bytes | None:
        if request.method == "PUT":
            return b""  # not kept: callers read only what a scene holds
        key = request.url.partition("?")[0].split("/", 3)[3]
        return self.objects.get(key) or self.objects.get(key.partition("/")[2])

    def _table(self, operation: str, asked: Mapping[str, Any]) -> bytes:
        match operation:
            case "Query" if asked["ExpressionAttributeValues"][":pk"]["S"] != self.partition:
                return b'{"Items":[],"Count":0,"ScannedCount":0}'
            case "Query" if ":sk" in asked["ExpressionAttributeValues"]:
                found = self._items.get(asked["ExpressionAttributeValues"][":sk"]["S"])
                return json.dumps({"Items": [found] if found else []}).encode()
            case "Query":
                self._pages = self._pages or list(self._paged())
                start = asked.get("ExclusiveStartKey")
                return self._pages[int(start["page"]["N"]) if start else 0]
            case "BatchGetItem":
                ((table, keys),) = ((name, each["Keys"]) for name, each in asked["RequestItems"].items())
                there = [self._items[key["sk"]["S"]] for key in keys if key["sk"]["S"] in self._items]
                return json.dumps({"Responses": {table: there}}).encode()
            case "PutItem":
                item = asked["Item"]
                if item["pk"]["S"] == self.partition:
                    self._items[item["sk"]["S"]], self._pages = item, []
                return b"{}"
            case "UpdateItem" | "DeleteItem" | "BatchWriteItem" | "TransactWriteItems":
                return b"{}"
            case _:
                raise AssertionError(f"{operation}: no answer is known")

    def _paged(self) -> Iterator[bytes]:
        page: list[Any] = []
        size = number = 0
        ordered = sorted(self._items)
        for position, sk in enumerate(ordered, start=1):
            page.append(self._items[sk])
            size += len(self._items[sk].get("doc", {}).get("S", "")) + 60
            if size > _PAGE_BYTES or position == len(ordered):
                number += 1
                more = position < len(ordered)
                last = {"LastEvaluatedKey": {"page": {"N": str(number)}}} if more else {}
                yield json.dumps(
                    {"Items": page, "Count": len(page), "ScannedCount": len(page), **last}
                ).encode()
                page, size = [], 0


class _Body:
    """The parts of a response body that botocore reads."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, **_: object) -> Iterator[bytes]:
        yield self._content

    def read(self, amt: int | None = None) -> bytes:
        del amt
        part, self._content = self._content, b""
        return part
