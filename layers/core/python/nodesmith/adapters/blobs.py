"""Blobs on S3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from nodesmith.adapters.awserrors import error_code
from nodesmith.errors import Rejected, Transient

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LARGEST_OBJECT_BYTES = 64 * 2**20
"""What nodesmith writes itself has a few MiB; more than this would not fit into a function's memory."""
_WRONG = frozenset({"NoSuchBucket", "InvalidBucketName"})


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
            answer = self._client.get_object(Bucket=self._bucket, Key=key)
            if answer["ContentLength"] > LARGEST_OBJECT_BYTES:
                answer["Body"].close()
                raise Rejected(
                    f"s3://{self._bucket}/{key}: {answer['ContentLength']} bytes, refused to read them"
                )
            return answer["Body"].read()
        except ClientError as error:
            if error_code(error) == "NoSuchKey":
                return None
            raise self._failure(error, key) from error
        except BotoCoreError as error:
            raise Transient(f"reading s3://{self._bucket}/{key}: {error}") from error

    def put(self, key: str, data: bytes) -> None:
        """Write an object. Raises Transient, or Rejected where the bucket is missing."""
        try:
            self._client.put_object(Bucket=self._bucket, Key=key, Body=data)
        except ClientError as error:
            raise self._failure(error, key) from error
        except BotoCoreError as error:
            raise Transient(f"writing s3://{self._bucket}/{key}: {error}") from error

    def _failure(self, error: ClientError, key: str) -> Transient | Rejected:
        """Everything but a wrong bucket may pass, a missing permission included: somebody will grant it."""
        code = error_code(error)
        if code in _WRONG:
            return Rejected(f"bucket {self._bucket!r}: {code}, set BUCKET_NAME to a bucket that exists")
        return Transient(f"s3://{self._bucket}/{key}: {error}", code)
