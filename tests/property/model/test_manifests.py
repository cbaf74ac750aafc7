"""Parsing any manifest explains what is wrong and never raises."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import cel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodesmith.model.apimachinery.problems import Parsed
from nodesmith.model.karpenter.nodeclaimobjects import parse_nodeclaim
from nodesmith.model.karpenter.nodepools import parse_nodepool
from nodesmith.model.nodeclasses.nodeclasses import parse_nodeclass
from nodesmith.model.schema.fields import Field, Kind, Rule
from nodesmith.model.schema.nodeclaims import NODE_CLAIM
from nodesmith.model.schema.nodeclasses import EC2_NODE_CLASS
from nodesmith.model.schema.nodepools import NODE_POOL
from tests.property.model.fields import JSON, damaged, manifests, rules, values
from tests.samples import sampled

NOW = datetime(2026, 11, 21, tzinfo=UTC)
Parser = Callable[[Any], Parsed[Any]]
KINDS = pytest.mark.parametrize(
    ("kind", "parse"),
    [
        pytest.param(NODE_POOL, parse_nodepool, id="NodePool"),
        pytest.param(EC2_NODE_CLASS, parse_nodeclass, id="EC2NodeClass"),
        pytest.param(NODE_CLAIM, lambda manifest: parse_nodeclaim(manifest, NOW), id="NodeClaim"),
    ],
)
TWINS = [
    pytest.param(field, rule, id=f"{kind.name}{path}: {rule.message}")
    for kind in (NODE_POOL, NODE_CLAIM, EC2_NODE_CLASS)
    for path, field, rule in rules(kind.spec)
    if rule.cel and rule.check
]


def usable_or_explained(parsed: Parsed[Any]) -> bool:
    return (parsed.value is None) == any(problem.fatal for problem in parsed.problems)


@KINDS
@given(value=JSON)
def test_any_json_is_either_used_or_explained(kind: Kind, parse: Parser, value: Any) -> None:
    for manifest in (value, {"metadata": {"name": "x"}, "spec": value}, {"metadata": value, "spec": {}}):
        assert usable_or_explained(parse(manifest)), kind


@KINDS
@settings(max_examples=sampled(10, whole=40))
@given(data=st.data())
def test_a_manifest_damaged_in_one_place_is_either_used_or_explained(
    kind: Kind, parse: Parser, data: st.DataObject
) -> None:
    parsed = parse(data.draw(damaged(kind)))
    assert usable_or_explained(parsed)
    assert all(problem.object.startswith(f"{kind.name}/") for problem in parsed.problems)


@KINDS
@settings(max_examples=sampled(10, whole=40))
@given(data=st.data())
def test_a_structurally_valid_manifest_can_only_break_rules(
    kind: Kind, parse: Parser, data: st.DataObject
) -> None:
    parsed = parse(data.draw(manifests(kind)))
    assert usable_or_explained(parsed)
    remedies = [problem.remedy for problem in parsed.problems if problem.fatal]
    assert not [r for r in remedies if r.startswith(("must be a ", "must be text", "must match"))]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("field", "rule"), TWINS)
def test_nodesmith_and_the_api_server_evaluate_a_rule_alike(field: Field, rule: Rule) -> None:
    check, outcomes = rule.check, set()

    @settings(max_examples=sampled(30, whole=80))
    @given(values(field))
    def agree(value: Any) -> None:
        assert check is not None
        assert cel_holds(rule.cel, value) == check(value)
        outcomes.add(check(value))

    agree()
    assert outcomes == {True, False}, "the values must include some that hold and some that do not"


def cel_holds(expression: str, value: Any) -> bool:
    """Evaluate as the API server does, where a rule that fails to evaluate does not hold."""
    try:
        return bool(cel.evaluate(expression, {"self": value}))
    except (RuntimeError, ValueError, TypeError):
        return False
