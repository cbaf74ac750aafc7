"""The bucket and the queue, on moto's S3 and SQS, and invocations of functions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.stub import Stubber

from nodesmith.adapters.aws.messaging import LambdaHints, LambdaInvocations, SqsDelayedInvocations
from nodesmith.adapters.s3 import S3Blobs
from nodesmith.errors import Rejected, Transient
from nodesmith.model.functions import Concern, DelayedInvocation, Hint, hints_payload
from tests.aws.account import strict_aws

BUCKET = "nodesmith-snapshots"
HINT = Hint("east", "3 pods pending")
DELAYED = DelayedInvocation(Concern.LIFECYCLE, "private", hints_payload([HINT]))


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


def test_an_object_is_read_as_it_was_last_written() -> None:
    bucket = blobs()
    bucket.put("a/b", b"first")
    bucket.put("a/b", b"\x00second")
    assert bucket.get("a/b") == b"\x00second"


def test_a_missing_object_is_none() -> None:
    assert blobs().get("a/b") is None


@pytest.mark.parametrize("call", ["get", "put"])
def test_a_missing_bucket_is_rejected_with_its_setting(call: str) -> None:
    bucket = S3Blobs(boto3.client("s3"), "nowhere")
    with pytest.raises(
        Rejected, match=r"bucket 'nowhere': NoSuchBucket: name one that exists with --bucket, or BUCKET_NAME"
    ):
        bucket.get("k") if call == "get" else bucket.put("k", b"")


@pytest.mark.parametrize("code", ["SlowDown", "InternalError", "AccessDenied"])
def test_a_temporary_refusal_is_transient(code: str) -> None:
    client = boto3.client("s3")
    with Stubber(client) as stub:
        stub.add_client_error("put_object", service_error_code=code)
        with pytest.raises(Transient) as caught:
            S3Blobs(client, BUCKET).put("k", b"")
    assert caught.value.code == code


def test_an_unreachable_bucket_is_transient() -> None:
    client = boto3.client("s3", endpoint_url="http://127.0.0.1:9", config=_impatient())
    with pytest.raises(Transient):
        S3Blobs(client, BUCKET).get("k")


def queue() -> tuple[SqsDelayedInvocations, Any, str]:
    client = boto3.client("sqs")
    url = client.create_queue(QueueName="nodesmith-waiting")["QueueUrl"]
    return SqsDelayedInvocations(boto3.client, url), client, url


def test_a_delayed_invocation_arrives_as_it_was_put() -> None:
    delayed, client, url = queue()
    delayed.put(DELAYED, 0)
    (message,) = client.receive_message(QueueUrl=url)["Messages"]
    assert DelayedInvocation.from_json(message["Body"]) == DELAYED


@pytest.mark.parametrize(("asked", "held"), [(-5, 0), (0, 0), (60, 60), (3600, 900)])
def test_a_delay_is_limited_to_what_the_queue_supports(asked: int, held: int) -> None:
    client = boto3.client("sqs")
    sent = {"QueueUrl": "u", "MessageBody": DELAYED.to_json(), "DelaySeconds": held}
    with Stubber(client) as stub:
        stub.add_response("send_message", {"MessageId": "1", "MD5OfMessageBody": "x"}, sent)
        SqsDelayedInvocations(lambda _: client, "u").put(DELAYED, asked)
        stub.assert_no_pending_responses()


def test_a_missing_queue_is_rejected() -> None:
    delayed, client, url = queue()
    client.delete_queue(QueueUrl=url)
    with pytest.raises(Rejected, match="does not exist"):
        delayed.put(DELAYED, 5)


def test_a_throttling_queue_is_transient() -> None:
    client = boto3.client("sqs")
    with Stubber(client) as stub:
        stub.add_client_error(
            "send_message", service_error_code="RequestThrottled", service_message="slow down"
        )
        with pytest.raises(Transient) as raised:
            SqsDelayedInvocations(lambda _: client, "u").put(DELAYED, 5)
    assert str(raised.value) == "sqs:SendMessage to u: RequestThrottled: slow down"
    assert raised.value.code == "RequestThrottled"


def stubbed_lambda() -> tuple[LambdaInvocations, Stubber]:
    client = boto3.client("lambda")
    return LambdaInvocations(lambda _: client), Stubber(client)


def invocation(name: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an invocation of a function."""
    body = json.dumps(payload, separators=(",", ":")).encode()
    return {"FunctionName": name, "Qualifier": "live", "InvocationType": "Event", "Payload": body}


@pytest.mark.parametrize(
    ("concern", "name"),
    [(Concern.LIFECYCLE, "nodesmith-private-lifecycle"), (Concern.PROVISIONING, "nodesmith-provisioning")],
)
def test_a_hint_invokes_the_function_that_serves_the_cluster(concern: Concern, name: str) -> None:
    invocations, stub = stubbed_lambda()
    with stub:
        stub.add_response("invoke", {"StatusCode": 202}, invocation(name, hints_payload([HINT])))
        LambdaHints(invocations, reached_from="private").send(concern, HINT)
        stub.assert_no_pending_responses()


def test_a_delayed_hint_waits_in_the_queue() -> None:
    delayed, client, url = queue()
    invocations, stub = stubbed_lambda()
    with stub:
        LambdaHints(invocations, delayed, "private").send(Concern.LIFECYCLE, HINT, 5)
    attributes = client.get_queue_attributes(
        QueueUrl=url, AttributeNames=["ApproximateNumberOfMessagesDelayed"]
    )
    assert attributes["Attributes"] == {"ApproximateNumberOfMessagesDelayed": "1"}


def test_a_delayed_hint_is_rejected_without_a_queue() -> None:
    with pytest.raises(Rejected, match="no queue is configured for delayed hints"):
        LambdaHints(stubbed_lambda()[0]).send(Concern.LIFECYCLE, HINT, 5)


def test_a_missing_function_is_rejected_by_name() -> None:
    invocations, stub = stubbed_lambda()
    stub.add_client_error("invoke", service_error_code="ResourceNotFoundException")
    with stub, pytest.raises(Rejected, match="the function nodesmith-nowhere-repair does not exist"):
        invocations.invoke(Concern.REPAIR, "nowhere", {})


@pytest.mark.parametrize("code", ["TooManyRequestsException", "ServiceException", "AccessDeniedException"])
def test_a_temporary_invocation_error_is_transient(code: str) -> None:
    invocations, stub = stubbed_lambda()
    stub.add_client_error("invoke", service_error_code=code)
    with stub, pytest.raises(Transient) as caught:
        invocations.invoke(Concern.REPAIR, "", {})
    assert caught.value.code == code


def _impatient() -> Any:
    return Config(connect_timeout=0.2, retries={"total_max_attempts": 1})
