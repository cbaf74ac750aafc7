from __future__ import annotations

import json

import pytest

from nodesmith.errors import Rejected
from nodesmith.model.events import Hint, parse_hint


def test_a_hint_comes_back_as_it_was_written() -> None:
    hint = Hint("shop", "20 pods pending")

    assert parse_hint(hint.to_json(), "shop") == hint


def test_a_hint_needs_no_reason() -> None:
    assert parse_hint('{"cluster": "shop", "later": [1]}', "shop") == Hint("shop")


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
    ],
)
def test_what_is_no_hint_is_rejected_with_what_was_found(body: str, said: str) -> None:
    with pytest.raises(Rejected, match=said) as rejected:
        parse_hint(body, "shop")
    assert len(str(rejected.value)) < 300


def test_a_hint_for_another_cluster_is_rejected() -> None:
    with pytest.raises(Rejected, match="field 'cluster': this queue serves 'shop', found 'staging'"):
        parse_hint('{"cluster": "staging"}', "shop")


def test_a_reason_of_any_length_stays_short() -> None:
    assert len(parse_hint(json.dumps({"cluster": "shop", "why": "x" * 9000}), "shop").why) == 200
