"""A denied call is Transient, as the Cloud port promises: what does not depend on it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from botocore.exceptions import CredentialRetrievalError

from nodesmith.adapters.cloud import AwsCloud
from nodesmith.adapters.ec2.instances import Ec2MarkedInstances
from nodesmith.composition.parts import system_time
from nodesmith.errors import Transient
from nodesmith.model.commands import OwnedKind
from tests.aws.account import SETTINGS, account, client

Call = Callable[[AwsCloud], object]


@pytest.fixture(autouse=True)
def world() -> Iterator[None]:
    with account():
        yield


@contextmanager
def denied(service: str, operation: str, code: str) -> Iterator[None]:
    """Let the shared client deny an operation."""

    def deny(**_: object) -> tuple[SimpleNamespace, dict[str, object]]:
        error = {"Code": code, "Message": "with an explicit deny in a service control policy"}
        return SimpleNamespace(status_code=403), {
            "Error": error,
            "ResponseMetadata": {"HTTPStatusCode": 403},
        }

    events, call = client(service).meta.events, f"before-call.{service}.{operation}"
    events.register(call, deny)
    try:
        yield
    finally:
        events.unregister(call, deny)


@pytest.mark.parametrize(
    ("operation", "call", "said"),
    [
        ("ec2:DescribeInstances", lambda cloud: cloud.instances_of(["web"]), ""),
        ("ec2:DescribeInstances", lambda cloud: cloud.instances_of(["web"], {"web": "i-0"}), ""),
        ("ec2:DescribeInstances", lambda cloud: cloud.fleet_instances(["fleet"]), ""),
        ("ec2:DescribeInstances", lambda cloud: cloud.owned_instances(), ""),
        ("ec2:DescribeInstances", lambda cloud: cloud.living(["i-0"]), ""),
        ("ec2:DescribeInstances", lambda cloud: cloud.notices(["i-0"]), ""),
        ("ec2:DescribeSpotInstanceRequests", lambda cloud: cloud.notices(["i-0"]), ""),
        ("ec2:DescribeInstanceStatus", lambda cloud: cloud.notices(["i-0"]), ""),
        (
            "ec2:DescribeLaunchTemplates",
            lambda cloud: cloud.owned(OwnedKind.LAUNCH_TEMPLATE),
            "launch-template",
        ),
        ("ec2:DescribeVolumes", lambda cloud: cloud.owned(OwnedKind.VOLUME), "volume"),
        (
            "ec2:DescribeNetworkInterfaces",
            lambda cloud: cloud.owned(OwnedKind.NETWORK_INTERFACE),
            "interface",
        ),
        ("iam:ListInstanceProfiles", lambda cloud: cloud.owned(OwnedKind.INSTANCE_PROFILE), "profile"),
    ],
)
def test_a_denied_read_is_transient_and_named(operation: str, call: Call, said: str) -> None:
    service, _, name = operation.partition(":")
    code = "AccessDenied" if service == "iam" else "UnauthorizedOperation"
    expected = rf"{said or operation}: {code}: with an explicit deny"
    with denied(service, name, code), pytest.raises(Transient, match=expected) as caught:
        call(AwsCloud(client, SETTINGS, system_time))
    assert caught.value.code == code


def test_a_denied_read_of_marked_spot_requests_is_transient() -> None:
    marked = Ec2MarkedInstances(lambda: client("ec2"))
    with (
        denied("ec2", "DescribeSpotInstanceRequests", "UnauthorizedOperation"),
        pytest.raises(Transient, match="ec2:DescribeSpotInstanceRequests: UnauthorizedOperation"),
    ):
        marked.ids()


def test_a_cluster_that_eks_cannot_describe_for_an_unknown_reason_is_transient() -> None:
    with (
        denied("eks", "DescribeCluster", "UnrecognizedClientException"),
        pytest.raises(Transient, match="eks:DescribeCluster: UnrecognizedClientException"),
    ):
        AwsCloud(client, SETTINGS, system_time).cluster_info()


def test_a_session_without_credentials_is_transient() -> None:
    def without_credentials(**_: object) -> None:
        raise CredentialRetrievalError(provider="nodesmith-session", error_msg="STS is away")

    events, call = client("ec2").meta.events, "before-call.ec2.DescribeInstances"
    events.register(call, without_credentials)
    try:
        with pytest.raises(Transient, match=r"ec2:DescribeInstances: CredentialRetrievalError: .* STS is"):
            AwsCloud(client, SETTINGS, system_time).instances_of(["default-1"])
    finally:
        events.unregister(call, without_credentials)
