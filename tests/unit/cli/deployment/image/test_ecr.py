from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest
from botocore.stub import Stubber

from nodesmith.errors import Rejected, Transient
from nodesmith_cli.deployment.image import ecr
from nodesmith_cli.deployment.image.credentials import Credentials, credentials_for
from nodesmith_cli.deployment.image.ecr import Ecr, ecr_of, ensure_repository
from nodesmith_cli.deployment.image.references import Reference, parse_reference
from tests.aws.account import strict_aws

MINE = Ecr("123456789012", "eu-west-1")
NAME = "team/nodesmith-forwarder"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    with strict_aws():
        yield


@pytest.mark.parametrize(
    ("registry", "found"),
    [
        ("111122223333.dkr.ecr.eu-west-1.amazonaws.com", Ecr("111122223333", "eu-west-1")),
        ("111122223333.dkr.ecr-fips.us-gov-west-1.amazonaws.com", Ecr("111122223333", "us-gov-west-1")),
        ("111122223333.dkr.ecr.cn-north-1.amazonaws.com.cn", Ecr("111122223333", "cn-north-1")),
        ("111122223333.dkr.ecr.eusc-de-east-1.amazonaws.eu", Ecr("111122223333", "eusc-de-east-1")),
        ("111122223333.dkr-ecr.eu-west-1.on.aws", Ecr("111122223333", "eu-west-1")),
        ("111122223333.dkr.ecr.eu-west-1.amazonaws.com.example", None),
        ("111122223333.dkr.ecr.eu-west-1.example.com", None),
        ("1111.dkr.ecr.eu-west-1.amazonaws.com", None),
        ("public.ecr.aws", None),
    ],
)
def test_aws_credentials_are_only_used_for_ecr_at_aws_addresses(registry: str, found: Ecr | None) -> None:
    assert ecr_of(Reference(registry, "x")) == found


@pytest.mark.usefixtures("aws")
def test_ecr_logins_use_an_aws_token() -> None:
    found = credentials_for(parse_reference(f"123456789012.dkr.ecr.eu-west-1.amazonaws.com/{NAME}"))
    assert found is not None
    assert (found.username, found.origin) == ("AWS", "your AWS credentials")
    assert found.password


@pytest.mark.usefixtures("aws")
def test_a_user_name_on_the_command_line_takes_precedence_over_aws() -> None:
    given = Credentials("ci", "x", "--username ci")
    assert (
        credentials_for(parse_reference(f"123456789012.dkr.ecr.eu-west-1.amazonaws.com/{NAME}"), given)
        is given
    )


@pytest.mark.usefixtures("aws")
def test_a_missing_repository_is_created_once() -> None:
    assert ensure_repository(MINE, NAME)
    assert not ensure_repository(MINE, NAME)
    (made,) = boto3.client("ecr", MINE.region).describe_repositories()["repositories"]
    assert (made["repositoryName"], made["imageTagMutability"]) == (NAME, "MUTABLE")


def answering(monkeypatch: pytest.MonkeyPatch, **errors: str) -> None:
    """Make ECR respond with these errors, in this order."""
    client = boto3.client("ecr", MINE.region, aws_access_key_id="none", aws_secret_access_key="none")
    stubber = Stubber(client)
    for operation, code in errors.items():
        stubber.add_client_error(operation, code, "User ci is not authorized", 400)
    stubber.activate()
    monkeypatch.setattr(ecr, "aws_client", lambda _service, _region: client)


def test_a_missing_permission_is_reported_with_all_that_a_push_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, get_authorization_token="AccessDeniedException")
    with pytest.raises(Rejected, match="User ci is not authorized; a push needs ecr:GetAuthorizationToken"):
        ecr.ecr_login(MINE)


def test_a_missing_permission_to_create_the_repository_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(
        monkeypatch,
        describe_repositories="RepositoryNotFoundException",
        create_repository="AccessDeniedException",
    )
    with pytest.raises(Rejected, match="creating the repository also needs ecr:CreateRepository"):
        ensure_repository(MINE, NAME)


def test_a_push_works_without_permission_to_describe_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, describe_repositories="AccessDeniedException")
    assert not ensure_repository(MINE, NAME)


def test_without_aws_credentials_the_ways_to_set_them_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", "/nonexistent")
    with pytest.raises(Rejected, match=r"no AWS credentials found: log in .* or set AWS_PROFILE"):
        ecr.ecr_login(MINE)


def test_an_ecr_failure_is_transient(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, get_authorization_token="ServerException")
    with pytest.raises(Transient, match="ecr:GetAuthorizationToken: ServerException"):
        ecr.ecr_login(MINE)
