"""AWS as a function of another version uses it: everything it writes and reads is in that version's format."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import md5
from typing import Any

from nodesmith.errors import Conflict
from nodesmith.model.costs.allocations import ALLOCATIONS, BOOKED, write_rows
from nodesmith.model.functions import Concern, DelayedInvocation, Hint, hints_of, hints_payload
from nodesmith.observation.observed import VERSION
from nodesmith.ports import NONE_THERE
from nodesmith.ports import Version as ReadVersion
from tests.aws.tables import TABLE
from tests.fakes.blobs import FakeBlobs
from tests.fakes.hints import FakeHints
from tests.formats import versions
from tests.formats.versions import LATER, NEXT, Layout, Version, layout_of, rewritten

Item = dict[str, Any]
_TAKEN_AT = re.compile('"takenAt":"[^"]*"')
_UNDATED = '"takenAt":""'


@dataclass(slots=True)
class Traffic:
    """The writes to the table, and the reads from it."""

    writes: int = 0
    read_of_next: int = 0
    """Documents of a later version that the earlier one has read."""


class VersionedClient:
    """A DynamoDB client in a function of this version."""

    def __init__(self, client: Any, version: Version, traffic: Traffic) -> None:
        self._client, self._version, self._traffic = client, version, traffic
        self.meta = client.meta

    def put_item(self, **asked: Any) -> Any:
        return self._written(self._client.put_item, **(asked | {"Item": self._item(asked["Item"])}))

    def delete_item(self, **asked: Any) -> Any:
        return self._written(self._client.delete_item, **asked)

    def update_item(self, **asked: Any) -> Any:
        values, key = dict(asked["ExpressionAttributeValues"]), asked["Key"]
        if ":doc" in values:
            values[":doc"] = {"S": self._text(values[":doc"]["S"], key["pk"]["S"], key["sk"]["S"])}
        update = asked["UpdateExpression"]
        if self._version.beside:
            values[":later"] = self._version.beside[LATER]
            update = update.replace("SET ", f"SET {LATER} = :later, ", 1)
        asked |= {"ExpressionAttributeValues": values, "UpdateExpression": update}
        return self._written(self._client.update_item, **asked)

    def transact_write_items(self, TransactItems: list[Item]) -> Any:  # noqa: N803 (boto3's name)
        """Write in one transaction; a later version adds an item of a kind that only it knows."""
        made = [self._put(each) for each in TransactItems]
        update = next((each["Update"] for each in TransactItems if "Update" in each), None)
        if update is not None and self._version.beside:
            own = {**update["Key"], "sk": {"S": f"{LATER}#1"}, "doc": {"S": '{"is":"later"}'}}
            made.append({"Put": {"TableName": TABLE, "Item": own}})
        return self._written(self._client.transact_write_items, TransactItems=made)

    def batch_write_item(self, RequestItems: Mapping[str, list[Item]]) -> Any:  # noqa: N803 (boto3's name)
        made = {
            name: [
                {"PutRequest": {"Item": self._item(each["PutRequest"]["Item"])}}
                if "PutRequest" in each
                else each
                for each in requests
            ]
            for name, requests in RequestItems.items()
        }
        return self._written(self._client.batch_write_item, RequestItems=made)

    def batch_get_item(self, **asked: Any) -> Any:
        return self._client.batch_get_item(**asked)

    def query(self, **asked: Any) -> Any:
        return self._seen(self._client.query(**asked), asked)

    def get_paginator(self, name: str) -> VersionedPages:
        """Return a paginator whose pages are in this version's format."""
        return VersionedPages(self._client.get_paginator(name), self._seen)

    def _written(self, call: Callable[..., Any], **asked: Any) -> Any:
        answer = call(**asked)
        self._traffic.writes += 1
        return answer

    def _put(self, each: Item) -> Item:
        return {"Put": {**each["Put"], "Item": self._item(each["Put"]["Item"])}} if "Put" in each else each

    def _item(self, item: Item) -> Item:
        text = item.get("doc")
        doc = {} if text is None else {"doc": {"S": self._text(text["S"], item["pk"]["S"], item["sk"]["S"])}}
        return {**item, **self._version.beside, **doc}

    def _text(self, text: str, pk: str, sk: str) -> str:
        return rewritten(text, layout_of(pk, sk), self._version.written)

    def _seen(self, page: Item, asked: Mapping[str, Any]) -> Item:
        values = asked["ExpressionAttributeValues"]
        pk = values.get(":pk", {"S": ""})["S"]
        for item in page["Items"]:
            if "doc" in item:
                text = item["doc"]["S"]
                self._traffic.read_of_next += LATER in text and self._version is not NEXT
                sk = item.get("sk", values.get(":sk", {"S": ""}))["S"]
                item["doc"] = {"S": rewritten(text, layout_of(pk, sk), self._version.seen)}
        return page


@dataclass(frozen=True, slots=True)
class VersionedPages:
    """The pages of a query's answer, each passed through `seen`."""

    paginator: Any
    seen: Callable[[Item, Mapping[str, Any]], Item]

    def paginate(self, **asked: Any) -> Iterator[Item]:
        """Yield page after page."""
        for page in self.paginator.paginate(**asked):
            yield self.seen(page, asked)


@dataclass(slots=True)
class VersionedObjects(FakeBlobs):
    """The bucket in a function of this version; all versions share `objects`."""

    version: Version = versions.TODAY

    def get(self, key: str) -> bytes | None:
        data = FakeBlobs.get(self, key)
        return None if data is None else _changed(key, data, self.version.seen)

    def put(self, key: str, data: bytes) -> None:
        FakeBlobs.put(self, key, _changed(key, data, self.version.written))

    def read(self, key: str, known: str = NONE_THERE, largest_bytes: int = 2**26) -> ReadVersion:  # noqa: ARG002
        tag = _tag(self.objects.get(key))
        return ReadVersion(tag, None if known == tag else self.get(key))

    def replace(self, key: str, data: bytes, known: str) -> str:
        if _tag(self.objects.get(key)) != known:
            raise Conflict(key)
        self.put(key, data)
        return _tag(self.objects[key])


def written_snapshot(data: bytes, version: Version) -> bytes:
    """Return a snapshot as the forwarder of a version writes it; a later version has its own format."""
    written = _as_next if version is NEXT else version.written
    return gzip.compress(_snapshot(gzip.decompress(data).decode(), written).encode(), 1, mtime=0)


def _as_next(document: Any, layout: Layout) -> Any:
    return {**NEXT.written(document, layout), "version": VERSION + 1, "readableFrom": VERSION}


def _snapshot(text: str, change: Callable[[Any, Layout], Any]) -> str:
    """Change a snapshot apart from its time, which is new in each step of a world while the rest seldom is."""
    taken = _TAKEN_AT.search(text)
    assert taken is not None
    undated = text.replace(taken[0], _UNDATED, 1)
    return rewritten(undated, versions.SNAPSHOT, change).replace(_UNDATED, taken[0], 1)


def _changed(key: str, data: bytes, change: Callable[[Any, Layout], Any]) -> bytes:
    layout = _object_layout(key)
    if key.endswith(".jsonl.gz"):
        rows = change([json.loads(line) for line in gzip.decompress(data).splitlines()], layout)
        return write_rows(rows)
    if key.endswith(".gz"):
        text = gzip.decompress(data).decode()
        changed = _snapshot(text, change) if layout is versions.SNAPSHOT else rewritten(text, layout, change)
        return gzip.compress(changed.encode(), 1, mtime=0)
    return rewritten(data.decode(), layout, change).encode()


def _object_layout(key: str) -> Layout:
    if key.endswith("snapshot.json.gz"):
        return versions.SNAPSHOT
    if key.endswith("offerings.json"):
        return versions.ON_SALE
    if key.startswith(f"{ALLOCATIONS}/"):
        return versions.BOOKED if key.startswith(f"{ALLOCATIONS}/{BOOKED}/") else versions.ALLOCATIONS
    return versions.UNPLACED if key.endswith("unplaced.json") else versions.DECISION


def _tag(data: bytes | None) -> str:
    return NONE_THERE if data is None else md5(data, usedforsecurity=False).hexdigest()


@dataclass(slots=True)
class VersionedHints(FakeHints):
    """Hints as functions exchange them: JSON in the format of `of(sender)`, read by `of(receiver)`."""

    of: Callable[[Concern | None], Version] = field(default=lambda _: versions.TODAY)

    def send(self, concern: Concern, hint: Hint, delay_seconds: int = 0) -> None:
        writer, reader = self.of(self.sender), self.of(concern)
        payload = hints_payload([hint])
        if delay_seconds > 0:
            text = DelayedInvocation(concern, "", payload).to_json()
            payload = DelayedInvocation.from_json(_sent(text, versions.DELAYED, writer, reader)).payload
        else:
            payload = json.loads(_sent(json.dumps(payload), versions.EVENT, writer, reader))
        (read,), faults = hints_of(payload)
        assert not faults, faults
        FakeHints.send(self, concern, read, delay_seconds)


def _sent(text: str, layout: Layout, writer: Version, reader: Version) -> str:
    return rewritten(rewritten(text, layout, writer.written), layout, reader.seen)
