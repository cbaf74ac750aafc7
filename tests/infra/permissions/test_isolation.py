"""A cluster's session reaches only that cluster's resources; without a session, no cluster's are reachable."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from infra.functions.concerns import CLUSTER_CONCERNS
from tests.infra.assuming import may_assume, may_be_assumed_by
from tests.infra.deployment import ACCOUNT, PRIVATE, REGION, VPC
from tests.infra.iam import allows, session
from tests.infra.isolation import ASKING, FORWARDER, TABLE, role_violations, roles, table, unused, violations
from tests.infra.templates import Template
from tests.infra.universe import ATTACHING

TAGS = {"nodesmith-cluster": "alpha", "nodesmith-vpc": VPC}
ALL = [concern.name for concern in CLUSTER_CONCERNS]
TALKING = [concern.name for concern in CLUSTER_CONCERNS if concern.calls_api_server]
VARIABLE = "${aws:PrincipalTag/"


def test_no_role_reaches_another_cluster_or_any_without_a_session(region: Template) -> None:
    assert violations(region) == []


def test_the_universe_covers_every_action_of_every_statement(region: Template) -> None:
    assert unused(region) == []
    assert len(roles(region)) == len(region.of_type("Lambda::Function")) + 1


def test_the_table_of_what_is_allowed_is_the_committed_one(region: Template) -> None:
    assert table(region) == TABLE.read_text(), "run `python -m tests.infra.isolation`, and review the changes"


def bound(template: Template) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the statements that are bound to the session's cluster, with their role's name."""
    for role, statements in roles(template).items():
        for statement in statements:
            if VARIABLE in json.dumps(statement):
                yield role, statement


def test_a_statement_that_forgets_its_cluster_is_found(region: Template) -> None:
    found = list(bound(region))
    assert len({statement["Sid"] for _, statement in found}) >= 17
    for role, statement in found:
        denied = [each for each in roles(region)[role] if each["Effect"] == "Deny"]
        assert role_violations(region, role, [*denied, unbound(statement)]), f"{role}: {statement['Sid']}"


def unbound(statement: dict[str, Any]) -> dict[str, Any]:
    """Return the statement with a wildcard for the cluster in resources, and without conditions on the cluster."""
    resources = [
        each.partition(VARIABLE)[0] + "*" + each.partition("}")[2] if VARIABLE in each else each
        for each in statement["Resource"]
    ]
    conditions = {
        operator: {key: value for key, value in keys.items() if VARIABLE not in json.dumps(value)}
        for operator, keys in statement.get("Condition", {}).items()
    }
    return {**statement, "Resource": resources, "Condition": conditions}


def test_a_statement_that_needs_no_session_is_found(region: Template) -> None:
    (ledger,) = (each for each in roles(region)[f"nodesmith-repair-{REGION}"] if each["Sid"] == "Ledger")
    anybodys = {**ledger, "Condition": {}}
    assert role_violations(region, f"nodesmith-repair-{REGION}", [anybodys])


def test_the_statements_of_a_role_have_different_sids(region: Template) -> None:
    for role, statements in roles(region).items():
        sids = [statement["Sid"] for statement in statements]
        assert len(set(sids)) == len(sids), role


def test_variables_reach_iam_unchanged(region: Template) -> None:
    raw = json.loads(region.text)
    for substituted in _values_of("Fn::Sub", raw):
        assert "aws:" not in json.dumps(substituted)
    assert '"StringEquals":{"sts:RoleSessionName":"${aws:RequestTag/nodesmith-cluster}"}' in json.dumps(
        raw, separators=(",", ":")
    )


def _values_of(key: str, value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from (each for name, each in value.items() if name == key)
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _values_of(key, each)


@pytest.mark.parametrize("concern", ALL)
def test_a_function_starts_sessions_of_its_own_role_only(region: Template, concern: str) -> None:
    own = region.role_of(concern)
    assert may_assume(region, own, own, "alpha", TAGS)
    for id_, role in region.of_type("IAM::Role").items():
        if id_ != own and "RoleName" in role:
            assert not may_assume(region, own, id_, "alpha", TAGS), role["RoleName"]


@pytest.mark.parametrize("concern", ALL)
def test_a_session_is_named_after_its_tag_and_has_exactly_both_tags(region: Template, concern: str) -> None:
    own = region.role_of(concern)
    assert not may_assume(region, own, own, "beta", TAGS)
    assert not may_assume(region, own, own, "alpha", {})
    for key in TAGS:
        assert not may_assume(region, own, own, "alpha", {k: v for k, v in TAGS.items() if k != key})
        assert not may_assume(region, own, own, "alpha", {**TAGS, key: ""})
    assert not may_assume(region, own, own, "alpha", {**TAGS, "nodesmith-vpc": "*"})
    assert not may_assume(region, own, own, "alpha", {**TAGS, "team": "a"})


@pytest.mark.parametrize("concern", ALL)
def test_no_session_starts_another(region: Template, concern: str) -> None:
    own = region.role_of(concern)
    for cluster in ("alpha", "beta"):
        tags = {**TAGS, "nodesmith-cluster": cluster}
        assert not may_assume(region, own, own, cluster, tags, by=session("alpha", VPC))


def test_shared_functions_have_no_sessions(region: Template) -> None:
    for concern in ("catalog", "dispatch", "routing"):
        own = region.role_of(concern)
        assert not may_assume(region, own, own, "alpha", TAGS)
        assert [each["Principal"] for each in region.trust(own)] == [{"Service": "lambda.amazonaws.com"}]
        assert "SESSION_ROLE_ARN" not in region.function(concern)["Environment"]["Variables"]


@pytest.mark.parametrize("action", ATTACHING)
@pytest.mark.parametrize("concern", TALKING)
def test_lambda_attaches_functions_to_vpcs_but_code_and_sessions_cannot(
    region: Template, concern: str, action: str
) -> None:
    statements = region.statements(region.role_of(concern, PRIVATE))
    function = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:nodesmith-{PRIVATE}-{concern}"
    interface = f"arn:aws:ec2:{REGION}:{ACCOUNT}:network-interface/eni-1"
    for resource in ("*", interface):
        assert allows(statements, action, resource)
        assert not allows(statements, action, resource, {"lambda:SourceFunctionArn": function})
        assert not allows(statements, action, resource, session(ASKING.name, ASKING.vpc_id))


def pod(**changes: str) -> dict[str, str | list[str]]:
    """Return the tags that EKS Pod Identity requests for the forwarder's pod, with changes."""
    tags = {
        "eks-cluster-arn": f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/alpha",
        "eks-cluster-name": "alpha",
        "kubernetes-namespace": "nodesmith",
        "kubernetes-service-account": "nodesmith-forwarder",
    }
    changed = {key.replace("_", "-"): value for key, value in changes.items()}
    return {f"aws:RequestTag/{key}": value for key, value in {**tags, **changed}.items()}


def test_only_the_service_account_in_this_accounts_clusters_gets_the_forwarders_role(
    region: Template,
) -> None:
    trust, eks = region.trust(region.role_named(FORWARDER)), "pods.eks.amazonaws.com"
    assert may_be_assumed_by(eks, trust, pod())
    assert not may_be_assumed_by("lambda.amazonaws.com", trust, pod())
    for tag, value in {
        "kubernetes_namespace": "default",
        "kubernetes_service_account": "default",
        "eks_cluster_arn": f"arn:aws:eks:{REGION}:999988887777:cluster/alpha",
    }.items():
        assert not may_be_assumed_by(eks, trust, pod(**{tag: value}))
    elsewhere = f"arn:aws:eks:us-east-1:{ACCOUNT}:cluster/alpha"
    assert not may_be_assumed_by(eks, trust, pod(eks_cluster_arn=elsewhere))
