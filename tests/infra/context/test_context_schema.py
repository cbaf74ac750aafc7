"""The JSON schema of cdk.json agrees with the checks of a synthesis."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from infra.context.account import ACCOUNT_KEYS
from infra.context.clusters import CLUSTER_KEYS
from infra.context.context import read_context
from infra.context.regions import REGION_KEYS
from infra.context.schema import PATH, REGISTRATION_PATH, context_schema, registration_schema
from nodesmith.errors import Rejected
from nodesmith.registration import SETTINGS, Registration, read_registration
from tests.infra.context.test_context import GOOD, KEY, PRIVATE, TOPIC

VALIDATOR = Draft202012Validator(context_schema())
CONTEXT = context_schema()["properties"]["context"]["properties"]
REGION = CONTEXT["regions"]["additionalProperties"]["properties"]
CLUSTER = CONTEXT["clusters"]["items"]["properties"]
ACCOUNT_TOPIC = "arn:aws:sns:us-east-1:111122223333:t"


def is_accepted(regions: Any = None, clusters: Any = None, account: Any = None) -> bool:
    try:
        read_context(regions, clusters, account=account)
    except ValueError:
        return False
    return True


def is_valid(regions: Any = None, clusters: Any = None, account: Any = None) -> bool:
    given = {"regions": regions, "clusters": clusters, "account": account}
    context = {name: value for name, value in given.items() if value is not None}
    valid: bool = VALIDATOR.is_valid({"context": context})
    return valid


def test_the_file_is_the_schema_of_today() -> None:
    Draft202012Validator.check_schema(context_schema())
    assert json.loads(PATH.read_text()) == context_schema()
    Draft202012Validator.check_schema(registration_schema())
    assert json.loads(REGISTRATION_PATH.read_text()) == registration_schema()


def test_cdk_json_names_the_schema_and_follows_it() -> None:
    root = Path(__file__).parents[3]
    given = json.loads((root / "cdk.json").read_text())
    assert (root / given["$schema"]).resolve() == PATH
    VALIDATOR.validate(given)


def test_every_key_and_setting_is_in_the_schema_with_a_description() -> None:
    assert set(REGION) == set(REGION_KEYS)
    assert set(CLUSTER) == set(CLUSTER_KEYS)
    assert set(CONTEXT["account"]["properties"]) == set(ACCOUNT_KEYS)
    settings = CLUSTER["settings"]["properties"]
    assert {name: each["description"] for name, each in settings.items()} == {
        name: about["meaning"] for name, about in SETTINGS.items()
    }


@pytest.mark.parametrize(
    "region",
    [
        {},
        {"nodeRoles": ["team/b"], "kmsKeyArns": [KEY], "ssmParameters": ["/golden/image"]},
        {"alarmTopicArn": TOPIC, "interruptionConcurrency": 2, "isolated": True, "dashboard": False},
        {"alarmTopicArn": ""},
        {"vpcs": {"private": PRIVATE}},
        {"commitments": True},
        {"commitments": {"share": 0.5}},
        {"spendingLimits": {"team": {"usdPerHour": "40", "selector": {"matchLabels": {"a": "b"}}}}},
        {"spendingLimits": {"all": {"launchesPerHour": 100}}},
    ],
    ids=str,
)
def test_what_a_synthesis_accepts_of_a_region_is_valid(region: dict[str, Any]) -> None:
    given = {"us-east-1": region}
    assert is_accepted(given)
    assert is_valid(given)


@pytest.mark.parametrize(
    "region",
    [
        {"nodeRole": ["b"]},
        {"nodeRoles": ["a b"]},
        {"nodeRoles": "b"},
        {"kmsKeyArns": ["alias/x"]},
        {"alarmTopicArn": "t"},
        {"interruptionConcurrency": 1},
        {"interruptionConcurrency": "2"},
        {"isolated": "true"},
        {"vpcs": {"Private": PRIVATE}},
        {"vpcs": {"private": {"subnetIds": []}}},
        {"vpcs": {"private": {**PRIVATE, "securityGroupIds": ["subnet-0a0a0a0a"]}}},
        {"commitments": {"share": 2}},
        {"commitments": {"payer": "x"}},
        {"spendingLimits": {"team": {"usdPerHour": -1}}},
        {"spendingLimits": {"team": {"usdPerHour": "4 EUR"}}},
        {"spendingLimits": {"team": {"usdPerDay": 1}}},
        {"spendingLimits": {"a b": {"usdPerHour": 1}}},
    ],
    ids=str,
)
def test_what_a_synthesis_refuses_of_a_region_is_invalid(region: dict[str, Any]) -> None:
    given = {"us-east-1": region}
    assert not is_accepted(given)
    assert not is_valid(given)


@pytest.mark.parametrize(
    ("change", "is_right"),
    [
        ({}, True),
        ({"settings": {"RESERVED_ENIS": "1", "ISOLATED_VPC": "true"}}, True),
        ({"nodeRoles": ["KarpenterNodeRole-prod"], "reachedFrom": ""}, True),
        ({"name": "x"}, False),
        ({"vpcId": "vpc-1"}, False),
        ({"region": "Ireland"}, False),
        ({"settings": {"RESERVED_ENIS": 1}}, False),
        ({"settings": {"RESERVED_ENI": "1"}}, False),
        ({"settings": {"ISOLATED_VPC": "yes"}}, False),
        ({"settings": {"PREFERENCE_POLICY": "Maybe"}}, False),
        ({"nodeRole": ["b"]}, False),
    ],
    ids=str,
)
def test_both_agree_about_a_cluster(change: dict[str, Any], is_right: bool) -> None:
    cluster = [{**GOOD, **change}]
    assert (is_accepted(None, cluster), is_valid(None, cluster)) == (is_right, is_right)


@pytest.mark.parametrize(
    ("account", "is_right"),
    [
        ({"emails": ["a@example.com"], "budgetUsdPerMonth": 100}, True),
        ({"topicArn": ACCOUNT_TOPIC, "estimatedChargesUsd": 1}, True),
        ({"emails": ["a"], "budgetUsdPerMonth": 100}, False),
        ({"topicArn": ACCOUNT_TOPIC, "budgetUsdPerMonth": 0}, False),
        ({"topicArn": ACCOUNT_TOPIC, "budget": 5, "anomalyUsd": 5}, False),
    ],
    ids=str,
)
def test_both_agree_about_the_account(account: dict[str, Any], is_right: bool) -> None:
    assert (is_accepted(account=account), is_valid(account=account)) == (is_right, is_right)


@pytest.mark.parametrize(
    ("change", "is_right"),
    [
        ({}, True),
        ({"reachedFrom": "shared", "settings": {"RESERVED_ENIS": "1"}}, True),
        ({"nodeRoles": []}, False),
        ({"vpcId": 7}, False),
        ({"format": 2}, False),
        ({"settings": {"RESERVED_ENI": "1"}}, False),
        ({"nodeRole": "b"}, False),
    ],
    ids=str,
)
def test_both_agree_about_a_registration(change: dict[str, Any], is_right: bool) -> None:
    written = {**json.loads(Registration("web", "vpc-01234567", ("nodes",)).to_json()), **change}
    try:
        read_registration("web", json.dumps(written))
    except Rejected:
        is_accepted = False
    else:
        is_accepted = True
    valid = Draft202012Validator(registration_schema()).is_valid(written)
    assert (is_accepted, valid) == (is_right, is_right)
