"""Blobs in S3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from nodesmith.adapters.aws.errors import error_code
from nodesmith.errors import Conflict, Rejected, Transient
from nodesmith.ports import NONE_THERE, Version

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LARGEST_OBJECT_BYTES = 64 * 2**20
"""Objects that nodesmith writes have a few MiB. A larger object would not fit into a function's memory."""
_WRONG = frozenset({"NoSuchBucket", "InvalidBucketName"})
_MISSING = frozenset({"NoSuchKey", "AccessDenied"})
"""Error codes for an object that does not exist. S3 returns AccessDenied to callers that may not list the bucket."""
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
            return self._content(
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
            return Version(answer["ETag"], self._content(answer, key, largest_bytes))
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

    def _content(self, answer: Any, key: str, largest_bytes: int) -> bytes:
        if answer["ContentLength"] > largest_bytes:
            answer["Body"].close()
            raise Rejected(f"s3://{self._bucket}/{key}: {answer['ContentLength']} bytes are too many to read")
        content: bytes = answer["Body"].read()
        return content

    def _failure(self, error: ClientError, key: str) -> Transient | Rejected:
        """Return Rejected for a wrong bucket, else Transient: even a missing permission may still be granted."""
        code = error_code(error)
        if code in _WRONG:
            return Rejected(f"bucket {self._bucket!r}: {code}, set BUCKET_NAME to a bucket that exists")
        return Transient(f"s3://{self._bucket}/{key}: {error}", code)
