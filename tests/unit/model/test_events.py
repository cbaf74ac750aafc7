from __future__ import annotations

import json

import pytest

from nodesmith.errors import Rejected
from nodesmith.model.functions import (
    MOST_ATTEMPTS,
    RETRY_SECONDS,
    Concern,
    DelayedInvocation,
    Hint,
    hints_of,
    hints_payload,
    retry_seconds,
)


def test_hints_come_back_as_they_were_written() -> None:
    hints = [Hint("shop", "20 pods pending"), Hint("bank", attempt=3)]

    assert hints_of(json.loads(json.dumps(hints_payload(hints)))) == (hints, [])


def test_a_hint_needs_no_reason_and_may_say_more_than_is_known() -> None:
    assert Hint.from_document({"cluster": "shop", "later": [1]}) == Hint("shop")


@pytest.mark.parametrize("message", [None, 7, "look", [], {}, {"reason": "pods"}, {"cluster": 7}])
def test_a_message_that_is_no_hint_is_told_of_and_the_others_are_read(message: object) -> None:
    hints, faults = hints_of({"messages": [message, {"cluster": "shop"}]})

    assert hints == [Hint("shop")]
    (fault,) = faults
    assert "text field 'cluster'" in fault


@pytest.mark.parametrize(
    "event", [{}, {"messages": None}, {"messages": {"cluster": "shop"}}, {"Records": []}]
)
def test_an_event_without_messages_is_told_of(event: dict[str, object]) -> None:
    hints, (fault,) = hints_of(event)

    assert hints == []
    assert "expected a list 'messages'" in fault


def test_what_is_found_wrong_is_told_shortly() -> None:
    _, (fault,) = hints_of({"messages": [{"reason": "x" * 9000}]})

    assert len(fault) < 300


def test_a_reason_of_any_length_stays_short() -> None:
    assert len(Hint.from_document({"cluster": "shop", "reason": "x" * 9000}).reason) == 200


@pytest.mark.parametrize("attempt", [-1, "3", None, 10**9, 1.5])
def test_an_attempt_that_is_no_number_of_attempts_counts_as_the_first(attempt: object) -> None:
    assert Hint.from_document({"cluster": "shop", "attempt": attempt}).attempt == 0


def test_a_delayed_invocation_comes_back_as_it_was_written() -> None:
    delayed = DelayedInvocation(Concern.LIFECYCLE, "private", hints_payload([Hint("shop")]))

    assert DelayedInvocation.from_json(delayed.to_json()) == delayed


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "expected a JSON object, found ''"),
        ("look again", "expected a JSON object, found 'look again'"),
        ("[" * 100_000, "expected a JSON object"),
        ("[]", "the fields 'concern', 'vpc' and 'payload'"),
        ('{"concern": "cooking", "vpc": "", "payload": {}}', "the fields"),
        ('{"concern": ["lifecycle"], "vpc": "", "payload": {}}', "the fields"),
        ('{"concern": "lifecycle", "payload": {}}', "the fields"),
        ('{"concern": "lifecycle", "vpc": "", "payload": "{}"}', "the fields"),
    ],
)
def test_what_is_no_delayed_invocation_is_rejected_with_what_was_found(body: str, said: str) -> None:
    with pytest.raises(Rejected, match=said) as rejected:
        DelayedInvocation.from_json(body)
    assert len(str(rejected.value)) < 300


def test_a_run_that_failed_is_tried_again_after_five_seconds_and_later_and_later() -> None:
    waits = [retry_seconds(attempt) for attempt in range(MOST_ATTEMPTS - 1)]

    assert waits[:3] == [5, 5, 5]
    assert waits[: len(RETRY_SECONDS)] == sorted(RETRY_SECONDS)
    assert set(waits[len(RETRY_SECONDS) :]) == {RETRY_SECONDS[-1]}


def test_a_hint_has_so_many_attempts_and_no_more() -> None:
    assert retry_seconds(MOST_ATTEMPTS - 1) is None
    assert retry_seconds(MOST_ATTEMPTS + 5) is None
