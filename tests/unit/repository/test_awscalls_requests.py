"""What IAM is asked about a request, as the tests that judge calls read it."""

from __future__ import annotations

import json

import pytest

from tests.awscalls.judging import calls_of
from tests.awscalls.requests import Request

HERE = "eu-west-1:123456789012"
FUNCTION = f"arn:aws:lambda:{HERE}:function:nodesmith-lifecycle"


def asked(
    service: str, path: str = "/", query: str = "", target: str = "", **body: object
) -> list[tuple[str, str]]:
    request = Request("eu-west-1", service, "POST", path, target, json.dumps(body).encode(), 200, query)
    return [(call.action, call.resource) for call in calls_of(request)]


@pytest.mark.parametrize(
    ("named", "query", "resource"),
    [
        ("nodesmith-lifecycle", "Qualifier=live", f"{FUNCTION}:live"),
        ("nodesmith-lifecycle", "", FUNCTION),
        (f"{FUNCTION}:live".replace(":", "%3A"), "", f"{FUNCTION}:live"),
        (FUNCTION, "Qualifier=live", f"{FUNCTION}:live"),
    ],
    ids=["name and alias", "name", "ARN of the alias", "ARN and alias"],
)
def test_who_invokes_a_function_by_an_alias_needs_a_grant_for_the_alias(
    named: str, query: str, resource: str
) -> None:
    path = f"/2015-03-31/functions/{named}/invocations"
    assert asked("lambda", path, query) == [("lambda:InvokeFunction", resource)]


def test_another_call_of_lambda_is_one_that_nobody_is_granted() -> None:
    ((action, resource),) = asked("lambda", "/2015-03-31/functions/nodesmith-lifecycle/aliases")
    assert action.startswith("lambda:POST")
    assert resource == ""


def test_who_reads_several_parameters_needs_a_grant_for_each() -> None:
    assert asked("ssm", target="AmazonSSM.GetParameters", Names=["/nodesmith/a", "/aws/service/b"]) == [
        ("ssm:GetParameters", f"arn:aws:ssm:{HERE}:parameter/nodesmith/a"),
        ("ssm:GetParameters", "arn:aws:ssm:eu-west-1::parameter/aws/service/b"),
    ]


def test_who_reads_the_parameters_under_a_path_needs_a_grant_for_the_path() -> None:
    (call,) = asked("ssm", target="AmazonSSM.GetParametersByPath", Path="/nodesmith/clusters")
    assert call == ("ssm:GetParametersByPath", f"arn:aws:ssm:{HERE}:parameter/nodesmith/clusters")


def test_who_reads_some_attributes_of_items_needs_no_grant_for_others() -> None:
    item = {"pk": {"S": "CLUSTER#a"}, "sk": {"S": "META"}}
    part = {"Keys": [item], "ProjectionExpression": "#at, pk", "ExpressionAttributeNames": {"#at": "at"}}
    body = json.dumps({"RequestItems": {"nodesmith": part}}).encode()
    (call,) = calls_of(
        Request("eu-west-1", "dynamodb", "POST", "/", "DynamoDB_20120810.BatchGetItem", body, 200)
    )
    assert call.context["dynamodb:Attributes"] == ["at", "pk", "sk"]
    assert call.context["dynamodb:LeadingKeys"] == ["CLUSTER#a"]
