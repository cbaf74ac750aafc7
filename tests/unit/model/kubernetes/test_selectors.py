from __future__ import annotations

from typing import Any

import pytest

from nodesmith.model.apimachinery.requirements import parse_selector

LABELS = {"app": "web", "track": "canary"}


@pytest.mark.parametrize(
    ("raw", "matches"),
    [
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "web", "track": "stable"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["web"]}]}, True),
        ({"matchExpressions": [{"key": "track", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, True),
        ({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
    ],
)
def test_a_selector_selects_as_in_kubernetes(raw: dict[str, Any], matches: bool) -> None:
    selector = parse_selector(raw)

    assert selector is not None
    assert selector.matches(LABELS) is matches


@pytest.mark.parametrize("labels", [LABELS, {}, {"app": "db"}, {"": "1"}])
def test_a_selector_that_contradicts_itself_selects_nothing_not_even_pods_without_the_label(
    labels: dict[str, str],
) -> None:
    twice = {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}
    for selector in (
        parse_selector(twice),
        parse_selector({"matchLabels": {"app": "web"}}, {}, {"app": "web"}),
    ):
        assert selector is not None
        assert not selector.matches(labels)


def test_selectors_with_many_values_have_different_keys() -> None:
    def key(*values: str) -> str:
        selector = parse_selector({"matchExpressions": [{"key": "app", "operator": "In", "values": values}]})
        assert selector is not None
        return selector.key

    assert key(*"abcdef") != key(*"abcdeg")
    assert key(*"abcdef") == key(*"fedcba")


def test_no_selector_selects_nothing() -> None:
    assert parse_selector(None) is None
    assert parse_selector(None, {"app": "web"}) is None


def test_match_label_keys_narrow_a_selector_to_the_pods_own_values() -> None:
    selector = parse_selector({"matchLabels": {"app": "web"}}, {"track": "canary"})

    assert selector is not None
    assert selector.matches(LABELS)
    assert not selector.matches({"app": "web", "track": "stable"})
    assert not selector.matches({"track": "canary"})


def test_equivalent_selectors_have_the_same_key() -> None:
    short = parse_selector({"matchLabels": {"b": "2", "a": "1"}})
    long = parse_selector(
        {
            "matchExpressions": [
                {"key": "a", "operator": "In", "values": ["1", "3"]},
                {"key": "a", "operator": "In", "values": ["1"]},
                {"key": "b", "operator": "In", "values": ["2"]},
            ]
        }
    )

    assert short is not None
    assert long is not None
    assert short.key == long.key


def test_an_unknown_operator_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match="unknown operator 'Exist', did you mean 'Exists'"):
        parse_selector({"matchExpressions": [{"key": "app", "operator": "Exist"}]})
