"""Objects in S3, and the writer of a function's metrics to the object that the forwarder reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from nodesmith.adapters.aws.calls import error_code
from nodesmith.errors import Conflict, Rejected, Transient
from nodesmith.model.metrics.metrics import SOON, Metrics, Recorded
from nodesmith.model.metrics.objects import MOST_SERIES, MetricsObject
from nodesmith.ports import NONE_THERE, Version, VersionedBlobs

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LARGEST_OBJECT_BYTES = 64 * 2**20
"""Objects that nodesmith writes have a few MiB. A larger object would not fit into a function's memory."""
_WRONG = frozenset({"NoSuchBucket", "InvalidBucketName"})
_MISSING = frozenset({"NoSuchKey", "AccessDenied"})
"""Error codes for an object that does not exist. S3 returns AccessDenied to callers that may not list the bucket."""
_GONE = ("NoSuchVersion", "NoSuchKey")
_NOT_MODIFIED = "304"
_OUTDATED = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey"})


class S3Blobs:
    """The objects of one bucket. The bucket's default encryption applies."""

    def __init__(self, client: S3Client, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def get(self, key: str) -> bytes | None:
        """Return the content of an object, or None if it does not exist.

        Raises Transient, or Rejected if the bucket does not exist or the object exceeds `LARGEST_OBJECT_BYTES`.
        """
        try:
            return self.content(
                self._client.get_object(Bucket=self._bucket, Key=key), key, LARGEST_OBJECT_BYTES
            )
        except ClientError as error:
            if error_code(error) == "NoSuchKey":
                return None
            raise self._failure(error, key) from error
        except BotoCoreError as error:
            raise Transient(f"reading s3://{self._bucket}/{key}: {error}") from error

    def read(self, key: str, known: str = NONE_THERE, largest_bytes: int = LARGEST_OBJECT_BYTES) -> Version:
        """Read an object unless it is still at version `known`.

        The data is None if the version has not changed or the object does not exist. Raises Transient, or Rejected if
        the bucket does not exist or the object exceeds `largest_bytes`.
        """
        unless: Any = {"IfNoneMatch": known} if known else {}
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=key, **unless)
            return Version(answer["ETag"], self.content(answer, key, largest_bytes))
        except ClientError as error:
            code = error_code(error)
            if code == _NOT_MODIFIED:
                return Version(known, None)
            if code in _MISSING:
                return Version(NONE_THERE, None)
            raise self._failure(error, key) from error
        except BotoCoreError as error:
            raise Transient(f"reading s3://{self._bucket}/{key}: {error}") from error

    def replace(self, key: str, data: bytes, known: str) -> str:
        """Write an object that is still at version `known`, and return its new version.

        Raises Conflict if it is at another version, Transient, or Rejected if the bucket does not exist.
        """
        condition: Any = {"IfMatch": known} if known else {"IfNoneMatch": "*"}
        try:
            return self._client.put_object(Bucket=self._bucket, Key=key, Body=data, **condition)["ETag"]
        except ClientError as error:
            if error_code(error) in _OUTDATED:
                raise Conflict(f"s3://{self._bucket}/{key}: {error}") from error
            raise self._failure(error, key) from error
        except BotoCoreError as error:
            raise Transient(f"writing s3://{self._bucket}/{key}: {error}") from error

    def put(self, key: str, data: bytes) -> None:
        """Write an object. Raises Transient, or Rejected if the bucket does not exist."""
        try:
            self._client.put_object(Bucket=self._bucket, Key=key, Body=data)
        except ClientError as error:
            raise self._failure(error, key) from error
        except BotoCoreError as error:
            raise Transient(f"writing s3://{self._bucket}/{key}: {error}") from error

    def content(self, answer: Any, key: str, largest_bytes: int) -> bytes:
        """Return the body of an answer. Raises Rejected if it has more than `largest_bytes`."""
        if answer["ContentLength"] > largest_bytes:
            answer["Body"].close()
            raise Rejected(f"s3://{self._bucket}/{key}: {answer['ContentLength']} bytes are too many to read")
        content: bytes = answer["Body"].read()
        return content

    def _failure(self, error: ClientError, key: str) -> Transient | Rejected:
        """Return Rejected for a wrong bucket, else Transient: even a missing permission may still be granted."""
        code = error_code(error)
        if code in _WRONG:
            return Rejected(
                f"bucket {self._bucket!r}: {code}: name one that exists with --bucket, or BUCKET_NAME in functions"
            )
        return Transient(f"s3://{self._bucket}/{key}: {error}", code)


_MOST_PAGES = 40
"""The most pages of a list of versions: 40,000 versions are more than a forwarder writes in a few hours."""


class S3History:
    """The versions of the objects of one bucket that are kept after they were replaced."""

    def __init__(self, client: S3Client, bucket: str) -> None:
        self._client, self._bucket, self._blobs = client, bucket, S3Blobs(client, bucket)

    def written(self, key: str, since: datetime) -> list[tuple[datetime, str]]:
        """Return when each version that was in force at `since` or later was written, and its id, oldest first.

        Raises Transient. Of very many versions, the oldest are left out.
        """
        versions: list[tuple[datetime, str]] = []
        with _calls(f"listing versions of s3://{self._bucket}/{key}"):
            for page in self._pages(key):
                for version in page.get("Versions", ()):
                    if version["Key"] == key:
                        versions.append((version["LastModified"].astimezone(UTC), version["VersionId"]))
                        if versions[-1][0] <= since:
                            return versions[::-1]
        return versions[::-1]

    def _pages(self, key: str) -> Iterator[Any]:
        pages = self._client.get_paginator("list_object_versions").paginate(Bucket=self._bucket, Prefix=key)
        return islice(iter(pages), _MOST_PAGES)

    def old_version(self, key: str, id_: str) -> bytes | None:
        """Return a version of an object, None if it is gone. Raises Transient, or Rejected if it is too large."""
        try:
            with _calls(f"reading s3://{self._bucket}/{key}", *_GONE):
                answer = self._client.get_object(Bucket=self._bucket, Key=key, VersionId=id_)
                return self._blobs.content(answer, key, LARGEST_OBJECT_BYTES)
        except _Gone:
            return None


class _Gone(Exception):
    """A version that does not exist."""


@contextmanager
def _calls(call: str, *ignored: str) -> Iterator[None]:
    """Raise Transient for an error of S3, and `_Gone` for one with a code in `ignored`."""
    try:
        yield
    except ClientError as error:
        if error_code(error) in ignored:
            raise _Gone from error
        raise Transient(f"{call}: {error}", error_code(error)) from error
    except BotoCoreError as error:
        raise Transient(f"{call}: {error}") from error


# Each concern has its own object, and few of its runs overlap. Each run adds its metrics to the object with a
# write that is conditional on the version it read. The object outlives processes, so counters only grow.
METRICS_TRIES = 4
"""Attempts per write. Each may lose to another run of the concern."""
LOOK_AGAIN = timedelta(minutes=2)
"""How old the last-read object may be for comparing gauges with it. Another process may have written since."""


@dataclass(frozen=True, slots=True)
class _ReadObject:
    tag: str
    content: MetricsObject
    at: datetime


class MetricsWriter:
    """Writes the values that `metrics` records to one object. `writer` identifies this process.

    Values that could not be written, or that are not urgent, wait for a later run, so several runs share a write.
    """

    def __init__(
        self, blobs: VersionedBlobs, key: str, metrics: Metrics, clock: Callable[[], datetime], writer: str
    ) -> None:
        self._blobs, self._key, self._metrics, self._clock, self._writer = blobs, key, metrics, clock, writer
        self._known: _ReadObject | None = None
        self._waiting = Recorded()
        """Values that the next write adds. Once a write was tried, they stay fixed until its outcome is known."""
        self._is_tried = False
        self._is_left = False
        """whether a write was due and has not completed"""
        self._number = 1
        self._tried_at: datetime | None = None

    def write(self) -> None:
        """Write the values that are due.

        Raises Transient, or Rejected if the bucket does not exist. The values are then kept for the next call.
        """
        now = self._clock()
        if not self._is_due(now):
            return
        self._tried_at = now
        if not self._is_tried:
            self._waiting.add(self._metrics.take())
        if self._is_tried or self._has_changes(now):
            self._add(now)
        self._waiting, self._is_tried, self._is_left = Recorded(), False, False

    def _is_due(self, now: datetime) -> bool:
        """Return whether a write is due. A failed write is retried soon, but not with each run."""
        patience = SOON if self._is_left else self._metrics.delay
        if patience is None:
            return False
        is_due = self._tried_at is None or now - self._tried_at >= patience
        self._is_left = self._is_left or is_due
        return is_due

    def _has_changes(self, now: datetime) -> bool:
        """Drop gauges whose values the object already has, and return whether anything is left to write."""
        cached = self._known
        if cached is None or (self._waiting.gauges and now - cached.at >= LOOK_AGAIN):
            cached = self._read(now)
        gauges = cached.content.recorded.gauges
        new = {
            n: g for n, g in self._waiting.gauges.items() if n not in gauges or gauges[n].series != g.series
        }
        self._waiting.gauges = new
        return bool(self._waiting.counters or self._waiting.histograms or new)

    def _add(self, now: datetime) -> None:
        for _ in range(METRICS_TRIES):
            cached = self._known or self._read(now)
            if cached.content.writers.get(self._writer, 0) >= self._number:
                break  # the write whose response was lost had succeeded
            content = _with(cached.content, self._waiting, self._writer, self._number)
            self._known, self._is_tried = None, True
            try:
                tag = self._blobs.replace(self._key, content.to_bytes(), cached.tag)
            except Conflict:
                continue
            self._known = _ReadObject(tag, content, now)
            break
        else:
            raise Transient(f"{self._key}: other writers won {METRICS_TRIES} times in a row")
        self._number += 1

    def _read(self, now: datetime) -> _ReadObject:
        cached = self._known
        version = self._blobs.read(self._key, cached.tag if cached else NONE_THERE)
        if version.data is None and version.tag and cached is not None:
            self._known = replace(cached, at=now)
        else:
            self._known = _ReadObject(version.tag, _content(version.data), now)
        return self._known


def _content(data: bytes | None) -> MetricsObject:
    """Return the content of an object. If it cannot be read, it is empty, and its counters restart."""
    if data is None:
        return MetricsObject()
    try:
        return MetricsObject.from_bytes(data)
    except Rejected:
        return MetricsObject()


def _with(content: MetricsObject, news: Recorded, writer: str, number: int) -> MetricsObject:
    """Return the content with `news` added.

    If that exceeds `MOST_SERIES` series (each NodePool adds some), return `news` alone, so all series restart.
    """
    sum_ = content.recorded.copy()
    sum_.add(news)
    if sum_.size > MOST_SERIES:
        sum_ = news.copy()
    return MetricsObject(sum_, content.noted(writer, number))
