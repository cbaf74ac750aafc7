"""The bucket and the queues, on moto's S3 and SQS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.stub import Stubber

from nodesmith.adapters.blobs import S3Blobs
from nodesmith.adapters.messages import SqsHints
from nodesmith.errors import Rejected, Transient
from nodesmith.model.events import Concern, Hint, parse_message
from tests.account import strict_aws

BUCKET = "nodesmith-snapshots"
HINT = Hint("east", "3 pods pending")


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with strict_aws():
        yield


def blobs() -> S3Blobs:
    client = boto3.client("s3")
    client.create_bucket(Bucket=BUCKET)
    return S3Blobs(client, BUCKET)


def test_an_object_comes_back_as_it_was_last_written() -> None:
    bucket = blobs()
    bucket.put("a/b", b"first")
    bucket.put("a/b", b"\x00second")
    assert bucket.get("a/b") == b"\x00second"


def test_an_object_that_is_not_there_is_none() -> None:
    assert blobs().get("a/b") is None


@pytest.mark.parametrize("call", ["get", "put"])
def test_a_bucket_that_does_not_exist_is_named_with_the_setting(call: str) -> None:
    bucket = S3Blobs(boto3.client("s3"), "nowhere")
    with pytest.raises(Rejected, match=r"bucket 'nowhere': NoSuchBucket, set BUCKET_NAME"):
        bucket.get("k") if call == "get" else bucket.put("k", b"")


@pytest.mark.parametrize("code", ["SlowDown", "InternalError", "AccessDenied"])
def test_a_refusal_that_may_pass_is_transient(code: str) -> None:
    client = boto3.client("s3")
    with Stubber(client) as stub:
        stub.add_client_error("put_object", service_error_code=code)
        with pytest.raises(Transient) as caught:
            S3Blobs(client, BUCKET).put("k", b"")
    assert caught.value.code == code


def test_a_bucket_that_cannot_be_reached_is_transient() -> None:
    client = boto3.client("s3", endpoint_url="http://127.0.0.1:9", config=_impatient())
    with pytest.raises(Transient):
        S3Blobs(client, BUCKET).get("k")


def queue(**attributes: str) -> tuple[Any, str]:
    client = boto3.client("sqs")
    return client, client.create_queue(QueueName="provisioning", Attributes=attributes)["QueueUrl"]


def test_a_hint_arrives_as_it_was_sent() -> None:
    client, url = queue()
    SqsHints(client, {Concern.PROVISIONING: url}).send(Concern.PROVISIONING, HINT)
    (message,) = client.receive_message(QueueUrl=url)["Messages"]
    assert parse_message(message["Body"]) == HINT


@pytest.mark.parametrize(("asked", "held"), [(-5, 0), (0, 0), (60, 60), (3600, 900)])
def test_a_delay_is_handed_to_the_queue_within_what_it_can_hold(asked: int, held: int) -> None:
    client = boto3.client("sqs")
    sent = {"QueueUrl": "u", "MessageBody": HINT.to_json(), "DelaySeconds": held}
    with Stubber(client) as stub:
        stub.add_response("send_message", {"MessageId": "1", "MD5OfMessageBody": "x"}, sent)
        SqsHints(client, {Concern.LIFECYCLE: "u"}).send(Concern.LIFECYCLE, HINT, asked)
        stub.assert_no_pending_responses()


def test_a_concern_without_a_queue_is_named_with_its_setting() -> None:
    with pytest.raises(Rejected, match="hint for readiness: no queue is known"):
        SqsHints(boto3.client("sqs"), {}).send(Concern.READINESS, HINT)


def test_a_queue_that_does_not_exist_is_rejected() -> None:
    client, url = queue()
    client.delete_queue(QueueUrl=url)
    with pytest.raises(Rejected, match="does not exist"):
        SqsHints(client, {Concern.LIFECYCLE: url}).send(Concern.LIFECYCLE, HINT)


def test_a_queue_that_throttles_is_transient() -> None:
    client = boto3.client("sqs")
    with Stubber(client) as stub:
        stub.add_client_error("send_message", service_error_code="RequestThrottled")
        with pytest.raises(Transient):
            SqsHints(client, {Concern.LIFECYCLE: "u"}).send(Concern.LIFECYCLE, HINT)


def test_the_body_of_a_hint_is_plain_json() -> None:
    assert json.loads(HINT.to_json()) == {"cluster": "east", "why": "3 pods pending"}


def _impatient() -> Any:
    return Config(connect_timeout=0.2, retries={"total_max_attempts": 1})
