"""Blobs on S3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from nodesmith.adapters.aws.errors import error_code
from nodesmith.errors import Conflict, Rejected, Transient
from nodesmith.ports.blobs import NONE_THERE, Version

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LARGEST_OBJECT_BYTES = 64 * 2**20
"""What nodesmith writes itself has a few MiB; more than this would not fit into a function's memory."""
_WRONG = frozenset({"NoSuchBucket", "InvalidBucketName"})
_MISSING = frozenset({"NoSuchKey", "AccessDenied"})
"""What S3 says of an object that is not there: the second to who may read it, but not list the bucket."""
_NOT_MODIFIED = "304"
_OUTDATED = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey"})


class S3Blobs:
    """The objects of one bucket, whose own defaults encrypt them."""

    def __init__(self, client: S3Client, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def get(self, key: str) -> bytes | None:
        """Read an object, None when there is none.

        Raises Transient, or Rejected where the bucket is missing or the object larger than anything we write.
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
        """Read an object unless it is still the version `known`. Raises Transient, or Rejected as `get` does."""
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
        """Write an object that is still the version `known`; return its new one.

        Raises Conflict where it is another, Transient, or Rejected where the bucket is missing.
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
        """Write an object. Raises Transient, or Rejected where the bucket is missing."""
        try:
            self._client.put_object(Bucket=self._bucket, Key=key, Body=data)
        except ClientError as error:
            raise self._failure(error, key) from error
        except BotoCoreError as error:
            raise Transient(f"writing s3://{self._bucket}/{key}: {error}") from error

    def _content(self, answer: Any, key: str, largest_bytes: int) -> bytes:
        if answer["ContentLength"] > largest_bytes:
            answer["Body"].close()
            raise Rejected(
                f"s3://{self._bucket}/{key}: {answer['ContentLength']} bytes, refused to read them"
            )
        content: bytes = answer["Body"].read()
        return content

    def _failure(self, error: ClientError, key: str) -> Transient | Rejected:
        """Everything but a wrong bucket may pass, a missing permission included: somebody will grant it."""
        code = error_code(error)
        if code in _WRONG:
            return Rejected(f"bucket {self._bucket!r}: {code}, set BUCKET_NAME to a bucket that exists")
        return Transient(f"s3://{self._bucket}/{key}: {error}", code)
