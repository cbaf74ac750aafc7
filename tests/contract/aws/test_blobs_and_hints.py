"""The Blobs and Hints ports: the fakes, and the adapters on moto's S3, Lambda and SQS."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import boto3
import pytest

from nodesmith.adapters.aws.messaging import LambdaHints, LambdaInvocations, SqsDelayedInvocations
from nodesmith.adapters.s3 import S3Blobs
from nodesmith.errors import Conflict, Rejected
from nodesmith.model.functions import Concern, Hint
from nodesmith.ports import NONE_THERE, Blobs, Hints, Version
from nodesmith.settings import QUEUE_NAME
from nodesmith_local.functions.lambdas import Lambdas
from tests.aws.account import strict_aws
from tests.fakes.blobs import FakeBlobs
from tests.fakes.hints import FakeHints
from tests.processes.accepted import accepting

Received = Callable[[Concern], list[Hint]]


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with strict_aws():
        yield


@pytest.fixture(params=["fake", "s3"])
def blobs(request: pytest.FixtureRequest) -> FakeBlobs | S3Blobs:
    if request.param == "fake":
        return FakeBlobs()
    client = boto3.client("s3")
    client.create_bucket(Bucket="bucket")
    return S3Blobs(client, "bucket")


@pytest.fixture(params=["fake", "lambda"])
def functions(request: pytest.FixtureRequest) -> Iterator[tuple[Hints, Received]]:
    if request.param == "fake":
        fake = FakeHints()
        yield fake, lambda concern: [message.hint for message in fake.receive(concern)]
        return
    url = boto3.client("sqs").create_queue(QueueName=QUEUE_NAME)["QueueUrl"]
    lambdas = Lambdas()
    accepted = accepting(lambdas, "us-east-1")
    with lambdas.answering():
        hints = LambdaHints(LambdaInvocations(boto3.client), SqsDelayedInvocations(boto3.client, url))
        yield hints, lambda concern: accepted[concern].take()


def test_the_last_write_to_a_key_wins(blobs: Blobs) -> None:
    blobs.put("a", b"1")
    blobs.put("b", b"2")
    blobs.put("a", b"3")
    assert (blobs.get("a"), blobs.get("b"), blobs.get("c")) == (b"3", b"2", None)


def test_a_hint_reaches_only_its_own_function(functions: tuple[Hints, Received]) -> None:
    hints, received = functions
    hints.send(Concern.LIFECYCLE, Hint("east", "why"))
    assert received(Concern.PROVISIONING) == []
    assert received(Concern.LIFECYCLE) == [Hint("east", "why")]
    assert received(Concern.LIFECYCLE) == []


def test_a_delayed_hint_does_not_arrive_early(functions: tuple[Hints, Received]) -> None:
    hints, received = functions
    hints.send(Concern.LIFECYCLE, Hint("east"), 60)
    assert received(Concern.LIFECYCLE) == []


def test_an_object_above_the_size_limit_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodesmith.adapters.s3.LARGEST_OBJECT_BYTES", 3)
    client = boto3.client("s3")
    client.create_bucket(Bucket="bucket")
    blobs = S3Blobs(client, "bucket")
    blobs.put("small", b"123")
    blobs.put("large", b"1234")
    assert blobs.get("small") == b"123"
    with pytest.raises(Rejected, match="large: 4 bytes are too many to read"):
        blobs.get("large")


def test_an_object_is_downloaded_again_only_if_it_has_changed(blobs: FakeBlobs | S3Blobs) -> None:
    assert blobs.read("a") == Version(NONE_THERE, None)
    blobs.put("a", b"1")
    first = blobs.read("a")
    assert first.data == b"1"
    assert blobs.read("a", first.tag) == Version(first.tag, None)
    blobs.put("a", b"2")
    assert blobs.read("a", first.tag).data == b"2"


def test_an_object_is_replaced_only_if_its_version_matches(blobs: FakeBlobs | S3Blobs) -> None:
    tag = blobs.replace("a", b"1", NONE_THERE)
    assert blobs.read("a") == Version(tag, b"1")
    newer = blobs.replace("a", b"2", tag)
    for known in (tag, NONE_THERE):
        with pytest.raises(Conflict):
            blobs.replace("a", b"3", known)
    assert blobs.read("a") == Version(newer, b"2")
    with pytest.raises(Conflict):
        blobs.replace("b", b"1", tag)


def test_an_object_above_the_readers_limit_is_not_read(blobs: FakeBlobs | S3Blobs) -> None:
    blobs.put("a", b"12345")
    with pytest.raises(Rejected, match="5 bytes"):
        blobs.read("a", largest_bytes=4)
    assert blobs.read("a", largest_bytes=5).data == b"12345"
