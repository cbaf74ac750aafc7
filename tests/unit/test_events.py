from __future__ import annotations

import json

import pytest

from nodesmith.errors import Rejected
from nodesmith.model.events import Hint, PassedEvent, parse_message


def test_a_hint_comes_back_as_it_was_written() -> None:
    hint = Hint("shop", "20 pods pending")

    assert parse_message(hint.to_json()) == hint


def test_a_hint_needs_no_reason() -> None:
    assert parse_message('{"cluster": "shop", "later": [1]}') == Hint("shop")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "expected a JSON object, found ''"),
        ("look again", "expected a JSON object, found 'look again'"),
        ('{"cluster": "shop"', "expected a JSON object"),
        ("[" * 100_000, "expected a JSON object"),
        ("[]", "text field 'cluster'"),
        ("null", "text field 'cluster'"),
        ('{"why": "pods"}', "text field 'cluster'"),
        ('{"cluster": 7}', "text field 'cluster'"),
        ('{"event": "{}"}', "text field 'cluster'"),
    ],
)
def test_what_is_no_hint_is_rejected_with_what_was_found(body: str, said: str) -> None:
    with pytest.raises(Rejected, match=said) as rejected:
        parse_message(body)
    assert len(str(rejected.value)) < 300


def test_an_event_that_is_passed_on_comes_back_as_it_was_written() -> None:
    passed = PassedEvent("shop", '{"detail": {"instance-id": "i-1"}}')

    assert parse_message(passed.to_json()) == passed


def test_an_event_that_is_no_text_is_rejected_with_what_was_found() -> None:
    with pytest.raises(Rejected, match=r"field 'event': expected the JSON of an event as text, found '\{\}'"):
        parse_message('{"cluster": "shop", "event": {}}')


def test_a_reason_of_any_length_stays_short() -> None:
    hint = parse_message(json.dumps({"cluster": "shop", "why": "x" * 9000}))

    assert isinstance(hint, Hint)
    assert len(hint.why) == 200
