"""Messages that failed are shown again soon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from nodesmith.adapters.redelivery import RETRY_SECONDS, SqsRedelivery

QUEUES = "https://sqs.eu-west-1.amazonaws.com/111122223333"
QUEUE = f"{QUEUES}/nodesmith-"


class FakeSqs:
    """SQS as far as it is asked here; while `down` nothing reaches it."""

    def __init__(self, *, down: bool = False) -> None:
        self.down = down
        self.batches: list[tuple[str, list[tuple[str, int]]]] = []

    def change_message_visibility_batch(self, **asked: Any) -> None:
        url, entries = asked["QueueUrl"], asked["Entries"]
        assert len({entry["Id"] for entry in entries}) == len(entries) <= 10
        if self.down:
            raise EndpointConnectionError(endpoint_url=url)
        self.batches.append((url, [(e["ReceiptHandle"], e["VisibilityTimeout"]) for e in entries]))


def record(receipt: str, received: int = 1, queue: str = "interruption") -> dict[str, Any]:
    return {
        "receiptHandle": receipt,
        "eventSourceARN": f"arn:aws:sqs:eu-west-1:111122223333:nodesmith-{queue}",
        "attributes": {"ApproximateReceiveCount": str(received)},
    }


def shown(*records: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, int]]]]:
    sqs = FakeSqs()
    SqsRedelivery(sqs, QUEUES).soon(records)
    return sqs.batches


def test_a_message_that_failed_is_shown_again_after_five_seconds() -> None:
    assert shown(record("a")) == [(f"{QUEUE}interruption", [("a", 5)])]


def test_the_more_often_a_message_has_failed_the_later_it_is_shown_again() -> None:
    waits = [shown(record("a", received))[0][1][0][1] for received in range(1, len(RETRY_SECONDS) + 1)]
    assert waits == sorted(RETRY_SECONDS)
    assert sum(waits[:3]) <= 15


def test_a_message_that_has_failed_very_often_waits_as_long_as_its_queue_says() -> None:
    assert shown(record("a", len(RETRY_SECONDS) + 1)) == []


def test_a_message_on_its_second_chance_waits_as_long_as_its_queue_says() -> None:
    assert shown(record("a", queue="interruption-again")) == []


def test_more_than_ten_messages_are_shown_again_ten_at_a_time() -> None:
    batches = shown(*[record(str(number)) for number in range(12)])
    assert [len(entries) for _, entries in batches] == [10, 2]


def test_only_what_failed_is_shown_again() -> None:
    sqs = FakeSqs()
    redelivery = SqsRedelivery(sqs, QUEUES)
    with redelivery.if_failed([record("a")]):
        pass
    assert sqs.batches == []
    with pytest.raises(KeyError), redelivery.if_failed([record("a")]):
        raise KeyError
    assert len(sqs.batches) == 1


def test_where_sqs_is_away_the_error_of_the_run_is_told() -> None:
    redelivery = SqsRedelivery(FakeSqs(down=True), QUEUES)
    with pytest.raises(KeyError), redelivery.if_failed([record("a")]):
        raise KeyError
