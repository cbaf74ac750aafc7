"""Polling in process returns what polling over HTTP returns, and removes messages in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from nodesmith_formats.localsystem.clock import LocalClock
from nodesmith_local.functions.queues import PolledQueues
from nodesmith_local.functions.sqsclock import queues_run_on
from tests.aws.account import strict_aws

REGION = "eu-west-1"


@pytest.fixture
def sqs() -> Iterator[Any]:
    with strict_aws(), queues_run_on(LocalClock(1000)):
        yield boto3.client("sqs", region_name=REGION, aws_access_key_id="test", aws_secret_access_key="test")


@pytest.fixture
def url(sqs: Any) -> str:
    made: str = sqs.create_queue(QueueName="shop-lifecycle")["QueueUrl"]
    return made


def known(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without the fields that differ each time."""
    attributes = {n: v for n, v in message["Attributes"].items() if not n.endswith("Timestamp")}
    return {**message, "MessageId": "", "ReceiptHandle": "", "Attributes": attributes}


def test_a_message_has_the_fields_that_boto3_returns(sqs: Any, url: str) -> None:
    sqs.send_message(QueueUrl=url, MessageBody="look")
    (over_http,) = sqs.receive_message(QueueUrl=url, AttributeNames=["All"])["Messages"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=over_http["ReceiptHandle"])
    sqs.send_message(QueueUrl=url, MessageBody="look")
    (in_process,) = PolledQueues(REGION).receive(url, 10)
    assert known(in_process) == known(over_http)
    assert in_process["Attributes"].keys() == over_http["Attributes"].keys()


def test_received_messages_are_hidden_and_deleted_ones_are_gone(sqs: Any, url: str) -> None:
    polled = PolledQueues(REGION)
    sqs.send_message(QueueUrl=url, MessageBody="look")
    (message,) = polled.receive(url, 10)
    assert polled.receive(url, 10) == []
    polled.delete(url, [message["ReceiptHandle"]])
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    assert found == dict.fromkeys(names, "0")


def test_an_unknown_receipt_does_not_keep_other_messages_from_being_deleted(sqs: Any, url: str) -> None:
    polled = PolledQueues(REGION)
    sqs.send_message(QueueUrl=url, MessageBody="look")
    (message,) = polled.receive(url, 10)
    polled.delete(url, ["no-receipt", message["ReceiptHandle"]])
    names = ["ApproximateNumberOfMessagesNotVisible"]
    assert sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"] == {names[0]: "0"}


def test_each_call_is_reported_with_its_queue(sqs: Any, url: str) -> None:
    reported: list[tuple[str, str]] = []
    polled = PolledQueues(REGION, lambda *call: reported.append(call))
    sqs.send_message(QueueUrl=url, MessageBody="look")
    (message,) = polled.receive(url, 10)
    polled.delete(url, [message["ReceiptHandle"]])
    arn = f"arn:aws:sqs:{REGION}:123456789012:shop-lifecycle"
    assert reported == [("sqs:ReceiveMessage", arn), ("sqs:DeleteMessage", arn)]
