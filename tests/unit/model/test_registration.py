from __future__ import annotations

import json
from typing import Any

import pytest

from nodesmith.errors import Rejected
from nodesmith.registration import Registration, parameter_name, read_registration, settings_of
from nodesmith.settings import Settings

VALUE: dict[str, Any] = {
    "format": 1,
    "vpcId": "vpc-0123456789abcdef0",
    "nodeRoles": ["KarpenterNodeRole-shop"],
    "settings": {"RESERVED_ENIS": "2"},
}


def test_a_registration_is_read_as_it_was_written() -> None:
    registration = Registration(
        "shop", "vpc-01234567", ("nodes", "gpus"), "private", {"ISOLATED_VPC": "true"}
    )

    assert read_registration("shop", registration.to_json()) == registration


def test_the_longest_registration_fits_into_a_standard_parameter() -> None:
    settings = {"CLUSTER_CA_BUNDLE": "x" * 1600, "CLUSTER_ENDPOINT": "https://" + "x" * 80}
    registration = Registration(
        "s" * 64, "vpc-0123456789abcdef0", tuple("r" * 64 for _ in range(8)), "p", settings
    )

    assert len(registration.to_json()) < 4096


def test_settings_combine_those_of_the_cluster_and_the_deployment() -> None:
    deployment = Settings("eu-west-1", table_name="t", bucket_name="b", queue_url="q", session_role_arn="r")

    settings = settings_of(read_registration("shop", json.dumps(VALUE)), deployment)

    assert (settings.cluster_name, settings.default_node_role) == ("shop", "KarpenterNodeRole-shop")
    assert (settings.vpc_id, settings.reserved_enis) == ("vpc-0123456789abcdef0", 2)
    assert (settings.region, settings.table_name, settings.bucket_name) == ("eu-west-1", "t", "b")
    assert (settings.queue_url, settings.session_role_arn) == ("q", "r")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 2}, "format: expected 1, found 2"),
        ({"vpcId": "10.0.0.0/16"}, "vpcId: expected the id of the cluster's VPC, found '10.0.0.0/16'"),
        ({"vpcID": "vpc-01234567"}, "vpcID: unknown, did you mean 'vpcId'?"),
        ({"nodeRoles": []}, "nodeRoles: expected a list of names of IAM roles, found []"),
        ({"nodeRoles": ["arn:aws:iam::1:role/x"]}, "nodeRoles[0]: expected the name (not the ARN)"),
        ({"reachedFrom": "Private"}, "reachedFrom: expected the name of a VPC of cdk.json, found 'Private'"),
        ({"settings": ["RESERVED_ENIS"]}, "settings: expected an object of names and texts"),
        (
            {"settings": {"RESERVED_ENI": "1"}},
            "settings.RESERVED_ENI: unknown, did you mean 'RESERVED_ENIS'?",
        ),
        ({"settings": {"RESERVED_ENIS": 1}}, "settings.RESERVED_ENIS: expected text, found 1"),
        ({"settings": {"RESERVED_ENIS": "-1"}}, "settings.RESERVED_ENIS: must not be negative, found '-1'"),
        ({"settings": {"TABLE_NAME": "mine"}}, "settings.TABLE_NAME: unknown"),
        ({"settings": {"SESSION_ROLE_ARN": "arn"}}, "settings.SESSION_ROLE_ARN: unknown"),
    ],
)
def test_a_fault_is_reported_with_what_would_be_right(change: dict[str, Any], said: str) -> None:
    with pytest.raises(Rejected) as rejected:
        read_registration("shop", json.dumps(VALUE | change))

    assert str(rejected.value).startswith(f"SSM parameter {parameter_name('shop')}: ")
    assert said in str(rejected.value)


def test_additions_of_a_later_release_do_not_stop_a_release_from_serving_the_cluster() -> None:
    added = {"zones": ["a"], "settings": {**VALUE["settings"], "OF_TOMORROW": "1", "ALSO": {"no": "text"}}}

    read = read_registration("shop", json.dumps(VALUE | added), of_any_release=True)

    known = read_registration("shop", json.dumps(VALUE))
    assert settings_of(read, Settings("eu-west-1")) == settings_of(known, Settings("eu-west-1"))
    assert json.loads(read.to_json())["settings"] == {**VALUE["settings"], "OF_TOMORROW": "1"}


def test_no_registration_can_override_settings_of_the_deployment() -> None:
    foreign = {"settings": {"AWS_REGION": "eu-north-1", "CLOUDWATCH_METRICS": "true", "TABLE_NAME": "mine"}}

    read = read_registration("shop", json.dumps(VALUE | foreign), of_any_release=True)

    assert read.settings == {}


def test_faults_in_known_keys_are_rejected_whichever_release_wrote_them() -> None:
    wrong = {"zones": ["a"], "settings": {"OF_TOMORROW": "1", "RESERVED_ENIS": "-1"}}

    with pytest.raises(Rejected, match="must not be negative") as rejected:
        read_registration("shop", json.dumps(VALUE | wrong), of_any_release=True)
    assert "TOMORROW" not in str(rejected.value)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[]", "null", '"shop"'])
def test_a_value_that_is_not_a_registration_is_rejected(text: str) -> None:
    with pytest.raises(Rejected, match="expected a") as rejected:
        read_registration("shop", text)
    assert len(str(rejected.value)) < 500


@pytest.mark.parametrize("name", ["s", "s" * 65, "../shop", "shop*", "${aws:username}", ""])
def test_a_cluster_name_that_is_not_a_valid_session_name_is_rejected(name: str) -> None:
    with pytest.raises(Rejected, match="name: expected 2 to 64 letters"):
        read_registration(name, json.dumps(VALUE))
